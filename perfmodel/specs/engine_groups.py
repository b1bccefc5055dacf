"""Groups of an engine preset: scheduler, captured graphs, defaults that depend on the device."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from perfmodel.specs.base import Spec
from perfmodel.units import GIB, MIB

Gib = Annotated[float, Field(ge=0, le=1024)]
Mib = Annotated[float, Field(ge=0, le=2**20)]
Whole = Annotated[int, Field(ge=1, le=2**24)]
Policy = Literal[
    "prefill_first",
    "chunked_mixed",
    "inflight_no_evict",
    "inflight_max_utilisation",
    "static",
    "single",
]


class Limits(Spec):
    """What one step of the engine takes at most."""

    max_num_seqs: Whole
    max_num_batched_tokens: Whole


class LimitChoice(Spec):
    """Default limits by the size of the device."""

    large: Limits
    small: Limits


class Tier(Spec):
    """Defaults of devices of a size or name; the first tier that a device matches holds."""

    from_gib: Gib = 0.0
    """Least device memory."""
    devices: tuple[str, ...] = Field(default=(), strict=False)
    """Words of which the device's name has one; empty: any device."""
    limits: Limits
    graph_batch: Whole | None = None
    """Largest captured decode batch; as ``graph.decode_batch`` where None."""
    graph_batch_tp4: Whole | None = None
    """The same from four tensor-parallel ranks on."""

    def matches(self, name: str, capacity_bytes: int) -> bool:
        """Whether a device of this name and size is of the tier."""
        named = not self.devices or any(word.lower() in name.lower() for word in self.devices)
        return named and capacity_bytes >= self.from_gib * GIB


class Scheduler(Spec):
    """How the engine fills its steps. For a simulation of its queues; an estimate has none."""

    policy: Policy
    """``prefill_first``: steps of prompts alone go before decode steps. ``chunked_mixed``: decode
    tokens first, chunks of prompts in the rest of the budget. ``inflight_no_evict``: whole prompts
    join running decodes, admitted only if they can finish; ``inflight_max_utilisation``: admitted
    while blocks are free, paused when they run out. ``static``: a batch starts and ends together.
    ``single``: one sequence at a time."""
    chunked_prefill: bool
    """Whether a prompt may be spread over steps by default."""
    prefix_caching: bool
    """Whether the cache of earlier prompts is kept and found again by default."""
    reserve: Literal["as_grown", "estimated", "whole", "context"]
    """Cache that a sequence must find free to be admitted: its prompt, blocks following as it
    grows; a running estimate of its output; prompt and longest output; the whole context."""
    source: str


class GraphUse(Spec):
    """Which steps replay captured graphs, and what launching the others costs."""

    counted: bool = False
    """False: the host's and kernels' numbers were fitted on whole steps as if all were captured,
    so what launching costs is in them, and nothing is added."""
    decode: bool = True
    """Whether decode steps are captured by default."""
    decode_batch: Whole | None = None
    """Largest captured decode batch; kernels of larger ones are launched one by one. None: any."""
    prefill_tokens: Annotated[int, Field(ge=0, le=2**24)] = 0
    """Largest captured prefill step in tokens. The host launches larger ones ahead of the device,
    so that they take at least as long as their launches."""
    launch_us: Annotated[float, Field(ge=0, le=1e6)] | None = None
    """What a launch outside a graph adds to a kernel beyond one inside; None: the calibration's."""
    source: str = "assumed: none stated, so every step is priced as captured"


class StaticReserve(Spec):
    """Memory kept free of weights and cache, where it follows from the device and the limits.

    fixed + token · max(tokens, least tokens) + graph batch · its size + GPU · GPUs, and at least a
    least on devices from a size on.
    """

    fixed_mib: Mib
    token_mib: Mib
    least_tokens: Whole
    graph_batch_mib: Mib
    gpu_mib: Mib
    least_mib: Mib
    least_from_gib: Gib
    source: str

    def utilisation(self, capacity_bytes: int, tokens: int, graph_batch: int, gpus: int) -> float:
        """The share that weights and cache may use, to three digits as the engine rounds it."""
        mib = self.fixed_mib + self.token_mib * max(tokens, self.least_tokens)
        mib += self.graph_batch_mib * graph_batch + self.gpu_mib * gpus
        if capacity_bytes > self.least_from_gib * GIB:
            mib = max(mib, self.least_mib)
        return max(round(1 - mib * MIB / capacity_bytes, 3), 0.001)
