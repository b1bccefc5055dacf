"""The steady state of an engine under a rate: its closed loops as one server of many speeds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.serving.admission import held, kv_share
from perfmodel.serving.asked import Asked, Bounds
from perfmodel.serving.mean_field import MeanField
from perfmodel.serving.pricing import Array
from perfmodel.serving.steady import State
from perfmodel.serving.step_arrays import ArraySteps

LEVELS = 10
"""Numbers of users at which throughput is worked out."""

BUSY = 0.75
"""Share of the most that is served from which on waits are known roughly, where requests decode."""
LEAST_BUSY = 0.4
"""The least part of `BUSY`, where prompts are most of a request: they queue alone."""


def _levels(most: Array) -> Array:
    """Numbers of users at which throughput is known: doubling, and the last two; (LEVELS, n)."""
    below = np.maximum(most - 1, 1.0)
    shares = np.linspace(0.0, 1.0, LEVELS - 1)[:, None]
    return np.concatenate([below**shares, most[None]])


def open_loop(asked: Asked, bounds: Bounds, times: ArraySteps, rate: Array) -> State:
    """Requests that come at a rate, whatever becomes of those before them.

    A flow-equivalent server (Chandy, Herzog and Woo, 1975): with n users inside, the engine ends
    X(n) requests per second, those of the closed loop of n users; with more than it holds, as many
    as with the most. The chance of n users is then that of a birth-death process with births at
    ``rate``. A request that comes while steps run waits for the end of one, and isn't running yet;
    what is in the queue is scaled from exponential services to the spread of these by (1 + c²)/2,
    exact at one place.
    """
    most, why = held(asked, bounds)
    cache = np.asarray(why == "kv")
    at = [_at_level(asked, bounds, times, users, most, cache) for users in _levels(most)]
    users, ttft, queue, tpot, service = (np.stack(parts) for parts in zip(*at, strict=True))
    through = users / service
    capacity = through[-1]
    saturated = rate >= capacity
    sent = np.minimum(rate, capacity)
    chance, inside, waiting, idle = _occupancy(users, through, sent)
    # Requests that end, by the number inside: those beyond the most have left the queue.
    ended = chance / np.sum(chance, axis=0)
    ttft_s, queue_s, tpot_s, service_s = (
        np.sum(ended * part, axis=0) for part in (ttft, queue, tpot, service)
    )
    decodes = 1 - ttft_s / service_s
    spread = (1 + (asked.uneven - 1) * decodes**2) / 2
    wait = np.where(saturated, np.inf, waiting / sent * spread)
    running = np.where(saturated, most, np.maximum(inside - sent * queue_s, 0.0))
    nothing = np.full_like(rate, np.nan)
    return State(
        ttft_s=ttft_s + wait,
        tpot_s=np.where(saturated, tpot[-1], tpot_s),
        queue_s=queue_s + wait,
        e2e_s=service_s + wait,
        requests_per_s=sent,
        running=running,
        utilisation=np.where(saturated, 1.0, 1 - idle),
        kv_utilisation=kv_share(asked, bounds, running),
        limited_by=np.where(saturated, why, "rate"),
        saturated=saturated,
        near_limit=rate >= BUSY * capacity * np.maximum(decodes, LEAST_BUSY),
        ttft_burst_s=nothing,
        bench_ttft_s=nothing,
        bench_tpot_s=nothing,
    )


def _at_level(
    asked: Asked,
    bounds: Bounds,
    times: ArraySteps,
    users: Array,
    most: Array,
    cache: NDArray[np.bool_],
) -> tuple[Array, Array, Array, Array, Array]:
    """Of ``users`` whom the engine serves: their number, TTFT, wait, TPOT and time in the engine.

    Those who wait for the end of a step are inside too, beside the users that a closed loop has in
    its steps: they take nothing of its throughput. Of time spent decoding the wait is counted
    among the steps instead, which makes up for prompts that come burstier than a closed loop's.
    """
    field = MeanField(asked, bounds, times, users, np.where(cache & (users >= most), 1.0, 0.0))
    seen = field.seen(1 / field.period)
    # Into a full engine requests come when others end, into an idle one at once.
    comes = (users > 1) & (users < most)
    left = np.where(comes, field.residual(), 0.0)
    ttft, queue = seen.ttft_s + left, seen.queue_s + left
    service = seen.service_s(asked.output)
    more = (1 + left / service) ** (seen.ttft_s / service)
    inside = np.minimum(users * more, (users + most) / 2)
    return inside, ttft, queue, seen.tpot_s, service + left


def _occupancy(users: Array, through: Array, rate: Array) -> tuple[Array, Array, Array, Array]:
    """How many are inside and wait, of a birth-death process.

    Returns the share of ends at each level, the mean inside, the mean waiting, and the chance that
    nobody is there. Throughput is interpolated between levels in the logarithm of the users.
    """
    most = users[-1]
    count = np.arange(1.0, np.max(most) + 1)
    ended, inside, waiting, idle = (np.zeros((len(users), len(most))), *np.zeros((3, len(most))))
    for i in range(len(most)):
        here = count[: int(most[i])]
        levels = np.unique(users[:, i], return_index=True)
        logs = np.log(levels[0])
        speed = np.exp(np.interp(np.log(here), logs, np.log(through[levels[1], i])))
        weight = np.cumsum(np.log(rate[i] / speed))
        top = max(float(weight.max()), 0.0)
        weight, none = np.exp(weight - top), np.exp(-top)
        use = min(rate[i] / speed[-1], 1.0 - 1e-9)
        beyond = weight[-1] * use / (1 - use)
        whole = none + weight.sum() + beyond
        inside[i] = (here @ weight + here[-1] * beyond) / whole
        waiting[i] = beyond / (1 - use) / whole
        idle[i] = none / whole
        ends = weight * speed
        ends[-1] += beyond * speed[-1]
        near = np.interp(np.log(here), logs, np.arange(len(logs)))
        low = np.minimum(near.astype(int), max(len(logs) - 2, 0))
        share = near - low
        np.add.at(ended[:, i], levels[1][low], ends * (1 - share))
        np.add.at(ended[:, i], levels[1][np.minimum(low + 1, len(logs) - 1)], ends * share)
    return ended, inside, waiting, idle
