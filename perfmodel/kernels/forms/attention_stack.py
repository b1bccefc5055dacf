"""Which forms of attention describe vLLM's kernels on a device, by the type of its cache."""

from __future__ import annotations

from typing import Literal

from perfmodel.errors import InputError
from perfmodel.kernels.forms import mla
from perfmodel.kernels.forms.attention_decode import AttentionDecode
from perfmodel.kernels.forms.attention_parts import Kernel
from perfmodel.kernels.forms.attention_prefill import AttentionPrefill
from perfmodel.kernels.forms.base import Chip, Form
from perfmodel.specs.hardware import Hardware

Family = Literal["attention_decode", "attention_prefill", "mla_decode", "mla_prefill"]
KV_BYTES = {"bfloat16": 2.0, "float16": 2.0, "fp8": 1.0}
"""Bytes of a cached element, by the names of the measured tables."""
WIDE: dict[str, Kernel] = {
    "8.0": "fa2", "8.6": "fa2", "8.9": "fa2", "9.0": "fa3", "10.0": "trtllm", "10.3": "trtllm",
    "12.0": "fa2", "12.1": "fa2",
}  # fmt: skip
"""Kernels for 16-bit caches by CUDA's compute capability, as the measured rows name them; 12.x,
which isn't among them, as 8.9."""
NARROW: dict[str, Kernel] = WIDE | {"8.0": "any", "8.6": "flashinfer", "8.9": "flashinfer"}
"""Kernels for fp8 caches."""
SMALL = ("8.6", "8.9", "12.0", "12.1")
"""Capabilities with 100 KB of shared memory, where FlashAttention-2 takes smaller tiles."""


def attention_form(
    family: Family, kv_dtype: str, hardware: Hardware, *, cold: bool = False
) -> Form:
    """The form of a family's kernels for a cache of ``kv_dtype``.

    ``cold``: keys come from device memory, as in a model's step, without the floor that calls
    launched one by one have; measured rows are warm.

    Raises:
        InputError: a cache type that isn't among `KV_BYTES`.
    """
    narrow = kv_bytes(kv_dtype) < 2
    capability = hardware.compute_capability or ""
    if family == "mla_decode":
        return mla.MlaDecode(kernel=_mla_kernel(capability, narrow), hosted=not cold)
    if family == "mla_prefill":
        return mla.MlaPrefill(kernel=_mla_kernel(capability, narrow), hosted=not cold)
    kernel = (NARROW if narrow else WIDE).get(capability, "any")
    if family == "attention_prefill":
        return AttentionPrefill(cold=cold, kernel=kernel, small=capability in SMALL)
    return AttentionDecode(cold=cold, kernel=kernel)


def attention_chip(family: Family, kv_dtype: str, hardware: Hardware) -> Chip:
    """The datasheet's constants: kernels that read fp8 keys multiply in fp8 from Hopper on.

    Those of MLA multiply in bf16 for either cache.

    Raises:
        InputError: an unknown cache type, or a device without the multiply.
    """
    own = family.startswith("attention") and kv_bytes(kv_dtype) < 2
    capability = hardware.compute_capability or ""
    narrow = own and NARROW.get(capability) in ("fa3", "trtllm")
    peak = hardware.peak("fp8" if narrow else "bf16")
    if peak is None:
        raise InputError(f"{hardware.name} has no multiply for attention over a {kv_dtype} cache")
    return Chip.of(hardware, peak)


def kv_bytes(kv_dtype: str) -> float:
    """Bytes of a cached element.

    Raises:
        InputError: a cache type that isn't among `KV_BYTES`.
    """
    if kv_dtype not in KV_BYTES:
        raise InputError(f"no cache type is called {kv_dtype!r:.40}; known: {', '.join(KV_BYTES)}")
    return KV_BYTES[kv_dtype]


def _mla_kernel(capability: str, narrow: bool) -> mla.Kernel:
    if capability != "9.0":
        return "triton"
    return "flashmla" if narrow else "flash_attn"
