"""What each figure of a plan means, and what the plan takes for granted."""

from __future__ import annotations

from collections.abc import Iterator

from perfmodel.planning.capacity.answer import Choice, Plan
from perfmodel.planning.capacity.requests import parts_of
from perfmodel.specs.engine import load_engine
from perfmodel.specs.traffic import ServiceLevel

DEFINITIONS: dict[str, str] = {
    "replica": "one engine, or the engines of two pools, with all of its GPUs",
    "rate_per_replica": "requests per second up to which the simulated replica keeps every "
    "promise, to within 3 %",
    "percentile": "of each class's requests, so many per cent see at most the TTFT, TPOT or "
    "end-to-end time that is shown; each limit by itself",
    "replicas": "busiest hour's rate / (utilisation target × rate per replica), rounded up, and "
    "the spare ones",
    "utilisation": "load of the busiest hour over what all replicas carry; degraded: with the "
    "spare ones gone",
    "busiest": "a replica in the busiest hour of the first month, all replicas running",
    "usd_per_hour": "rent of all GPUs, spare ones too",
    "usd_per_million_prompt_tokens": "prefill's part of the rent over the prompt tokens of the "
    "mean rate, cached ones counted",
    "usd_per_million_output_tokens": "the rest of the rent over the output tokens of the mean rate",
    "prefill_share": "what steps take for prompts, beyond decoding alone, of the time that all "
    "steps take; the prefill pool's share of the GPUs where pools are apart",
    "front": "no other choice is both cheaper and faster for the user (1/TPOT in the busiest "
    "hour); the list: all simulated loads as fleets",
    "energy": "of the GPUs alone, at the mean rate",
}

BENCHMARKED = ("static", "single")
"""Policies of presets that describe benchmarks, not servers."""


def notes(plan: Plan) -> Iterator[str]:
    """What a reader should know of this plan."""
    if all(kind.level == ServiceLevel() for kind in plan.traffic.classes):
        yield "no service level is asked for: a replica is loaded until its queue grows"
    if plan.traffic.peak == 1:
        yield "the mean rate is taken for the busiest hour's; --peak says how much more that is"
    best = plan.best
    yield from _too_long(plan)
    if best is None:
        return
    if plan.terms.spare == 0:
        yield "no replica is spare: when one fails, promises may be broken until it is back"
    yield (
        "requests are spread evenly over replicas at random, each a Poisson stream of its own"
        if plan.traffic.burstiness == 1
        else "each replica gets a stream as bursty as the whole"
    )
    yield from _benchmarked(best)
    if any(choice.serving.disaggregate for choice in plan.choices):
        yield "a prompt's cache crosses the network between pools: that wait counts in TPOT"
    unpriced = sorted({c.hardware.name for c in plan.choices} - set(plan.terms.usd_per_gpu_hour))
    if unpriced:
        yield f"no price is known of {', '.join(unpriced)}: --price {unpriced[0]}=2.5 says it"


def _too_long(plan: Plan) -> Iterator[str]:
    """Where requests may be longer than the model was made for."""
    made_for = plan.model.max_positions
    lengths = [(part.prompt.longest, part.output.longest) for part in parts_of(plan.traffic)]
    longest = max((p or 0) + (o or 0) for p, o in lengths)
    if made_for is not None and longest > made_for:
        yield (
            f"requests of up to {longest:,} tokens exceed the {made_for:,} that {plan.model.name} "
            "was made for"
        )


def _benchmarked(best: Choice) -> Iterator[str]:
    """Where an engine's preset describes how it was benchmarked, not how it serves."""
    preset = load_engine(best.deployment.engine)
    policy = None if preset.scheduler is None else preset.scheduler.policy
    if policy in BENCHMARKED and best.serving.scheduler is None:
        yield (
            f"the preset of {preset.name} runs {policy} batches, as its benchmarks did; a server "
            "that takes requests into running batches carries more: --scheduler inflight_no_evict"
        )
