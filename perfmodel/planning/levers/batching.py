"""How many sequences and tokens a step takes."""

from __future__ import annotations

from perfmodel.errors import InputError
from perfmodel.planning.lever import Change, Idle, Lever, Price, View

BATCH = Price(memory="cache for each sequence", complexity="enough requests at the same time")
TIMES = (2, 4)
CHUNK = 2048
"""Tokens of a prefill step: the budget that vLLM's docs name for short pauses between tokens
(docs.vllm.ai, Optimization and Tuning)."""
PACKED = 8
"""Prompts that packing is tried with where the batch is one."""
WORTH_PACKING = 1.05
"""A gain in prefill tokens per second below which prompts count as filling the device alone."""


def _changes_batch(view: View) -> tuple[Change, ...] | Idle:
    batch, memory = view.situation.workload.batch, view.base.memory
    found = [
        Change("batch", f"batch {batch * times:,}", BATCH, workload=(("batch", batch * times),))
        for times in TIMES
        if memory.fits and batch * times < memory.max_sequences
    ]
    found.append(
        Change("batch", "largest batch", BATCH, grows=True,
               remark="TTFT is that of a batch prefilled together; arrivals spread over time wait "
               "less")
    )  # fmt: skip
    return tuple(found)


def _changes_chunk(view: View) -> tuple[Change, ...] | Idle:
    load = view.situation.workload
    own = load.prefill_chunk or view.base.plan.engine.kernels.micro_batch_tokens
    new = load.prompt - load.cached_prefix
    if own is not None and own < new:
        whole = Change("chunked prefill", "prefill in one pass", Price(),
                       workload=(("prefill_chunk", load.prompt),))  # fmt: skip
        return Idle(f"on already, in chunks of {own:,}", without=whole)
    if new <= CHUNK:
        return Idle(f"{new:,} new tokens are one chunk of {CHUNK:,} already")
    change = Change(
        "chunked prefill",
        f"prefill in chunks of {CHUNK:,}",
        Price(complexity="chunks read the weights and the earlier keys again"),
        workload=(("prefill_chunk", CHUNK),),
        remark="helps the TPOT of sequences that decode meanwhile, which one batch doesn't show",
    )
    return (change,)


def _changes_budget(view: View) -> tuple[Change, ...] | Idle:
    tokens = view.base.plan.limits.max_num_batched_tokens
    if tokens <= CHUNK:
        return Idle(f"a step takes at most {tokens:,} tokens already")
    price = Price(complexity="long prompts take more steps, not priced here (--prefill-chunk does)")
    values = (("max_num_batched_tokens", CHUNK),)
    return (Change("token budget", f"token budget {CHUNK:,}", price, deployment=values),)


def _changes_sequences(view: View) -> tuple[Change, ...] | Idle:
    """Room that the engine's start-up run sets aside for sequences that never come."""
    held = int(view.base.plan.replica_sequences(view.situation.workload))
    if view.base.plan.limits.max_num_seqs <= held:
        return Idle(f"the limit is the batch's {held:,} sequences already")
    change = Change(
        "sequence limit",
        f"at most {held:,} sequence{'s' * (held > 1)}",
        Price(complexity="more requests than these wait"),
        deployment=(("max_num_seqs", held),),
        excludes=frozenset({"workload.batch", "deployment.dp"}),
    )
    return (change,)


def _changes_packing(view: View) -> tuple[Change, ...] | Idle:
    """Prompts of one step against the same prompts one after the other."""
    batch = view.situation.workload.batch
    count = batch if batch > 1 else PACKED
    dp = view.base.plan.parallel.dp
    try:
        alone, together = (
            view.estimator.of(
                view.situation.with_values(
                    {"max_num_seqs": None},
                    {"batch": size * dp, "output": 1},
                )
            )
            for size in (1, max(1, count // dp))
        )
    except InputError as error:
        return Idle(str(error))
    rate = float(together.prefill.tokens_per_s) / float(alone.prefill.tokens_per_s)
    gain = f"{rate:.2f} times the prefill tokens per second of one by one"
    if rate < WORTH_PACKING:
        return Idle(f"a prompt fills the device by itself: {count} in a step give {gain}")
    if batch > 1:
        return Idle(f"on already: the batch's {count} prompts share a step, {gain}")
    return Idle(f"{count} such prompts waiting, in one step, would get {gain}")


LEVERS = (
    Lever("batch", "batching", _changes_batch),
    Lever("chunked prefill", "batching", _changes_chunk),
    Lever("prompt packing", "batching", _changes_packing),
    Lever("sequence limit", "batching", _changes_sequences),
    Lever("token budget", "batching", _changes_budget),
)
