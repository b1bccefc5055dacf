"""What a mean field is asked: settings of demand, and the bounds of an engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.serving.blocks import Blocks
from perfmodel.serving.policy import Policy
from perfmodel.serving.pricing import Array


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

    @property
    def uneven(self) -> float:
        """E[O²]/E[O]²: 1 for equal outputs."""
        return float(np.mean(self.outputs**2))

    @property
    def context(self) -> Array:
        """Mean cached tokens of a decoding sequence: long outputs decode for longer."""
        return np.asarray(self.prompt + np.maximum(self.output * self.uneven / 2 - 1, 0.0))


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an engine holds at most."""

    policy: Policy
    max_num_seqs: int
    budget: int
    blocks: Blocks
