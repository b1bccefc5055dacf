"""From the folder of a `calibrate run` to calibrated sets, by forms that a few rows fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from calibrate.run_rows import Measured
from calibrate.small_sets import calibrate_small
from calibrate.write import FittedSet
from perfmodel.kernels.calibration_file import form_facts
from perfmodel.kernels.forms.base import Chip, Form
from perfmodel.kernels.forms.elementwise import ElementwiseForm
from perfmodel.kernels.forms.launch import LaunchForm
from perfmodel.kernels.forms.smooth import SmoothGemm, SmoothGrouped
from perfmodel.kernels.forms.smooth_attention import SmoothAttention
from perfmodel.specs.hardware import Hardware

FEWEST = 5
"""Rows without which a set isn't fitted (a launch needs one)."""
ARITHMETIC = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "int8": "int8",
              "int4_wo": "bf16", "fp8": "fp8"}  # fmt: skip
WIDTHS = {
    "float32": (4.0, 4.0, 4.0), "int8": (1.0, 1.0, 4.0), "int4_wo": (2.0, 0.5 + 4 / 128, 2.0),
    "fp8": (1.0, 1.0, 2.0),
}  # fmt: skip
"""Bytes of an input's, a weight's and an output's element, where they aren't two."""


def smooth_form(family: str, dtype: str, *, clocked: bool = True) -> Form:
    """The form of a family that needs no knowledge of the library's tiles.

    ``clocked``: times by the host's clock, which hold the launch, as a CPU's do.
    """
    inputs, weights, outputs = WIDTHS.get(dtype, (2.0, 2.0, 2.0))
    if family == "gemm":
        return SmoothGemm(inputs, weights, outputs)
    if family == "grouped_gemm":
        return SmoothGrouped(weights, inputs)
    if family == "elementwise":
        return ElementwiseForm(paged=clocked, value_bytes=inputs)
    if family == "launch":
        return LaunchForm(held=clocked)
    return SmoothAttention(causal=family == "attention_prefill", value_bytes=inputs)


def chip_of(family: str, dtype: str, hardware: Hardware) -> tuple[Chip, str] | None:
    """The device's constants for a set, and its arithmetic; None where it has no such path."""
    arithmetic = "none" if family in ("elementwise", "launch") else ARITHMETIC.get(dtype, dtype)
    peak = 1.0 if arithmetic == "none" else hardware.peak(arithmetic)
    if peak is None:
        return None
    return Chip.of(hardware, peak), arithmetic


def fit_run(
    measured: Mapping[str, Measured],
    hardware: Hardware,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, FittedSet], dict[str, str]]:
    """Fit every set that has rows enough; beside them the others with the reason for none."""
    sets: dict[str, FittedSet] = {}
    without: dict[str, str] = {}
    for name, rows in measured.items():
        found = chip_of(rows.family, rows.dtype, hardware)
        if found is None:
            without[name] = f"{hardware.name} has no peak for {rows.dtype}"
            continue
        if len(rows) < FEWEST and name != "launch":
            without[name] = f"{len(rows)} rows are too few"
            continue
        chip, arithmetic = found
        form = smooth_form(rows.family, rows.dtype, clocked=rows.clocked)
        calibrated, scores = calibrate_small(form, chip, rows.shapes, rows.seconds)
        sets[name] = FittedSet(calibrated, form_facts(form), arithmetic, rows.kernel, scores)
        progress(name)
    return sets, without
