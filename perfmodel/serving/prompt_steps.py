"""What prompts add to the steps of a steady state: how many share a step, and what it then takes.

With b sequences decoding a step has room for c = budget − b·width prompt tokens (the whole budget
where prompts have steps of their own), so for K = c/I prompts of I tokens: whole ones where prompts
aren't split, and fewer than one where a prompt takes several steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from perfmodel.serving.policy import Policy
from perfmodel.serving.pricing import Array
from perfmodel.serving.step_arrays import ArraySteps
from perfmodel.serving.whole import whole

NODES = 10
"""Numbers of prompts in a step over which a step's time is averaged."""
FEW = 3.0
"""Mean prompts of a step up to which their number is taken as it is, 0 to NODES − 1."""
MANY = 16.0
"""Prompts at which the attention of several is priced; it is taken to be linear in them."""


def arriving(mean: Array) -> tuple[Array, Array]:
    """Numbers of prompts that meet in a step, and their weights: Poisson with ``mean``.

    Shapes (NODES, settings). Few are taken one by one; of many, the nodes of Gauss-Hermite
    quadrature over the normal distribution of the same mean and variance.
    """
    count = np.arange(NODES, dtype=np.float64)[:, None]
    small = np.minimum(mean, FEW)
    weights = small**count / np.cumprod(np.maximum(count, 1.0), axis=0)
    weights = weights / weights.sum(axis=0)
    points, shares = np.polynomial.hermite_e.hermegauss(NODES)
    many = np.maximum(mean + np.sqrt(mean) * points[:, None], 0.0)
    return np.where(mean > FEW, many, count), np.where(
        mean > FEW, (shares / shares.sum())[:, None], weights
    )


@dataclass(frozen=True, slots=True)
class PromptSteps:
    """Steps with prompts of ``prompt`` tokens.

    Args:
        times: of steps.
        policy: how steps are filled.
        budget: tokens of a step at most, on one rank.
        prompt: tokens of a prompt, by setting.
        beside: sequences that decode at most, by setting: of the chunks whose attention is priced.
        spread: standard deviation of prompts over their mean.
        ranks: attention replicas that step together; whole prompts fit each of them.
    """

    times: ArraySteps
    policy: Policy
    budget: float
    prompt: Array
    beside: Array
    spread: float = 0.0
    ranks: int = 1
    one: Array = field(init=False)
    """Seconds of one prompt's attention, in all its chunks."""
    more: Array = field(init=False)
    """Seconds of a further prompt's in the same step."""

    def __post_init__(self) -> None:
        attention, size = self.times.attention, self.prompt
        several = np.clip(np.floor(self.per_step(self.beside)), 2.0, MANY)
        one = self._whole_prompt()
        together = attention(several, size, np.zeros_like(size))
        more = np.where(self.per_step(self.beside) >= 2, (together - one) / (several - 1), one)
        object.__setattr__(self, "one", one)
        object.__setattr__(self, "more", np.maximum(more, 0.0))

    def _whole_prompt(self) -> Array:
        """Attention of a prompt in its chunks: the full ones as the mean of the first and last."""
        size, attention = self.prompt, self.times.attention
        one = np.ones_like(size)
        room = self.room(self.beside)
        if not self.policy.chunked or np.all(size <= room):
            return attention(one, size, 0 * size)
        chunk = np.minimum(room, size)
        full = np.ceil(size / chunk) - 1
        last = size - full * chunk
        ends = attention(one, chunk, 0 * size)
        ends = ends + attention(one, chunk, np.maximum(full - 1, 0) * chunk)
        return full * ends / 2 + attention(one, last, full * chunk)

    @property
    def mixes(self) -> bool:
        """Whether prompts share steps with decoding sequences."""
        return self.policy.prefill == "mixed"

    def room(self, sequences: Array) -> Array:
        """Prompt tokens that a step beside ``sequences`` holds, on all ranks."""
        budget = self.ranks * self.budget
        if not self.mixes:
            return np.full_like(self.prompt, budget)
        return np.maximum(budget - sequences * self.times.width, 1.0)

    def per_step(self, sequences: Array) -> Array:
        """Prompts that fit into a step."""
        fit = self.room(sequences) / self.prompt
        return fit if self.policy.chunked else self.ranks * whole(fit / self.ranks, self.spread)

    def step(self, sequences: Array, each: Array, count: Array) -> Array:
        """Seconds for ``count`` prompts beside ``sequences``: of as many steps as they fill.

        Steps beyond the first are charged without what the decoding sequences alone take.
        """
        fit = self.per_step(sequences)
        alone = self._alone(sequences, each)
        together = np.maximum(fit, 1.0)
        held = np.minimum(count, together)
        first = self._step(sequences, each, held)
        full = self._step(sequences, each, together)
        several = first + np.maximum(count - together, 0.0) / together * (full - alone)
        split = fit < 1
        if not np.any(split):
            return several
        result: Array = np.where(split, alone + count * self.split(sequences, each), several)
        return result

    def _alone(self, sequences: Array, each: Array) -> Array:
        decodes = self.times.decode(np.maximum(sequences, 0.0), each)
        result: Array = np.where(sequences > 0, decodes, 0.0)
        return result

    def _step(self, sequences: Array, each: Array, count: Array) -> Array:
        attention = np.minimum(count, 1.0) * self.one + np.maximum(count - 1, 0.0) * self.more
        seconds = self.times.mixed(sequences, each, count * self.prompt, attention, count)
        result: Array = np.where(count > 0, seconds, self._alone(sequences, each))
        return result

    def split(self, sequences: Array, each: Array) -> Array:
        """Seconds that a prompt in several chunks adds to the steps that it shares."""
        chunk = np.minimum(self.room(sequences), self.prompt)
        full = np.ceil(self.prompt / chunk) - 1
        last = self.prompt - full * chunk
        alone = self._alone(sequences, each)
        own = self.one / (full + 1)
        ends = np.minimum(1.0, last / chunk)
        middle = self.times.mixed(sequences, each, chunk, own, 0 * chunk) - alone
        final = self.times.mixed(sequences, each, last, own, ends / ends) - alone
        result: Array = full * middle + final
        return result


def steps_to_first(service: Array, load: Array) -> Array:
    """Steps from a prompt's arrival at a step's start to its first token.

    A slotted queue with constant service: a prompt needs ``service`` = 1/K steps, and the prompts
    of others, k in a step, fill a share ``load`` = E[k]/K of the room. What is left over at a
    step's end, L prompts, makes each wait L/E[k] steps more (Little).

    K ≥ 1: E[(k − K)+] is left over from one step, 1/(1 − ρ) of that from all; at least what is
    exact for K = 1, ρ/2·(1/(1 − ρ) − K), and never more than ρ/(2(1 − ρ)) (Kingman).
    K < 1: the wait ρ·s/(2(1 − ρ)) of M/D/1 (Pollaczek and Khinchine), after which the last step is
    half full on average; a prompt that doesn't wait takes whole steps.
    """
    free = np.maximum(1.0 - load, 1e-9)
    room = np.maximum(1 / service, 1.0)
    mean = np.maximum(load * room, 1e-12)
    met, weights = arriving(mean)
    over = np.sum(weights * np.maximum(met - room, 0.0), axis=0)
    stays = np.maximum(over / free, load / 2 * (1 / free - room))
    short = 1 + np.minimum(stays, load / 2 / free) / mean
    whole = np.ceil(service - 1e-9)
    split = (1 - load) * whole + load * (service + 0.5 * (whole > service))
    long = split + load * service / (2 * free)
    result: Array = np.where(service <= 1, short, long)
    return result


def meeting(users: Array, steps: Array, group: Array, uneven: float, cycles: int | None) -> Array:
    """Chance that two users' prompts meet in one step, ``cycles`` after they began together.

    They begin in groups of ``group`` per step, and each cycle of ``steps`` moves two users apart
    by the spread of their outputs, σ² = 2·Var. At first a normal density of that width, then, once
    it is as wide as the cycle, evenly over it (its Fourier series' first terms). Equal outputs keep
    users together for ever. ``cycles`` None: long after.
    """
    together = np.minimum(group / users, 1.0)
    even = 1 / np.maximum(steps, 1.0)
    if uneven - 1 < 1e-9:
        return np.maximum(together, even)
    if cycles is None:
        return even
    apart = 2 * cycles * (uneven - 1)  # in cycles, squared
    near = 1 / np.sqrt(together**-2.0 + 2 * np.pi * apart * steps**2)
    waves = sum(np.exp(-2 * (np.pi * j) ** 2 * apart) for j in (1, 2, 3))
    result: Array = np.where(apart > 0.08, even * (1 + 2 * waves), np.maximum(near, even))
    return np.minimum(np.maximum(result, even), np.maximum(together, even))
