"""What a mean field is asked: settings of demand, and the bounds of an engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.serving.blocks import Blocks
from perfmodel.serving.engine import Engine
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.policy import Policy
from perfmodel.serving.pricing import Array

QUANTILES = 160
"""By which the spread of lengths enters moments: few would cut the tail off."""
PROMPTS, OUTPUTS = 5, 16
"""Groups of them for which times are worked out."""


def relative(lengths: Lengths) -> tuple[float, Array]:
    """The mean length, and quantiles over it."""
    quantiles = lengths.quantiles(QUANTILES)
    mean = float(quantiles.mean())
    return mean, np.ones(1) if np.ptp(quantiles) == 0 else quantiles / mean


def _grouped(quantiles: Array, count: int) -> Array:
    if len(quantiles) <= count:
        return quantiles
    return np.asarray(quantiles.reshape(count, -1).mean(axis=1))


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked, one entry for each setting."""

    prompt: Array
    """Mean tokens of a prompt."""
    output: Array
    """Mean tokens that are generated."""
    prompts: Array
    """Prompts at even quantiles, over their mean; the same for all settings."""
    outputs: Array
    """Outputs likewise."""

    @classmethod
    def of(cls, prompt: Lengths, output: Lengths) -> Asked:
        """One setting."""
        (one, prompts), (other, outputs) = relative(prompt), relative(output)
        return cls(np.array([one]), np.array([other]), prompts, outputs)

    @property
    def few_prompts(self) -> Array:
        """As few prompts as a time is worked out for: means of groups of quantiles."""
        return _grouped(self.prompts, PROMPTS)

    @property
    def few_outputs(self) -> Array:
        """Outputs likewise."""
        return _grouped(self.outputs, OUTPUTS)

    @property
    def uneven(self) -> float:
        """E[O²]/E[O]²: 1 for equal outputs."""
        return float(np.mean(self.outputs**2))

    @property
    def spread(self) -> float:
        """Standard deviation of prompts over their mean."""
        return float(np.std(self.prompts))

    @property
    def per_token(self) -> Array:
        """E[1/(O − 1)] of outputs of two tokens or more: of a wait, what a mean TPOT has of it."""
        outputs = self.few_outputs[:, None] * self.output
        several = outputs > 1.5
        shares = np.where(several, 1 / np.maximum(outputs - 1, 1.0), 0.0)
        return np.asarray(shares.sum(axis=0) / np.maximum(several.sum(axis=0), 1))

    @property
    def context(self) -> Array:
        """Mean cached tokens of a decoding sequence: long outputs decode for longer."""
        return np.asarray(self.prompt + np.maximum(self.output * self.uneven / 2 - 1, 0.0))


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an engine holds at most, or each of its ranks."""

    policy: Policy
    max_num_seqs: int
    budget: int
    """Tokens of a step."""
    blocks: Blocks
    width: int = 1
    """Tokens that a decoding sequence puts into a step."""
    ranks: int = 1
    """Attention replicas that step together, each with bounds of its own."""

    @classmethod
    def of(cls, engine: Engine, width: int = 1) -> Bounds:
        """Those of an engine whose decoding sequences put ``width`` tokens into a step."""
        return cls(
            engine.policy, engine.max_num_seqs, engine.max_num_batched_tokens, engine.blocks(),
            width, engine.ranks,
        )  # fmt: skip
