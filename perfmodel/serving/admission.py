"""How many sequences an engine holds in a steady state: by slots, its cache, or a step's tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.serving.asked import Asked, Bounds
from perfmodel.serving.head_of_line import highest, waiting
from perfmodel.serving.pricing import Array
from perfmodel.serving.whole import whole

NEAR, SIGMAS = 0.3, 3.0
"""How near to what its cache holds users make an answer rough: as a share, by its deviations."""
LONG = 1.0
"""Outputs over prompts from which on sequences that lose their cache wait for long."""
WAIT = 0.002
"""Share of users behind prompts that wait for their step from which on the answer is rough."""


def kv_need(asked: Asked, bounds: Bounds) -> Array:
    """Tokens of cache that must be there for a sequence, on average over its time in the engine.

    A policy that holds nothing for outputs fills the cache with I + O/2; one that needs a share r
    of what is still to come, I + (1 + r)·O/2; E[O²]/E[O] stands for O, because long ones stay.
    Half a block is lost at the end.
    """
    blocks = bounds.blocks
    tokens = asked.prompt + asked.output * asked.uneven * (1 + bounds.policy.reserve) / 2
    return np.asarray(tokens * float(blocks.grows) + _beside(asked, bounds))


def _beside(asked: Asked, bounds: Bounds) -> Array:
    """Tokens' room that a sequence takes beside its tokens: states, half of the last block."""
    blocks = bounds.blocks
    length = asked.prompt + asked.output
    fixed = np.array([blocks.fixed_of(int(item)) for item in length.tolist()])
    last = np.full_like(length, (blocks.block - 1) / 2)
    if bounds.policy.reserve == 1 and len(asked.prompts) == len(asked.outputs) == 1:
        last = -length % blocks.block  # all alike, and held as a whole
    result: Array = fixed * blocks.block + last * float(blocks.grows)
    return result


def kv_spread(asked: Asked, bounds: Bounds) -> Array:
    """Standard deviation of what a sequence in the engine holds, over its mean.

    It holds I + r·O + (1 − r)·G with G of its O outputs generated, G even in 0 … O, and O as of
    those inside: long ones stay.
    """
    reserve, blocks = bounds.policy.reserve, bounds.blocks
    second, third = asked.uneven, float(np.mean(asked.outputs**3))
    outputs = (third - second**2) * ((1 + reserve) / 2) ** 2 + third * (1 - reserve) ** 2 / 12
    prompts = asked.prompt**2 * float(np.var(asked.prompts))
    held: Array = np.sqrt(prompts + asked.output**2 * max(outputs, 0.0)) * float(blocks.grows)
    return held / np.maximum(kv_need(asked, bounds), 1e-300)


def kv_users(asked: Asked, bounds: Bounds) -> Array:
    """Sequences that a rank's cache holds, but for the room that the next one waits for.

    Where room is held from the start, as many whole ones as fit. Else what is left over is half of
    what the next one asks for, a long one more likely than a short one.
    """
    need = np.maximum(kv_need(asked, bounds), 1e-300)
    with np.errstate(over="ignore"):
        fit = bounds.blocks.capacity * bounds.blocks.block / need
    if bounds.policy.reserve == 1 or not bounds.blocks.grows:
        return whole(fit, kv_spread(asked, bounds))
    asks = asked.prompt + bounds.policy.reserve * asked.output + _beside(asked, bounds)
    spread = float(np.mean(asked.prompts**2))
    return np.asarray(np.maximum(fit - asks * spread / (2 * need), 1.0))


def held(asked: Asked, bounds: Bounds) -> tuple[Array, NDArray[np.str_]]:
    """Sequences that an engine holds at most, and whether slots, its cache or a step say so.

    Each rank holds whole ones.
    """
    slots = np.full_like(asked.prompt, bounds.max_num_seqs)
    cache = kv_users(asked, bounds)
    most = np.minimum(slots, cache)
    why: NDArray[np.str_] = np.where(cache < slots, "kv", "slots")
    if _whole_beside(bounds):
        high = np.where(asked.output > 1, highest(asked, bounds, most), most)
        why, most = np.where(high < most, "budget", why), high
    return bounds.ranks * most, why


def _whole_beside(bounds: Bounds) -> bool:
    """Whether whole prompts share steps with decoding sequences."""
    return bounds.policy.prefill == "mixed" and not bounds.policy.chunked


@dataclass(frozen=True, slots=True)
class Admitted:
    """Users in the engine, by setting."""

    users: Array
    most: Array
    """That it holds."""
    why: NDArray[np.str_]
    """What says so."""
    full: Array
    """Chance that its cache is full."""
    near: NDArray[np.bool_]
    """So near a limit that what waits is known roughly: see `near_limit`."""


def admitted(asked: Asked, bounds: Bounds, concurrency: Array) -> Admitted:
    """How many of ``concurrency`` users are in the engine on average.

    What n of them hold varies with a standard deviation of √n times that of one, so that near the
    limit some wait: E[min(C, M)] of a normal M, by softplus, which has the normal's mean excess
    0.399·σ at C = M; its slope is the chance of M < C. Behind a prompt that waits for its step some
    wait as well. All that on each rank, which has its part of the users.
    """
    ranks = bounds.ranks
    most, why = held(asked, bounds)
    most, concurrency = most / ranks, concurrency / ranks
    sigma = np.sqrt(most) * kv_spread(asked, bounds)
    scale = np.maximum(0.399 / np.log(2) * sigma, 1e-9)
    beyond = np.clip((concurrency - most) / scale, -500.0, 500.0)
    near = concurrency - scale * np.logaddexp(0.0, beyond)
    binds = why == "kv"
    users = np.minimum(most, concurrency)
    users = np.where(binds, np.minimum(np.maximum(near, 1.0), users), users)
    outside = 0 * users
    if _whole_beside(bounds):
        outside = np.where(asked.output > 1, waiting(asked, bounds, users), 0.0)
        # With many more users a batch is filled beyond `highest` until a prompt doesn't fit:
        # half of what it lacks below, for very many (1.13·√R beside 0.94·√R, prompts even over R).
        above = np.minimum(most / concurrency, 1.0)
        outside = np.where(why == "budget", outside * (1 + above) / 2, outside)
    evicts = bounds.policy.reserve < 1 and bounds.blocks.grows
    full = np.where(binds & evicts, 1 / (1 + np.exp(-beyond)), 0.0)
    near = near_limit(asked, bounds, concurrency / most, sigma / most, binds)
    near = near | (outside > WAIT * users)
    return Admitted(ranks * (users - outside), ranks * most, why, full, near)


def near_limit(
    asked: Asked, bounds: Bounds, share: Array, sigma: Array, binds: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Where the cache limits and waits are known roughly, by what the simulator gives.

    Args:
        asked: the requests.
        bounds: of the engine.
        share: users over the most that it holds.
        sigma: standard deviation of what it holds at most, over its mean.
        binds: whether it is the cache that limits.
    """
    near = np.abs(share - 1) <= np.maximum(NEAR, SIGMAS * sigma)
    if bounds.policy.reserve == 0:
        near = near | ((share > 1 - NEAR) & (asked.output > LONG * asked.prompt))
    return np.asarray(binds & near)


def kv_share(asked: Asked, bounds: Bounds, running: Array) -> Array:
    """Share of the caches that ``running`` sequences take, with what is kept free for outputs."""
    room = bounds.ranks * bounds.blocks.capacity * bounds.blocks.block
    return np.minimum(running * kv_need(asked, bounds) / room, 1.0)
