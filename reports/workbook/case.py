"""What a workbook is made from: a plan, and estimates of each choice's steps and latencies."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np

import perfmodel
from perfmodel.errors import InputError
from perfmodel.inference.estimate import Estimate, estimate
from perfmodel.planning.capacity.answer import Choice, Plan
from perfmodel.planning.capacity.question import needs_of
from perfmodel.planning.capacity.requests import mean_tokens
from perfmodel.planning.capacity.sizing import Needs
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.workload import LARGEST, Workload

LENGTHS = (512, 2048, 8192, 32768)
"""Prompts of the latency table, beside the traffic's own mean."""
LARGEST_BATCH = 1024
"""Of the latency table, whose batches double from row to row."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A choice with what the model says of it."""

    number: int
    """From 1, in the plan's order."""
    choice: Choice
    label: str
    first: Estimate
    """One prompt of mean length: its prefill."""
    typical: Estimate
    """The batch that runs on average at the choice's load: its decode step."""
    batches: tuple[int, ...]
    prompts: tuple[int, ...]
    grid: Estimate
    """Latencies over prompts × batches."""

    @property
    def hardware(self) -> Hardware:
        """The accelerator."""
        return self.choice.hardware


@dataclass(frozen=True, slots=True)
class Case:
    """A plan with everything that its workbook shows."""

    plan: Plan
    facts: tuple[Facts, ...]
    prompt: float
    """Mean tokens of a request, over the classes."""
    output: float
    made: datetime
    version: str

    @property
    def hardware(self) -> tuple[Hardware, ...]:
        """Each accelerator once, in the order of the choices."""
        found = {facts.hardware.name: facts.hardware for facts in self.facts}
        return tuple(found.values())

    def needs(self, month: int, usd_per_gpu_hour: float) -> Needs:
        """What a fleet is sized for in a month."""
        return needs_of(self.plan.traffic, self.plan.terms, usd_per_gpu_hour, month)

    @property
    def busiest(self) -> float:
        """Requests per second in the first month's busiest hour."""
        return self.plan.traffic.peak_at(0)

    @property
    def mean_prompt(self) -> int:
        """The mean prompt in whole tokens."""
        return max(1, round(self.prompt))

    @property
    def mean_output(self) -> int:
        """The mean output in whole tokens."""
        return max(1, round(self.output))


def choice_label(number: int, choice: Choice) -> str:
    """A choice in a few words, its number first: no two are alike."""
    return f"{number} · {choice.gpus_per_replica} × {choice.hardware.name} · {choice.label}"


def _instance(choice: Choice) -> int:
    """Sequences that a step needs at least: one for each replica and micro-batch."""
    return choice.deployment.dp * choice.deployment.pp_microbatches


def _batches(choice: Choice) -> tuple[int, ...]:
    """Batches that double, from the least to what the deployment runs at once."""
    least = _instance(choice)
    most = (choice.deployment.max_num_seqs or LARGEST_BATCH) * choice.deployment.dp
    doubled = (least * 2**power for power in range(LARGEST_BATCH.bit_length()))
    return tuple(batch for batch in doubled if batch <= min(most, LARGEST_BATCH)) or (least,)


def _prompts(plan: Plan, prompt: int, output: int) -> tuple[int, ...]:
    longest = (plan.model.max_positions or LARGEST) - output
    return tuple(sorted({prompt, *(n for n in LENGTHS if n <= longest)}))


def _facts(plan: Plan, number: int, choice: Choice, prompt: int, output: int) -> Facts:
    def at(batch: object, prompts: object) -> Estimate:
        workload = Workload(batch=batch, prompt=prompts, output=output)
        return estimate(plan.model, choice.hardware, workload, choice.deployment)

    least = _instance(choice)
    running = max(1, round(choice.level.batch / least)) * least
    batches, prompts = _batches(choice), _prompts(plan, prompt, output)
    return Facts(
        number=number,
        choice=choice,
        label=choice_label(number, choice),
        first=at(least, prompt),
        typical=at(running, prompt),
        batches=batches,
        prompts=prompts,
        grid=at(np.array(batches), np.array(prompts)[:, None]),
    )


def case_of(plan: Plan, made: datetime) -> Case:
    """Estimates for every choice of a plan.

    Raises:
        InputError: the plan has no choice.
    """
    if not plan.choices:
        nearest = plan.nearest
        why = "" if nearest is None else f": {nearest.limit}; {nearest.would_do} would do"
        raise InputError(f"no deployment keeps the service levels, so nothing can be sized{why}")
    prompt, output = mean_tokens(plan.traffic)
    whole = max(1, round(prompt)), max(1, round(output))
    facts = tuple(
        _facts(plan, number, choice, *whole) for number, choice in enumerate(plan.choices, 1)
    )
    return Case(plan, facts, prompt, output, made, perfmodel.__version__)
