"""The steps of a closed loop: how many decode in each, and how many a prompt waits. No time enters.

Every decoding sequence ends after Z steps, so that of b sequences λ = b/Z end in a step, and as
many prompts come: A = b + λ·n, with n the steps of a prompt to its first token
(docs/mean-field.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.serving.pricing import Array
from perfmodel.serving.prompt_steps import PromptSteps, steps_to_first
from perfmodel.serving.roots import bisected
from perfmodel.serving.step_arrays import ArraySteps


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of an engine that holds ``users``, by setting."""

    users: Array
    decoding: Array
    """Sequences that decode, on average."""
    steps: Array
    """Z: steps in which a request decodes."""
    waits: Array
    """Steps from admission to the first token."""
    budget_use: Array
    """Share of the room for prompts that they fill."""


def decode_steps(times: ArraySteps, output: Array) -> Array:
    """Steps in which a sequence decodes: (O − 1)/tokens_per_step, the last one not in full use."""
    gained = times.tokens_per_step
    steps = (output - 1) / gained + (1 - 1 / gained) / 2
    result: Array = np.where(output > 1, np.maximum(steps, 1.0), 0.0)
    return result


def closed(prompts: PromptSteps, users: Array, steps: Array, again: Array) -> Steps:
    """The steps of ``users`` who each decode in ``steps`` of them.

    ``again``: prompts that are computed for a request beside its own.
    """
    if not prompts.mixes:
        return _apart(prompts, users, steps)
    others = (users - 1) / users

    def taken(ends: Array) -> tuple[Array, Array]:
        service = 1 / prompts.per_step(ends * steps)
        use = ends * service * (1 + again)
        waits = steps_to_first(service, np.minimum(use * others, 1.0))
        return np.where(use > 1, np.inf, waits), use

    ends = bisected(lambda at: at * (steps + taken(at)[0]) - users, 0 * users, users / (steps + 1))
    waits, use = taken(ends)
    fits = np.isclose(ends * (steps + waits), users, rtol=1e-5)  # else the budget is full
    return Steps(users, ends * steps, steps, np.where(fits, waits, users / ends - steps), use)


def _apart(prompts: PromptSteps, users: Array, steps: Array) -> Steps:
    """Where prompts go before: a decode step has all users.

    The budget's use is prompts per step of any kind over those that one holds: λ = A/Z prompts
    and a decode step take turns. Nobody decodes where outputs have one token: users go round
    through prompts' steps, each with as many as fit.
    """
    fit = prompts.per_step(0 * users)
    decodes = steps > 0
    decoding = np.where(decodes, users, 0.0)
    ends = users / np.maximum(steps, 1.0)
    turns = np.maximum(ends / fit, -np.expm1(-ends))
    use = np.where(decodes, ends / fit / (1 + turns), np.minimum(users / fit, 1.0))
    waits = np.where(decodes, 1.0, np.maximum(users / fit, 1.0))
    return Steps(users, decoding, steps, waits, use)
