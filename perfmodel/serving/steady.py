"""The steady state of an engine under a closed loop, a rate, or batches that drain."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from perfmodel.serving.mean_field import (
    Asked,
    Bounds,
    MeanField,
    Seen,
    bisected,
    decode_steps,
    kv_need,
    kv_users,
)
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
    limited_by: Array
    saturated: Array
    ttft_burst_s: Array
    bench_ttft_s: Array
    bench_tpot_s: Array


def held(asked: Asked, bounds: Bounds) -> tuple[Array, Array]:
    """Sequences that an engine holds at most, and whether slots or its cache say so."""
    slots = np.full_like(asked.prompt, bounds.max_num_seqs)
    cache = kv_users(asked, bounds)
    most, why = np.minimum(slots, cache), np.where(cache < slots, "kv", "slots")
    policy = bounds.policy
    if policy.prefill == "mixed" and not policy.chunked:
        # A whole prompt waits until enough tokens of a step are free.
        free = np.maximum(bounds.budget - asked.prompt, 1.0)
        binds = (asked.prompt < bounds.budget) & (free < most)
        most, why = np.where(binds, free, most), np.where(binds, "budget", why)
    return most, why


def _kv_share(asked: Asked, bounds: Bounds, running: Array) -> Array:
    room = bounds.blocks.capacity * bounds.blocks.block
    return np.minimum(running * kv_need(asked, bounds) / room, 1.0)


def closed_loop(
    asked: Asked, bounds: Bounds, times: ArraySteps, concurrency: Array, cycles: int
) -> State:
    """Users who each send the next request when the last one has ended."""
    most, why = held(asked, bounds)
    users = np.minimum(most, concurrency)
    field = MeanField(asked, bounds, times, users)
    seen = field.seen(field.meeting(None))
    service = seen.service_s(asked.output)
    waiting = concurrency - users
    rate = users / service
    queue = waiting / rate
    first, last = _first_and_last(field, seen)
    meets = sum(field.meeting(cycle) for cycle in range(1, cycles)) / max(cycles - 1, 1)
    among = field.seen(np.asarray(meets)) if cycles > 1 else seen
    # Users beyond those held wait for a whole cycle at first, then for as many as are before them.
    burst = first + waiting / concurrency * service * (waiting / users + 1) / 2
    ends = [burst] + [among.ttft_s + queue] * (cycles - 1)
    tpots = [among.tpot_s] * (cycles - 1) + [last]
    limit = np.where(field.steps.budget_use >= FULL, "budget", why)
    return State(
        ttft_s=seen.ttft_s + queue,
        tpot_s=seen.tpot_s,
        queue_s=seen.queue_s + queue,
        e2e_s=service + queue,
        requests_per_s=rate,
        running=users,
        utilisation=np.ones_like(users),
        kv_utilisation=_kv_share(asked, bounds, users),
        limited_by=np.where(
            (concurrency <= most) & (limit != "budget"), "concurrency", limit
        ),
        saturated=concurrency > most,
        ttft_burst_s=burst,
        bench_ttft_s=np.asarray(sum(ends) / cycles),
        bench_tpot_s=np.asarray(sum(tpots) / cycles),
    )


def _first_and_last(field: MeanField, seen: Seen) -> tuple[Array, Array]:
    """TTFT of the burst at the start, and TPOT while the last requests end.

    The last request of each user spends half of its time beside a batch that falls to nothing, of
    which it sees two thirds on average; half of the others' prompts are missing.
    """
    steps, users = field.steps, field.users
    left = np.maximum(steps.decoding * 5 / 6, np.minimum(steps.decoding, 1.0))
    beside = (users - 1) / np.maximum(steps.steps, 1.0) / 2
    return field.burst(), field.visit(left, beside, beside).tpot_s


def open_loop(asked: Asked, bounds: Bounds, times: ArraySteps, rate: Array) -> State:
    """Requests that come at a rate, whatever becomes of those before them.

    A request sees, beside itself, the mean of the others (arrivals see time averages); what it
    waits for a place is the wait of M/G/c as Allen and Cunneen give it from that of M/M/c (in the
    form of Sakasegawa, 1977), exact at one place.
    """
    most, why = held(asked, bounds)
    full = MeanField(asked, bounds, times, most)
    at_most = full.seen(1 / full.period)
    capacity = most / at_most.service_s(asked.output)
    saturated = rate >= capacity
    sent = np.minimum(rate, capacity)
    others = (most - 1) / most
    steps = full.steps.steps

    def batch(ends: Array) -> Array:
        """That a request decodes in, where so many others end in a step."""
        return np.minimum(1 + ends * steps, most)

    def excess(ends: Array) -> Array:
        return ends - sent * full.step(batch(ends * others), ends * others, ends * others)

    ends = others * bisected(excess, 2 * most / np.maximum(steps, 1.0) + 2)
    decoding = batch(ends)
    field = full.at(decoding, ends)
    alone = field.visit(decoding, ends, ends).service_s(asked.output)
    busy = 1 - (1 - np.minimum(sent * alone / most, 1.0)) ** most
    left = busy * others * field.residual(decoding, ends)
    seen = field.visit(decoding, 2 * sent * left, ends)
    service = seen.service_s(asked.output) + left
    running = np.where(saturated, most, np.minimum(sent * service, most))
    decodes = 1 - seen.ttft_s / service
    wait = _wait(sent / capacity, most, most / capacity, (asked.uneven - 1) * decodes**2)
    queue = np.where(saturated, np.inf, wait)
    limit = np.where(field.steps.budget_use >= FULL, "budget", why)
    nothing = np.full_like(rate, np.nan)
    return State(
        ttft_s=seen.ttft_s + left + queue,
        tpot_s=np.where(saturated, at_most.tpot_s, seen.tpot_s),
        queue_s=seen.queue_s + left + queue,
        e2e_s=service + queue,
        requests_per_s=sent,
        running=running,
        utilisation=np.where(saturated, 1.0, 1 - (1 - running / most) ** most),
        kv_utilisation=_kv_share(asked, bounds, running),
        limited_by=np.where(saturated, limit, "rate"),
        saturated=saturated,
        ttft_burst_s=nothing,
        bench_ttft_s=nothing,
        bench_tpot_s=nothing,
    )


def _wait(use: Array, places: Array, service_s: Array, spread: Array) -> Array:
    """Mean wait for one of ``places``, of which a share ``use`` is taken; infinite at 1."""
    free = 1 - np.minimum(use, 1.0)
    with np.errstate(divide="ignore"):
        waits = use ** (np.sqrt(2 * (places + 1)) - 1) / (places * free)
    result: Array = waits * service_s * (1 + spread) / 2
    return result


def drained(
    asked: Asked, bounds: Bounds, times: ArraySteps, concurrency: Array, cycles: int
) -> State:
    """Batches that run until all of their sequences have ended, under a closed loop.

    Every request of a batch is there when it begins. Slots fall as sequences end, or stay computed
    where the policy pads.
    """
    most, why = held(asked, bounds)
    users = np.minimum(most, concurrency)
    field = MeanField(asked, bounds, times, users)
    first = field.burst()
    room = np.maximum(field.prompts.per_step(0 * users), 1.0)
    turns = np.maximum(users / room, 1.0)
    prefill = first * 2 * turns / (turns + 1)
    ends, longest = _ends(asked, bounds, times, users)
    decode = np.mean(ends, axis=0)
    outputs = np.maximum(asked.outputs[:, None] * asked.output - 1, 1.0)
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
        queue_s=ttft - field.step_of_group(),
        e2e_s=e2e,
        requests_per_s=rate,
        running=users * (prefill + decode) / cycle,
        utilisation=np.ones_like(users),
        kv_utilisation=_kv_share(asked, bounds, users),
        limited_by=np.where(concurrency <= most, "concurrency", why),
        saturated=concurrency > most,
        ttft_burst_s=burst,
        bench_ttft_s=(burst + (cycles - 1) * ttft) / cycles,
        bench_tpot_s=tpot,
    )


def _ends(
    asked: Asked, bounds: Bounds, times: ArraySteps, users: Array
) -> tuple[Array, Array]:
    """When outputs end after a batch begins to decode, by quantile, and the batch's last."""
    shares = (np.arange(len(asked.outputs)) + 1) / len(asked.outputs)
    chance = np.diff(shares[:, None] ** users, axis=0, prepend=0.0)
    most = np.sum(chance * asked.outputs[:, None], axis=0)
    now, before, ends = 0 * users, 0 * users, []
    for share, output in zip(shares.tolist(), asked.outputs.tolist(), strict=True):
        upto = decode_steps(times, np.maximum(output * asked.output, 1.0))
        left = users if bounds.policy.padded else users * (1 - share + shares[0])
        context = asked.prompt + (before + upto) / 2 * times.tokens_per_step
        step = times.decode(np.maximum(left, 1.0), context)
        now, before = now + (upto - before) * step, upto
        ends.append(now)
    last = np.stack(ends)
    reached = most / asked.outputs[-1]
    longest = last[-1] * np.minimum(reached, 1.0)
    return np.minimum(last, np.where(users > 1, last, longest)), longest
