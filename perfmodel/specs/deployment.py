"""How a model is run: parallel layout, number formats, engine settings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from perfmodel.specs.base import Case

Ranks = Annotated[int, Field(ge=1, le=65_536)]


class Deployment(Case):
    """Settings of one deployment. ``auto`` takes the checkpoint's or the engine's own."""

    tp: Ranks = 1
    """Tensor-parallel ranks."""
    pp: Ranks = 1
    """Pipeline stages."""
    ep: Ranks = 1
    """Ranks that the experts are spread over."""
    dp: Ranks = 1
    """Replicas that share the batch."""
    weights: str = "auto"
    """Format of the linear layers' weights; embedding, head, router and norms keep 16 bits."""
    activations: str = "auto"
    """Format of the linear layers' inputs."""
    kv_cache: str = "auto"
    """Format of cached keys and values."""
    engine: str = "vllm"
    """An engine's name or YAML file: host time, kernels, memory reserve and default limits."""
    stack: str | None = None
    """The calibration's stack (``vllm``, ``torch``, …), or a file that `calibrate fit` wrote; None:
    the first that the hardware has; ``generic``: assumed shares of the datasheet's rates."""
    execution: Literal["graph", "eager"] = "graph"
    """Kernels replayed from a captured graph, or launched one by one."""
    attention: Literal["fused", "unfused"] | None = None
    """Whether the attention kernel keeps its scores on chip; as the engine does where None."""
    kv_layout: Literal["paged", "contiguous", "flat"] | None = None
    """Blocks of ``block_size``; a reserved length per sequence; or exactly what is stored."""
    block_size: Annotated[int, Field(ge=1, le=2**20)] | None = None
    """Tokens in a block of the paged cache; the engine's default where None."""
    max_model_len: Annotated[int, Field(ge=1, le=2**31)] | None = None
    """Length reserved for each sequence by the contiguous layout; the model's where None."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the device memory that the engine may use."""
    max_num_seqs: Annotated[int, Field(ge=1, le=2**20)] | None = None
    max_num_batched_tokens: Annotated[int, Field(ge=1, le=2**24)] | None = None
