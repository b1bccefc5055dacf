"""What users see in a steady state, without simulating it: a mean field over whole steps.

Every decoding sequence ends after Z = (O − 1)/tokens_per_step steps, so that of b sequences
λ = b/Z end in a step, and as many prompts come. Where users wait for their answers, those steps
close on themselves: A = b + λ·n, with n the steps that a prompt takes to its first token. No time
enters; the times of steps follow once b and λ are known. docs/mean-field.md derives it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.serving.asked import Asked, Bounds
from perfmodel.serving.closed_steps import closed, decode_steps
from perfmodel.serving.eviction import evicted, recomputed
from perfmodel.serving.pricing import Array
from perfmodel.serving.prompt_steps import PromptSteps, arriving, meeting
from perfmodel.serving.step_arrays import ArraySteps


@dataclass(frozen=True, slots=True)
class Seen:
    """What a request sees once it is admitted, in seconds."""

    ttft_s: Array
    queue_s: Array
    """Before its prompt's first step."""
    tpot_s: Array

    def service_s(self, output: Array) -> Array:
        """From admission to the last token."""
        decodes = np.where(output > 1, self.tpot_s * (output - 1), 0.0)
        return np.asarray(self.ttft_s + decodes)


class MeanField:
    """Users of one engine that has room for all of them.

    Args:
        asked: the requests.
        bounds: of the engine; its policy mixes prompts with decoding, or runs them alone.
        times: of its steps.
        users: in the engine, by setting.
        full: chance that its cache is full.
    """

    def __init__(
        self,
        asked: Asked,
        bounds: Bounds,
        times: ArraySteps,
        users: Array,
        full: float | Array = 0.0,
    ) -> None:
        self.asked = asked
        self.times = times
        self.users = users
        self.ranks = ranks = bounds.ranks
        self.prompts = PromptSteps(
            times, bounds.policy, bounds.budget, asked.prompt, users, asked.spread, ranks
        )
        self.apart = not self.prompts.mixes
        steps = decode_steps(times, asked.output)
        ends = users / np.maximum(steps, 1.0) / ranks
        self.again = full * recomputed(asked, bounds, ends)
        """Prompts that are computed for a request beside its own: of those who lost their cache."""
        self.evicted = ranks * evicted(users / ranks, self.again)
        """Sequences that decoded, lost their cache and wait for another."""
        self.steps = closed(self.prompts, users, steps, self.again)

    @property
    def period(self) -> Array:
        """Steps from one request of a user to the next; of decode steps, where prompts go apart."""
        steps = self.steps.steps + (0.0 if self.apart else self.steps.waits)
        return np.asarray(np.maximum(steps, 1.0))

    def meeting(self, cycles: int | None) -> Array:
        """Chance that another user's prompt comes in the same step as one's own."""
        group = np.maximum(self.prompts.per_step(0 * self.users), 1.0)
        if self.apart:  # all are prefilled before any decodes
            group = np.maximum(self.users, 1.0)
        return meeting(self.users, self.period, group, self.asked.uneven, cycles)

    def residual(self) -> Array:
        """What is left of the step in progress when a request comes at any time: E[t²]/2E[t]."""
        decoding, context = self.steps.decoding, self.asked.context
        count, weights = arriving(self.users / self.period)
        decode = self.times.decode(decoding, context)
        if self.apart:
            step = self.prompts.step(0 * decoding, context, count)
            whole = decode + np.sum(weights * step, axis=0)
            return np.asarray((decode**2 + np.sum(weights * step**2, axis=0)) / (2 * whole))
        step = self.prompts.step(decoding, context, count)
        whole = np.sum(weights * step, axis=0)
        return np.asarray(np.sum(weights * step**2, axis=0) / (2 * whole))

    def seen(self, meets: Array) -> Seen:
        """What a request sees if each other user's prompt meets its own with chance ``meets``."""
        steps, others = self.steps, self.users - 1
        passed = np.maximum(self.period - 1, 1.0)
        decoding = steps.decoding
        if not self.apart:  # its own one decodes for certain
            decoding = np.where(steps.steps > 0, 1 + decoding * others / self.users, 0.0)
        beside = others * (1 - meets) / passed
        return self.visit(decoding, others * meets, beside)

    def visit(self, decoding: Array, met: Array, beside: Array) -> Seen:
        """What a request sees beside ``decoding`` sequences (its own among them).

        ``met``: others' prompts in its own prompt's step; ``beside``: in each step that it decodes.
        """
        if self.apart:
            first, queue = self._in_groups(met)
        else:
            first, queue = self._first_token(decoding, met)
        first, queue = self._in_turn(first, queue)
        steps, output = self.steps.steps, self.asked.output
        step = self.step(decoding, beside, met)
        spent = steps * step
        if self.apart:
            # None comes after its last step; but it waits for those of its group that come after
            # it, as long on average as for those before.
            spent = spent - (step - self.times.decode(decoding, self.asked.context)) + queue
        tpot = np.where(output > 1, spent / np.maximum(output - 1, 1.0), np.nan)
        return Seen(first, queue, tpot)

    def step(self, decoding: Array, prompts: Array, met: Array) -> Array:
        """Mean seconds from one token to the next, with a mean of ``prompts`` prompts between.

        A prompt shares its step with Poisson ``met`` others, so that a step has k ≥ 1 of them with
        chance prompts/met·Poisson(k; met): Poisson(prompts) where prompts are independent and met
        as many, and fewer, fuller steps where users are in step.
        """
        context = self.asked.context
        decode = self.times.decode(decoding, context)
        met = np.maximum(met, 1e-6)
        count, weights = arriving(met)
        # What ends leave is filled by those who lost their cache: on one rank, in fuller steps.
        filled, times = count * (1 + self.again), 1 + 0 * self.again
        if self.ranks > 1:
            filled, times = count, 1 + self.again
        if self.apart:
            added = self.prompts.step(0 * decoding, context, filled)
            idle = (1 - 1 / self.ranks) ** count  # chance that a rank has no prompt, and decodes
            added = added - idle * np.minimum(decode, added)
        else:
            added = self.prompts.step(decoding, context, filled) - decode
        rate = times * prompts / met
        return np.asarray(decode + rate * np.sum(weights * added, axis=0))

    def _own(self, decoding: Array, met: Array) -> Array:
        """One's own prompt's step, beside Poisson ``met`` others, over the lengths of prompts."""
        count, weights = arriving(met)
        if not self.apart:  # one's own doesn't decode, nor do those that it meets
            decoding = np.clip(self.users - 1 - count, 0.0, decoding)
        together = np.maximum(self.prompts.per_step(decoding), 1.0)
        seconds = 0 * met
        for length in self.asked.few_prompts.tolist():
            group = np.minimum(count, np.maximum(together - length, 0.0)) + length
            step = self.prompts.step(decoding, self.asked.context, group)
            seconds = seconds + np.sum(weights * step, axis=0)
        return seconds / len(self.asked.few_prompts)

    def _first_token(self, decoding: Array, met: Array) -> tuple[Array, Array]:
        """Time to a first token among mixed steps, and what of it lies before one's own prompt.

        Steps before one's own are full. Of a prompt in several chunks the last step is filled by
        others as far as there are some.
        """
        context, waits = self.asked.context, self.steps.waits
        fit = self.prompts.per_step(decoding)
        full = self.prompts.step(decoding, context, np.maximum(fit, 1.0))
        queue = np.maximum(waits - 1, 0.0) * full
        first = queue + self._own(decoding, met)
        split = fit < 1
        if not np.any(split):
            return first, queue
        alone = self.times.decode(decoding, context)
        extra = self.prompts.split(decoding, context) * fit
        whole = np.ceil(1 / fit - 1e-9)
        idle = (whole - 1 / fit) * (1 - np.minimum(met / fit, 1.0))
        chunked = waits * alone + extra * np.maximum(waits - idle, 1 / fit)
        waited = np.maximum(waits - whole, 0.0) * (alone + extra)
        return np.where(split, chunked, first), np.where(split, waited, queue)

    def _in_groups(self, met: Array) -> tuple[Array, Array]:
        """Time to a first token in steps of prompts alone; one's place in the group is anywhere."""
        nobody, context = 0 * met, self.asked.context
        count, weights = arriving(met)
        together = np.maximum(self.prompts.per_step(nobody), 1.0)
        full = self.prompts.step(nobody, context, together)
        turns = np.maximum(((count + 1) / together + 1) / 2, 1.0) - 1
        queue = np.sum(weights * turns, axis=0) * full
        return queue + self._own(nobody, met), queue

    def _in_turn(self, first: Array, queue: Array) -> tuple[Array, Array]:
        """The same where outputs have one token: one's turn comes after all others'."""
        single = self.steps.steps == 0
        if not np.any(single):
            return first, queue
        nobody, fit = 0 * self.users, self.prompts.per_step(0 * self.users)
        full = self.prompts.step(nobody, self.asked.prompt, np.minimum(self.users, fit))
        own = self.prompts.step(
            nobody, self.asked.prompt, np.minimum(self.users, np.maximum(fit, 1.0))
        )
        turn = self.users / fit * full
        return np.where(single, np.maximum(turn, own), first), np.where(
            single, np.maximum(turn - own, 0.0), queue
        )

    def groups(self) -> tuple[Array, Array]:
        """Prompts of all users in steps of their own: mean time to a first token, and to the last.

        n full steps of K prompts, and one of the rest.
        """
        users, nobody = self.users, 0 * self.users
        fit = np.maximum(self.prompts.per_step(nobody), 1.0)
        full = self.prompts.step(nobody, self.asked.prompt, fit)
        count = np.floor(users / fit + 1e-9)
        left = users - count * fit
        last = count * full + self.prompts.step(nobody, self.asked.prompt, left)
        early = fit * full * count * (count + 1) / 2
        return (early + left * last) / users, np.where(left > 1e-6, last, count * full)

    def burst(self) -> Array:
        """Mean time to a first token where all users send at once to an idle engine.

        The prompts fill a step after the other; where they mix, half of the sequences decode beside
        the middle one.
        """
        users = self.users
        apart = self.groups()[0]
        if self.apart:
            return apart
        room = np.maximum(self.prompts.per_step(0 * users), 1.0)
        fit = np.maximum(self.prompts.per_step(users / 2), 1.0)
        middle = self.prompts.step(users / 2, self.asked.prompt, fit)
        return np.asarray(np.where(users <= room, apart, middle * (users / fit + 1) / 2))
