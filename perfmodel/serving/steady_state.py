"""The fast answer: what users of a deployment see in a steady state, without simulating it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InputError
from perfmodel.serving.arrivals import DEFAULT_OUTPUT, DEFAULT_PROMPT
from perfmodel.serving.asked import Asked, Bounds, relative
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.open_loop import open_loop
from perfmodel.serving.pricing import Array
from perfmodel.serving.serve import Served, Serving, contexts, served
from perfmodel.serving.steady import State, closed_loop, drained
from perfmodel.serving.step_arrays import ArraySteps, LockstepArrays, PricedArrays
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import Model
from perfmodel.specs.workload import LARGEST

AT_ONCE = 1024
"""Settings that are worked out together."""

Numbers: TypeAlias = "float | NDArray[Any]"
Tokens: TypeAlias = "int | str | Lengths | NDArray[Any]"


@dataclass(frozen=True, slots=True)
class SteadyState:
    """Means of a steady state: numbers, or arrays of the shape that the settings broadcast to."""

    ttft_s: Numbers
    """From arrival to the first token; infinite where a rate is more than can be served."""
    tpot_s: Numbers
    """(Last token − first)/(output − 1); NaN for outputs of one token."""
    e2e_s: Numbers
    """From arrival to the last token."""
    queue_s: Numbers
    """From arrival to the step that begins the prefill; part of ``ttft_s``."""
    requests_per_s: Numbers
    """Over all replicas."""
    output_tokens_per_s: Numbers
    running: Numbers
    """Sequences in prefill or decode, over all replicas."""
    utilisation: Numbers
    """Share of time in which steps run."""
    kv_utilisation: Numbers
    """Share of the KV cache that is held, with what the policy keeps free for outputs."""
    limited_by: Any
    """What keeps it from more: ``concurrency`` (users), ``rate`` (requests), ``slots``, ``kv``, or
    ``budget`` (a step's tokens)."""
    saturated: Any
    """More is asked than the engine can hold (users) or serve (rate)."""
    near_limit: Any
    """TTFT and waits are rough here: users within 30 % (or three standard deviations) of what the
    cache holds, outputs longer than prompts in a cache that evicts, prompts that wait until a batch
    has shrunk, a rate above 75 % of what is served (30 % where outputs have a few tokens). Simulate
    there; docs/mean-field.md has the errors."""
    ttft_burst_s: Numbers
    """Mean TTFT of first requests where all users send at once; NaN for a rate."""
    bench_ttft_s: Numbers
    """Mean TTFT over all requests of a closed-loop benchmark that starts all users at once and
    sends ``requests_per_user`` each: with that burst, and with users who are still in step."""
    bench_tpot_s: Numbers
    """Mean TPOT likewise, with the end, at which the batch falls."""
    gpus: int


@dataclass(frozen=True, slots=True)
class FastEngine:
    """A deployment whose steps are priced once, for many calls of `steady_state`."""

    case: Served
    times: ArraySteps

    @classmethod
    def of(cls, case: Served) -> FastEngine:
        """The engine of what `serve.served` makes."""
        plan = case.plan
        one = PricedArrays(case.pricer, *contexts(plan, case.engine.blocks()))
        ranks = plan.parallel.dp
        if ranks == 1:
            return cls(case, one)
        own = case.engine.max_num_batched_tokens
        budget = own if case.engine.policy.chunked else inf
        return cls(case, LockstepArrays(one, ranks, budget))


def steady_state(  # noqa: PLR0913  (what is asked, one by one)
    model: Model | str | os.PathLike[str],
    hardware: Hardware | str | os.PathLike[str],
    *,
    concurrency: Numbers | None = None,
    rate: Numbers | None = None,
    prompt: Tokens = DEFAULT_PROMPT,
    output: Tokens = DEFAULT_OUTPUT,
    deployment: Deployment | None = None,
    serving: Serving | None = None,
    requests_per_user: int = 10,
) -> SteadyState:
    """What users of a deployment see in a steady state, for one setting or arrays of them.

    Args:
        model: a `Model`, or what `load_model` takes.
        hardware: a `Hardware`, or what `load_hardware` takes.
        concurrency: users who each send the next request when the last one has ended.
        rate: requests per second, a Poisson process; one of the two is needed.
        prompt: tokens of a prompt: a number, a distribution as `Lengths` reads it, or an array of
            means that share no spread.
        output: tokens that are generated, likewise.
        deployment: parallel layout, formats and engine settings.
        serving: scheduler; prefix caching, pools and a warm-up are refused.
        requests_per_user: of the benchmark that ``bench_ttft_s`` describes; 0 leaves it out.

    Raises:
        InputError: one line that names what is wrong, and what would do.
    """
    case = served(model, hardware, deployment, _covered(serving or Serving()))
    return steady_state_of(
        FastEngine.of(case),
        concurrency=concurrency,
        rate=rate,
        prompt=prompt,
        output=output,
        requests_per_user=requests_per_user,
    )


def _covered(serving: Serving) -> Serving:
    """Refuse what only a simulation knows."""
    for field, stated in (
        ("prefix_caching", bool(serving.prefix_caching)),
        ("disaggregate", serving.disaggregate is not None),
        ("warmup", serving.warmup > 0),
    ):
        if stated:
            raise InputError(f"{field}: a steady state isn't known with it; simulate instead")
    return serving


def steady_state_of(
    engine: FastEngine,
    *,
    concurrency: Numbers | None = None,
    rate: Numbers | None = None,
    prompt: Tokens = DEFAULT_PROMPT,
    output: Tokens = DEFAULT_OUTPUT,
    requests_per_user: int = 10,
) -> SteadyState:
    """The same of an engine that is at hand."""
    case = engine.case
    if (concurrency is None) == (rate is None):
        raise InputError("steady state: one of concurrency and rate is needed")
    if requests_per_user < 0 or requests_per_user != int(requests_per_user):
        raise InputError(
            f"requests_per_user: a whole number from 0 is needed (got {requests_per_user})"
        )
    prompts, prompt_shape = _tokens("prompt", prompt)
    outputs, output_shape = _tokens("output", output)
    flag = "concurrency" if rate is None else "rate"
    level = _numbers(flag, concurrency if rate is None else rate)
    wrong = ~((level > 0 if rate is not None else level >= 1) & np.isfinite(level))
    if np.any(wrong):
        least = "at least 1" if rate is None else "above 0"
        raise InputError(f"{flag}: must be {least}, and finite (got {level[wrong].flat[0]:g})")
    try:
        level, prompts, outputs = np.broadcast_arrays(level / case.replicas, prompts, outputs)
    except ValueError:
        raise InputError(
            f"{flag}, prompt, output: arrays of shapes {level.shape}, {prompts.shape} and "
            f"{outputs.shape} don't broadcast: give them the same, or single numbers"
        ) from None
    shape = level.shape
    if not level.size:
        raise InputError(f"{flag}, prompt, output: an array without settings; give at least one")
    # Fewer users than replicas: some replicas have one, the others none.
    used = np.ones(level.size) if rate is not None else np.minimum(level, 1.0).ravel()
    level = np.maximum(level, 1.0) if rate is None else level
    asked = Asked(prompts.ravel(), outputs.ravel(), prompt_shape, output_shape)
    bounds = Bounds.of(case.engine, engine.times.width)
    _check_room(asked, bounds)
    states = [
        _state(part, bounds, engine.times, here, rate is None, requests_per_user)
        for part, here in _parts(asked, level.ravel())
    ]
    return _result(_joined(states), asked, case, shape, used)


def _parts(asked: Asked, level: Array) -> Iterator[tuple[Asked, Array]]:
    """Settings by the thousand: their arrays stay in the processor's cache."""
    for first in range(0, len(level), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        yield replace(asked, prompt=asked.prompt[part], output=asked.output[part]), level[part]


def _joined(states: list[State]) -> State:
    if len(states) == 1:
        return states[0]
    names = State.__dataclass_fields__
    return State(*(np.concatenate([getattr(state, name) for state in states]) for name in names))


def _state(
    asked: Asked, bounds: Bounds, times: ArraySteps, level: Array, closed: bool, cycles: int
) -> State:
    if bounds.policy.prefill == "drained":
        if not closed:
            raise InputError(
                f"rate: the steady state of {bounds.policy.name} batches is known for a "
                "concurrency only; simulate them"
            )
        return drained(asked, bounds, times, level, cycles)
    if closed:
        return closed_loop(asked, bounds, times, level, cycles)
    return open_loop(asked, bounds, times, level)


def _numbers(name: str, value: Any) -> Array:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"{name}: a number or an array of numbers is needed (got {str(value)[:60]!r})"
        ) from None


def _tokens(name: str, value: Tokens) -> tuple[Array, Array]:
    """Mean lengths, and what quantiles are of the mean."""
    if isinstance(value, int | str | Lengths):
        mean, quantiles = relative(Lengths.parse(value, name))
        return np.asarray(mean), quantiles
    means = _numbers(name, value)
    wrong = ~((means >= 1) & (means <= LARGEST))
    if np.any(wrong):
        raise InputError(
            f"{name}: a length must lie in 1 … {LARGEST:,} (got {means[wrong].flat[0]:g})"
        )
    return means, np.ones(1)


def _check_room(asked: Asked, bounds: Bounds) -> None:
    longest = bounds.blocks.longest()
    needed = asked.prompt * asked.prompts[-1] + asked.output * asked.outputs[-1]
    if np.any(needed > longest):
        raise InputError(
            f"prompt and output are {int(np.max(needed)):,} tokens, one sequence has room for "
            f"{longest:,}: shorten them, or give the engine more memory"
        )


def _result(
    state: State, asked: Asked, case: Served, shape: tuple[int, ...], used: Array
) -> SteadyState:
    """What all replicas do, of which a share ``used`` has users."""

    def made(values: NDArray[Any]) -> Any:
        shaped = np.broadcast_to(values, asked.prompt.shape).reshape(shape)
        return shaped.item() if shape == () else shaped

    replicas = case.replicas * used
    return SteadyState(
        ttft_s=made(state.ttft_s),
        tpot_s=made(state.tpot_s),
        e2e_s=made(state.e2e_s),
        queue_s=made(state.queue_s),
        requests_per_s=made(replicas * state.requests_per_s),
        output_tokens_per_s=made(replicas * state.requests_per_s * asked.output),
        running=made(replicas * state.running),
        utilisation=made(used * state.utilisation),
        kv_utilisation=made(used * state.kv_utilisation),
        limited_by=made(state.limited_by),
        saturated=made(state.saturated),
        near_limit=made(state.near_limit),
        ttft_burst_s=made(state.ttft_burst_s),
        bench_ttft_s=made(state.bench_ttft_s),
        bench_tpot_s=made(state.bench_tpot_s),
        gpus=case.plan.parallel.gpus * case.replicas,
    )
