"""What a full cache costs where room isn't held for outputs: sequences that lose theirs.

The sequences of an engine stand in the order in which they came. The cache holds the first of them,
as many as fit; when it is full the last one gives way, and it is the first to come back. An end
frees I + O tokens, which go to those behind; until the next end all that decode grow by O tokens
together, and what was given away is taken back. So for each request O tokens are computed again,
but for what grows in the step that is being filled: its room is kept. With λ ends in a step, at
Poisson times, ends with none before them in their step are e^−λ of all.
"""

from __future__ import annotations

import numpy as np

from perfmodel.serving.asked import Asked, Bounds
from perfmodel.serving.pricing import Array

OUTSIDE = 0.3
"""Sequences outside per √A and per prompt that is computed again. Fitted: the simulator gives 0.1
to 0.6 (docs/mean-field.md), least where outputs vary most."""


def recomputed(asked: Asked, bounds: Bounds, ends: Array) -> Array:
    """Prompts that a request has computed again in a full cache: O·e^−λ tokens of its others.

    ``ends``: λ, requests that end in a step, on its rank.
    """
    if bounds.policy.reserve > 0 or not bounds.blocks.grows:
        return 0 * ends
    return np.asarray(asked.output / asked.prompt * np.exp(-ends))


def evicted(users: Array, again: Array) -> Array:
    """Sequences that have lost their cache and wait, beside ``users`` that have theirs.

    How far the engine had reached down the line when it held most: further the smaller prompts are
    beside outputs, and as what many hold varies by √A.
    """
    result: Array = OUTSIDE * np.sqrt(users) * again
    return result
