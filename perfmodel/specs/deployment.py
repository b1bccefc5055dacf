"""How a model is run: parallel layout, number formats, engine settings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from perfmodel.errors import UnknownNameError
from perfmodel.specs.base import Case, bounded, share, whole_number
from perfmodel.specs.cache_formats import KINDS, cache_format
from perfmodel.specs.formats import FILE_TYPES, FORMATS, number_format
from perfmodel.specs.speculation import Speculation

Ranks = Annotated[int, whole_number(1, 65_536)]
Fraction = Annotated[float, Field(ge=0, le=1)]


def _known_format(name: Any) -> Any:
    """A number format's name as given, or ``auto`` in any case."""
    if not isinstance(name, str):
        return name
    if name.strip().lower() == "auto":
        return "auto"
    try:
        for part in name.split("+"):  # a checkpoint of several formats is named by all of them
            if part.strip().lower() not in FILE_TYPES:
                number_format(part.strip())
    except UnknownNameError:
        known = ", ".join(["auto", *dict.fromkeys([*FORMATS, *FILE_TYPES])])
        problem = f"unknown number format {name[:40]!r}; known: {known}"
        raise PydanticCustomError("format", "{problem}", {"problem": problem}) from None
    return name.strip()


def _known_cache(name: Any) -> Any:
    """A cache format's name as given, or ``auto`` in any case."""
    if not isinstance(name, str):
        return name
    if name.strip().lower() == "auto":
        return "auto"
    try:
        cache_format(name)
    except UnknownNameError:
        problem = f"no cache is stored in {name[:40]!r}; known: auto, bf16, {KINDS}"
        raise PydanticCustomError("format", "{problem}", {"problem": problem}) from None
    return name.strip()


Format = Annotated[str, BeforeValidator(_known_format)]
CacheName = Annotated[str, BeforeValidator(_known_cache)]


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
    cp: Ranks = 1
    """Ranks that share each prompt's tokens and its cache, with the same weights each."""
    dcp: Ranks = 1
    """Tensor-parallel ranks that share the cache of one KV head by tokens, not by copies."""
    pp_microbatches: Ranks = 1
    """Micro-batches in flight over the pipeline stages; 1: one batch passes them in turn."""
    sequence_parallel: bool = False
    """Reduce-scatter and all-gather for each all-reduce: norms run on 1/tp of the tokens."""
    expert_skew: Annotated[float, bounded(0.0, 4.0)] = 0.0
    """Exponent of the experts' popularity by rank (Zipf); 0: all alike."""
    comm_overlap: Annotated[float, bounded(0.0, 1.0)] = 0.0
    """Share of a step's exchanges that may run behind its other kernels."""
    gpus_per_node: Annotated[int | None, whole_number(1, 65_536)] = None
    """GPUs that reach each other without the network; the profile's link domain where None."""
    weights: Format = "auto"
    """Format of the weights. ``auto``, or the checkpoint's own format by name (``int4`` for any
    ``int4_g32``), is the checkpoint, with what it spares. Another name applies to every linear
    layer and expert; embedding, head, router and norms keep 16 bits. ``bf16`` dequantises all.
    ``q4_k_m``, ``q4_0`` and ``q8_0`` are GGUF files, with their own head and table."""
    activations: Format = "auto"
    """Format of the quantised layers' inputs; ``auto``: as the checkpoint states, else as the
    weights where the chip multiplies them."""
    kv_cache: CacheName = "auto"
    """Format of cached keys and values, a name of `perfmodel.specs.cache_formats`; ``auto``: the
    checkpoint's, else 16 bits."""
    communication: Format = "auto"
    """Format of what GPUs exchange; ``auto``: 16 bits. Tokens go to their experts in the experts'
    input format where that is narrower."""
    engine: str = "vllm"
    """An engine's name or YAML file: host time, kernels, memory reserve and default limits."""
    stack: str | None = None
    """The calibration's stack (``vllm``, ``torch``, …), or a file that `calibrate fit` wrote; None:
    the first that the hardware has; ``generic``: assumed shares of the datasheet's rates."""
    execution: Literal["graph", "eager"] | None = None
    """Kernels replayed from a captured graph, or launched one by one; the engine's where None."""
    graph_batch: Annotated[int | None, whole_number(1, 2**20)] = None
    """The largest decode batch that is captured, in what the engine counts; its own where None."""
    attention: Literal["fused", "unfused", "flash2", "flash3"] | None = None
    """Whether the attention kernel keeps its scores on chip; as the engine does where None.
    ``fused`` is the kernel that was measured; ``flash2`` and ``flash3`` name FlashAttention's."""
    fusion: Literal["none", "engine", "full"] = "engine"
    """Elementwise passes: each a kernel of its own, joined as serving engines' hand-written kernels
    do, or as a compiler that fuses every neighbouring pass would (`operators.fusion`)."""
    kv_layout: Literal["paged", "contiguous", "flat"] | None = None
    """Blocks of ``block_size``; a reserved length per sequence; or exactly what is stored."""
    block_size: Annotated[int | None, whole_number(1, 2**20)] = None
    """Tokens in a block of the paged cache; the engine's default where None."""
    max_model_len: Annotated[int | None, whole_number(1, 2**31)] = None
    """Length reserved for each sequence by the contiguous layout; the model's where None."""
    kv_manager: Literal["ideal", "hybrid", "uniform"] = "ideal"
    """Who hands out the blocks of layers that keep different lengths: a pool for each layer;
    vLLM's groups of equal pages; or one pool in which windows are stored like full attention."""
    kv_sinks: Annotated[int | None, whole_number(0, 2**20)] = None
    """StreamingLLM: first tokens that full attention keeps beside ``kv_window``; 4 where None."""
    kv_window: Annotated[int | None, whole_number(1, 2**24)] = None
    """StreamingLLM: last tokens that full attention keeps, the new one included."""
    kv_budget: Annotated[int | None, whole_number(1, 2**24)] = None
    """Eviction (H2O, SnapKV): tokens that full attention keeps once the prompt is read."""
    kv_offload: Fraction = 0.0
    """Share of the cached keys and values that lies outside the device and is read each step."""
    kv_offload_to: Literal["host", "ssd"] = "host"
    """Where it lies: in host memory, reached over PCIe, or on an SSD behind it."""
    ssd_gb_s: Annotated[float | None, Field(gt=0, le=10_000)] = None
    """What one device's share of the SSDs delivers, and takes, in GB/s. Never assumed."""
    cpu_offload_gb: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """GiB of each device's weights that lie in host memory and are read in each pass."""
    offload_overlap: Fraction = 0.0
    """Share of a step's transfers that runs beside its kernels: 0 adds them, 1 takes the longer."""
    gpu_memory_utilization: Annotated[float | None, share()] = None
    """Share of the device memory that the engine may use."""
    max_num_seqs: Annotated[int | None, whole_number(1, 2**20)] = None
    max_num_batched_tokens: Annotated[int | None, whole_number(1, 2**24)] = None
    speculation: Speculation | None = None
    """Speculative decoding; None: one token per step and sequence."""
