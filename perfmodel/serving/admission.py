"""How many sequences an engine holds in a steady state: by slots, its cache, or a step's tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.serving.asked import Asked, Bounds
from perfmodel.serving.pricing import Array


def kv_need(asked: Asked, bounds: Bounds) -> Array:
    """Tokens of cache that must be there for a sequence, on average over its time in the engine.

    A policy that holds nothing for outputs fills the cache with I + O/2; one that needs a share r
    of what is still to come, I + (1 + r)·O/2; E[O²]/E[O] stands for O, because long ones stay.
    Half a block is lost at the end.
    """
    blocks = bounds.blocks
    length = asked.prompt + asked.output
    tokens = asked.prompt + asked.output * asked.uneven * (1 + bounds.policy.reserve) / 2
    fixed = np.array([blocks.fixed_of(int(item)) for item in length.tolist()])
    grown = tokens + (blocks.block - 1) / 2 if blocks.grows else 0 * tokens
    result: Array = grown + fixed * blocks.block
    return result


def kv_users(asked: Asked, bounds: Bounds) -> Array:
    """Sequences that the cache holds: whole ones where room is held from the start."""
    need = np.maximum(kv_need(asked, bounds), 1e-300)
    with np.errstate(over="ignore"):
        held = bounds.blocks.capacity * bounds.blocks.block / need
    if bounds.policy.reserve == 1 or not bounds.blocks.grows:
        held = np.floor(held)
    return np.maximum(held, 1.0)


def held(asked: Asked, bounds: Bounds) -> tuple[Array, NDArray[np.str_]]:
    """Sequences that an engine holds at most, and whether slots or its cache say so."""
    slots = np.full_like(asked.prompt, bounds.max_num_seqs)
    cache = kv_users(asked, bounds)
    most = np.minimum(slots, cache)
    why: NDArray[np.str_] = np.where(cache < slots, "kv", "slots")
    policy = bounds.policy
    if policy.prefill == "mixed" and not policy.chunked:
        # A whole prompt waits until enough tokens of a step are free.
        free = np.maximum(bounds.budget - asked.prompt, 1.0)
        binds = (asked.prompt <= bounds.budget) & (free < most)
        most, why = np.where(binds, free, most), np.where(binds, "budget", why)
    return most, why


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


def admitted(asked: Asked, bounds: Bounds, concurrency: Array) -> Admitted:
    """How many of ``concurrency`` users are in the engine on average.

    Where sequences grow into the cache, what n of them hold varies with a standard deviation of √n
    times that of one, so that near the limit some wait: E[min(C, M)] of a normal M, by softplus,
    which has the normal's mean excess 0.399·σ at C = M; its slope is the chance of M < C.
    """
    most, why = held(asked, bounds)
    users = np.minimum(most, concurrency)
    if bounds.policy.reserve == 1 or not bounds.blocks.grows:
        return Admitted(users, most, why, 0 * users)
    grown = asked.output**2 * asked.uneven / 12
    spread = np.sqrt(grown + asked.prompt**2 * float(np.var(asked.prompts)))
    sigma = np.sqrt(most) * spread / kv_need(asked, bounds)
    scale = np.maximum(0.399 / np.log(2) * sigma, 1e-9)
    beyond = np.clip((concurrency - most) / scale, -500.0, 500.0)
    near = concurrency - scale * np.logaddexp(0.0, (concurrency - most) / scale)
    binds = why == "kv"
    users = np.where(binds, np.minimum(np.maximum(near, 1.0), most), users)
    return Admitted(users, most, why, np.where(binds, 1 / (1 + np.exp(-beyond)), 0.0))


def kv_share(asked: Asked, bounds: Bounds, running: Array) -> Array:
    """Share of the cache that ``running`` sequences take, with what is kept free for outputs."""
    room = bounds.blocks.capacity * bounds.blocks.block
    return np.minimum(running * kv_need(asked, bounds) / room, 1.0)
