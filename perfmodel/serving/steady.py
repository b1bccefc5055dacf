"""The steady state of an engine under a closed loop, with batches that run on or drain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.serving.admission import admitted, kv_share
from perfmodel.serving.asked import Asked, Bounds
from perfmodel.serving.closed_steps import decode_steps
from perfmodel.serving.mean_field import MeanField
from perfmodel.serving.pricing import Array
from perfmodel.serving.step_arrays import ArraySteps

FULL = 0.98
"""Share of the room for prompts from which the budget is said to limit."""


@dataclass(frozen=True, slots=True)
class State:
    """A steady state by setting; fields as of `steady_state.SteadyState`."""

    ttft_s: Array
    tpot_s: Array
    queue_s: Array
    e2e_s: Array
    requests_per_s: Array
    running: Array
    utilisation: Array
    kv_utilisation: Array
    limited_by: NDArray[np.str_]
    saturated: NDArray[np.bool_]
    near_limit: NDArray[np.bool_]
    ttft_burst_s: Array
    bench_ttft_s: Array
    bench_tpot_s: Array


def closed_loop(
    asked: Asked, bounds: Bounds, times: ArraySteps, concurrency: Array, cycles: int
) -> State:
    """Users who each send the next request when the last one has ended."""
    inside = admitted(asked, bounds, concurrency)
    users, most, why = inside.users, inside.most, inside.why
    field = MeanField(asked, bounds, times, users, inside.full)
    seen = field.seen(field.meeting(None))
    service = seen.service_s(asked.output)
    waiting = concurrency - users
    rate = users / service
    # Those who lost their cache wait first: after their first token.
    outside = waiting * field.evicted / np.maximum(waiting + field.evicted, 1e-9)
    again = outside / rate
    queue = (waiting - outside) / rate
    running = users - rate * seen.queue_s
    # Users beyond those held wait for a whole cycle at first, then for as many as are before them.
    burst = field.burst() + waiting / concurrency * service * (waiting / users + 1) / 2
    ttft, tpot = _benchmark(field, burst, queue, cycles)
    tpot = tpot + again * asked.per_token
    limit = np.where(concurrency <= most, "concurrency", why)
    limit = np.where(field.steps.budget_use >= FULL, "budget", limit)
    return State(
        ttft_s=seen.ttft_s + queue,
        tpot_s=seen.tpot_s + again * asked.per_token,
        queue_s=seen.queue_s + queue,
        e2e_s=concurrency / rate,
        requests_per_s=rate,
        running=running,
        utilisation=np.ones_like(users),
        kv_utilisation=kv_share(asked, bounds, running),
        limited_by=limit,
        saturated=concurrency > most,
        near_limit=inside.near,
        ttft_burst_s=burst,
        bench_ttft_s=ttft,
        bench_tpot_s=tpot,
    )


def _benchmark(field: MeanField, burst: Array, queue: Array, cycles: int) -> tuple[Array, Array]:
    """Mean TTFT and TPOT of a benchmark of ``cycles`` requests per user, all users from 0 on.

    The first request of each has the TTFT of the burst; those between are of users still more or
    less in step; the last ones spend half of their time beside a batch that falls to nothing, of
    which they see two thirds on average, so 5/6 of the batch and half of the others' prompts.
    """
    if cycles == 0:
        return np.full_like(burst, np.nan), np.full_like(burst, np.nan)
    steps, users = field.steps, field.users
    left = np.maximum(steps.decoding * 5 / 6, np.minimum(steps.decoding, 1.0))
    beside = (users - 1) / np.maximum(steps.steps, 1.0) / 2
    last = field.visit(left, beside, beside).tpot_s
    if cycles == 1:
        return burst, last
    meets = sum(field.meeting(cycle) for cycle in range(1, cycles)) / (cycles - 1)
    among = field.seen(np.asarray(meets))
    return (
        (burst + (cycles - 1) * (among.ttft_s + queue)) / cycles,
        (last + (cycles - 1) * among.tpot_s) / cycles,
    )


def drained(
    asked: Asked, bounds: Bounds, times: ArraySteps, concurrency: Array, cycles: int
) -> State:
    """Batches that run until all of their sequences have ended, under a closed loop.

    Every request of a batch is there when it begins. Slots fall as sequences end, or stay computed
    where the policy pads.
    """
    inside = admitted(asked, bounds, concurrency)
    users, most, why = inside.users, inside.most, inside.why
    field = MeanField(asked, bounds, times, users)
    first, prefill = field.groups()
    room = np.maximum(field.prompts.per_step(0 * users), 1.0)
    ends, longest = _ends(asked, bounds, times, users)
    decode = np.mean(ends, axis=0)
    outputs = np.maximum(asked.few_outputs[:, None] * asked.output - 1, 1.0)
    tpot = np.where(asked.output > 1, np.mean(ends / outputs, axis=0), np.nan)
    # A prompt's first token comes with its own step; its decoding begins when all are prefilled.
    after = np.where(asked.output > 1, prefill - first, 0.0)
    tpot = tpot + after / np.maximum(asked.output - 1, 1.0)
    cycle = prefill + longest
    rate = users / cycle
    e2e = concurrency / rate
    ttft = e2e - decode - after
    waiting = concurrency - users
    burst = first + waiting / concurrency * cycle * (waiting / users + 1) / 2
    return State(
        ttft_s=ttft,
        tpot_s=tpot,
        queue_s=np.maximum(ttft - prefill / np.maximum(users / room, 1.0), 0.0),
        e2e_s=e2e,
        requests_per_s=rate,
        running=users * (prefill + decode) / cycle,
        utilisation=np.ones_like(users),
        kv_utilisation=kv_share(asked, bounds, users),
        limited_by=np.where(concurrency <= most, "concurrency", why),
        saturated=concurrency > most,
        near_limit=inside.near,
        ttft_burst_s=burst,
        bench_ttft_s=(burst + (cycles - 1) * ttft) / cycles if cycles else np.nan * burst,
        bench_tpot_s=tpot if cycles else np.nan * burst,
    )


def _ends(asked: Asked, bounds: Bounds, times: ArraySteps, users: Array) -> tuple[Array, Array]:
    """When outputs end after a batch begins to decode, by quantile, and the batch's last."""
    shares = (np.arange(len(asked.few_outputs)) + 1) / len(asked.few_outputs)
    chance = np.diff(shares[:, None] ** users, axis=0, prepend=0.0)
    now, before, ends = 0 * users, 0 * users, []
    for share, output in zip(shares.tolist(), asked.few_outputs.tolist(), strict=True):
        upto = decode_steps(times, np.maximum(output * asked.output, 1.0))
        left = users if bounds.policy.padded else users * (1 - share + shares[0])
        context = asked.prompt + (before + upto - 1) / 2 * times.tokens_per_step
        step = times.decode(np.maximum(left, 1.0), context)
        now, before = now + (upto - before) * step, upto
        ends.append(now)
    last = np.stack(ends)
    return last, np.asarray(np.sum(chance * last, axis=0))
