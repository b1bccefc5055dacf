"""One network's pass over prompts as a sum of groups, each read off a curve or a surface.

What runs once over all tokens depends on their number, head and sampling on the sequences,
attention and recurrences on sequences and new tokens (`serving.pricing`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perfmodel.inference.execution import ahead_of_device
from perfmodel.inference.overlap import hidden_s
from perfmodel.operators.quantity import Array, Quantity, maximum
from perfmodel.planning.sweep.places import Places
from perfmodel.planning.sweep.surface import Surface
from perfmodel.serving.pricing import Pricer

ONE = np.ones(1)
EXACT_TO = 32
"""Sequences up to which each number is a case of its own; attention goes smoothly over more."""
TOLERANCE = 1e-3
"""How far a line of attention may miss it inside a cell, as a share of the whole pass."""
CURVE_TOLERANCE = 5e-4
"""Of curves, which have one row: their points are cheap."""


@dataclass(frozen=True, slots=True)
class Network:
    """A network that reads prompts, and what it does beside its own operators."""

    pricer: Pricer
    launches: Quantity
    """Kernels of a pass."""
    before: Callable[[Quantity], Quantity] | None = None
    """Seconds of what joins a draft's inputs, for each number of tokens."""

    def shared(self, tokens: Quantity) -> tuple[Quantity, Quantity]:
        """What runs once over all tokens, and its exchanges."""
        return self.pricer.shared(tokens)


class PromptPass:
    """Seconds of a network's pass over prompts of equal length.

    Args:
        network: what is priced.
        sequences: of a replica: the numbers that are asked for.
        new: fewest and most new tokens of a sequence.
        cached: tokens of each that are in the cache before.
    """

    def __init__(
        self, network: Network, sequences: Array, new: tuple[float, float], cached: int
    ) -> None:
        pricer, plan = network.pricer, network.pricer.plan
        self._plan, self._overlap = plan, plan.deployment.comm_overlap
        low, high = int(new[0]) - 1, int(new[1]) - 1
        fewest = int(sequences[0] * new[0]) - 1
        most = int(sequences[-1] * new[1]) - 1
        self._shared = _curve(lambda tokens: network.shared(tokens)[0], fewest, most)
        self._sent = None
        if self._overlap:
            self._sent = _curve(lambda tokens: network.shared(tokens)[1], fewest, most)
        self._before = None
        if network.before is not None:
            self._before = _curve(network.before, fewest, most)
        self._attention = Surface(
            lambda rows, less: pricer.prompts(rows, less + 1, cached),
            sequences, low, high,
            lambda rows, less: self._over_tokens(rows * (less + 1)),
            tolerance=TOLERANCE, exact_to=EXACT_TO,
        )  # fmt: skip
        self._places = Places(sequences)
        head, sent = (_each(value, sequences) for value in pricer.head_parts(sequences))
        self._head, self._head_sent = head, sent
        self._serial = _each(pricer.serial_s(sequences), sequences)
        self._floor_s = pricer.floor_s
        self._issue_s = pricer.device.issue_s("eager") * network.launches

    def _over_tokens(self, tokens: Array) -> Array:
        """What runs once over all ``tokens``."""
        shape = tokens.shape
        less = np.ascontiguousarray(tokens).ravel() - 1
        return self._shared.values(self._shared.rows(ONE), less).reshape(shape)

    def seconds(self, sequences: Array, new: Array) -> Array:
        """Of ``sequences`` with ``new`` tokens each."""
        tokens = sequences * new
        place = self._places(sequences)
        attention = self._attention.values(self._attention.rows(sequences), new - 1)
        kernels = self._over_tokens(tokens) + self._head.take(place) + attention
        if self._sent is not None:
            sent = self._sent.values(self._sent.rows(ONE), tokens - 1)
            sent = sent + self._head_sent.take(place)
            kernels = kernels - hidden_s(self._overlap, sent, kernels - sent)
        issue = ahead_of_device(self._plan, tokens) * self._issue_s
        floor = maximum(self._floor_s, issue)
        whole = np.maximum(kernels + self._serial.take(place), floor)
        if self._before is not None:
            whole = whole + self._before.values(self._before.rows(ONE), tokens - 1)
        return np.asarray(whole)


def _each(value: Quantity, sequences: Array) -> Array:
    return np.ascontiguousarray(np.broadcast_to(np.asarray(value, np.float64), sequences.shape))


def _curve(price: Callable[[Quantity], Quantity], fewest: int, most: int) -> Surface:
    """Seconds over tokens less one: rows of a tile end at whole multiples."""
    return Surface(
        lambda _, less: price(less + 1), ONE, fewest, most, tolerance=CURVE_TOLERANCE, inner=3
    )  # fmt: skip
