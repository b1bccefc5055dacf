"""What a report's sliders move over: a grid of batches and prompts, estimated ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InputError
from perfmodel.inference.estimate import Estimate, estimate
from perfmodel.inference.roofline import DeviceRoofline, Mark, roofline
from perfmodel.operators.record import Phase as PhaseName
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload

SHORTEST_PROMPT = 128
LONGEST_PROMPT = 2**17
"""Tokens up to which prompts are looked at where a longer one isn't asked for."""
Over = Literal["batch", "prompt"]
MOST_CHUNKS = 1024
"""Prefill steps of a prompt up to which prompts are looked at."""


@dataclass(frozen=True, slots=True)
class Case:
    """What was asked for; batch, prompt and output are numbers."""

    model: Model
    hardware: Hardware
    workload: Workload
    deployment: Deployment
    roofline_only: bool = False

    def estimate(self) -> Estimate:
        """The answer.

        Raises:
            InputError: as `perfmodel.estimate`.
        """
        return estimate(
            self.model, self.hardware, self.workload, self.deployment,
            roofline_only=self.roofline_only,
        )  # fmt: skip

    def at(self, batch: Any, prompt: int) -> Workload:
        """The workload with another batch and prompt."""
        return self.workload.model_copy(update={"batch": batch, "prompt": prompt})

    def works(self, batch: int, prompt: int) -> bool:
        """Whether layout and cache allow that batch and prompt, fitting or not."""
        work = self.at(batch, prompt)
        try:
            estimate(self.model, self.hardware, work, self.deployment)
        except InputError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Part:
    """Several batches at one prompt."""

    prompt: int
    batches: tuple[int, ...]
    roofline: DeviceRoofline
    """Its estimate and its marks run over the batches."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Every batch with every prompt. A setting is numbered by prompt, then batch."""

    batches: tuple[int, ...]
    prompts: tuple[int, ...]
    parts: tuple[Part, ...]
    asked: int
    """The number of the setting that was asked for."""

    @property
    def size(self) -> int:
        """How many settings there are."""
        return len(self.batches) * len(self.prompts)

    def at(self, setting: int) -> tuple[int, int]:
        """Batch and prompt of a setting."""
        prompt, batch = divmod(setting, len(self.batches))
        return self.batches[batch], self.prompts[prompt]

    def line(self, setting: int, over: Over) -> range:
        """The settings with the same prompt (over the batches), or with the same batch."""
        prompt, batch = divmod(setting, len(self.batches))
        if over == "batch":
            return range(prompt * len(self.batches), (prompt + 1) * len(self.batches))
        return range(batch, self.size, len(self.batches))

    def values(self, of: Callable[[Estimate], Any]) -> NDArray[Any]:
        """A quantity of the estimates, one for each setting."""
        return np.concatenate(
            [np.broadcast_to(of(p.roofline.estimate), (len(p.batches),)) for p in self.parts]
        )

    def pairs(self, of: Callable[[Estimate], tuple[Any, Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Two ends of a quantity, each with one value for each setting."""
        return self.values(lambda e: of(e)[0]), self.values(lambda e: of(e)[1])

    def interval(self, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """The 90 % interval of a quantity that has one."""
        return self.pairs(lambda e: e.interval(name))

    def fits(self) -> NDArray[np.bool_]:
        """Whether the memory holds each setting."""
        return self.values(lambda e: e.memory.fits)

    def marks(self, phase: PhaseName) -> list[tuple[Mark, ...]]:
        """A phase's operators in each setting."""
        return [p.roofline.of(phase, at) for p in self.parts for at in range(len(p.batches))]


def make_grid(case: Case, asked: Estimate) -> Grid:
    """The settings around a case, its own among them; ``asked`` is its estimate.

    Stops are powers of two: batches up to the first that doesn't fit at the prompt that was asked
    for, prompts up to the model's length or the first that no batch fits at.

    Raises:
        InputError: not even the setting that was asked for can be estimated.
    """
    batch, prompt = int(case.workload.batch), int(case.workload.prompt)
    batches, prompts = _batches(asked), _prompts(asked)
    try:
        return _grid(case, asked, batches, prompts)
    except InputError:
        # A rule of the layout or the cache refuses some of them, whichever they are.
        batches = tuple(b for b in batches if case.works(b, prompt))
        prompts = tuple(p for p in prompts if case.works(batch, p))
    try:
        return _grid(case, asked, batches, prompts)
    except InputError:
        return _grid(case, asked, (batch,), (prompt,))


def _powers(low: int, high: int, asked: int) -> tuple[int, ...]:
    """Powers of two from ``low`` to ``high``, and ``asked`` among them."""
    found = {2**power for power in range(25) if low <= 2**power <= high}
    return tuple(sorted(found | {asked}))


def _own_limit(asked: Estimate) -> int:
    """The batch beyond which an engine's start-up run grows with it, and so the memory taken."""
    return asked.plan.parallel.dp * asked.plan.own_max_num_seqs


def _batches(asked: Estimate) -> tuple[int, ...]:
    plan, batch = asked.plan, int(asked.workload.batch)
    first_too_many = 2 ** int(np.ceil(np.log2(float(asked.memory.max_sequences) + 1)))
    least = plan.parallel.dp * plan.deployment.pp_microbatches
    return _powers(least, max(min(_own_limit(asked), first_too_many), batch), batch)


def _prompts(asked: Estimate) -> tuple[int, ...]:
    work, prompt = asked.workload, int(asked.workload.prompt)
    lengths = (asked.model.max_positions, asked.plan.deployment.max_model_len, LONGEST_PROMPT)
    most = min(length for length in lengths if length is not None) - int(work.output)
    if work.prefill_chunk is not None:
        most = min(most, MOST_CHUNKS * int(work.prefill_chunk))
    least = max(SHORTEST_PROMPT, int(work.cached_prefix) + asked.plan.parallel.cp)
    stops = _powers(least, most, prompt)
    # The longest is worth a stop of its own where the last power of two is far from it.
    return (*stops, most) if most > max(1.5 * stops[-1], least) else stops


def _grid(case: Case, asked: Estimate, batches: Sequence[int], prompts: Sequence[int]) -> Grid:
    batch, prompt = int(case.workload.batch), int(case.workload.prompt)
    limit = _own_limit(asked)
    # All batches of one estimate share the engine's limits, which follow the largest.
    groups = [tuple(b for b in batches if b <= limit), *((b,) for b in batches if b > limit)]
    parts: list[Part] = []
    shown: list[int] = []
    for length in prompts:
        own = [_part(case, group, length) for group in groups if group]
        parts += own
        shown.append(length)
        full = not any(np.any(part.roofline.estimate.memory.fits) for part in own)
        if full and length >= prompt:
            break
    at = shown.index(prompt) * len(batches) + list(batches).index(batch)
    return Grid(tuple(batches), tuple(shown), tuple(parts), at)


def _part(case: Case, batches: tuple[int, ...], prompt: int) -> Part:
    found = roofline(
        case.model, case.hardware, case.at(np.asarray(batches), prompt), case.deployment,
        roofline_only=case.roofline_only,
    )  # fmt: skip
    return Part(prompt, batches, found.devices[0])
