"""Which GEMM form describes vLLM's kernels of a number format on a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.errors import InputError
from perfmodel.kernels.forms.base import Chip, Shapes
from perfmodel.kernels.forms.gemm import GemmForm
from perfmodel.kernels.forms.gemm_tiles import LIBRARIES
from perfmodel.specs.hardware import Hardware


@dataclass(frozen=True, slots=True)
class Format:
    """A number format as kernels of matrix multiplies see it."""

    arithmetic: str
    """Whose peak rate bounds it: a name that `Hardware.peak` knows."""
    input_bytes: float
    weight_bytes: float
    quantises_input: bool


FORMATS = {
    "bfloat16": Format("bf16", 2.0, 2.0, quantises_input=False),
    "float16": Format("fp16", 2.0, 2.0, quantises_input=False),
    "fp8": Format("fp8", 1.0, 1.0, quantises_input=True),
    # A float32 scale for 1×128 inputs and for 128×128 weights.
    "fp8_block": Format("fp8", 1 + 4 / 128, 1 + 4 / 128**2, quantises_input=True),
    # An FP8 scale for 16 elements of either.
    "nvfp4": Format("fp4", 0.5 + 1 / 16, 0.5 + 1 / 16, quantises_input=True),
}
"""By the names of the measured tables."""


def gemm_form(dtype: str, hardware: Hardware) -> GemmForm:
    """The form of the measured rows: operands warm, the input's quantisation in the time.

    `GemmForm.in_step` turns it into the form of a call inside a model's step.

    Raises:
        InputError: a format that isn't among `FORMATS`.
    """
    form = _format(dtype)
    return GemmForm(
        input_bytes=form.input_bytes,
        weight_bytes=form.weight_bytes,
        quantises_input=form.quantises_input,
        waits_for_host=dtype == "fp8_block",
        library=_library(dtype, hardware),
    )


def gemm_chip(dtype: str, hardware: Hardware) -> Chip:
    """The datasheet's constants for a multiply in ``dtype``.

    Raises:
        InputError: an unknown format, or a device without a rate for it.
    """
    arithmetic = _format(dtype).arithmetic
    peak = hardware.peak(arithmetic)
    if peak is None:
        raise InputError(f"{hardware.name} has no {arithmetic} path, which {dtype} multiplies need")
    return Chip.of(hardware, peak)


def block_kernel(hardware: Hardware, shapes: Shapes) -> list[str]:
    """The kernel of block-wise FP8 that vLLM 0.24 takes for each shape (n,).

    Read off the measured rows, which it explains without exception: Triton before Hopper; CUTLASS
    where n < 64 or k < 128; else on Hopper FlashInfer's up to m = 31, and DeepGEMM for the rest.
    """
    m, n, k = np.broadcast_arrays(*(np.atleast_1d(shapes[name]) for name in ("m", "n", "k")))
    capability = _capability(hardware)
    if capability < 90:
        return ["triton"] * len(m)
    large = np.where((m < 32) & (capability < 100), "flashinfer", "deepgemm")
    return [str(name) for name in np.where((n < 64) | (k < 128), "cutlass", large)]


def _format(dtype: str) -> Format:
    if dtype not in FORMATS:
        raise InputError(f"no GEMM format is called {dtype!r:.40}; known: {', '.join(FORMATS)}")
    return FORMATS[dtype]


def _library(dtype: str, hardware: Hardware) -> str:
    if dtype in ("nvfp4", "fp8_block"):
        return "unsplit"
    if dtype != "fp8":
        return "cublas"
    capability = _capability(hardware)
    name = f"vllm-sm{capability // 10}{capability % 10}" if capability else ""
    return name if name in LIBRARIES else "unsplit"


def _capability(hardware: Hardware) -> int:
    """CUDA's compute capability × 10; 0 for other devices."""
    stated = (hardware.compute_capability or "").split(".")
    return int("".join(stated)) if len(stated) == 2 and all(map(str.isdigit, stated)) else 0
