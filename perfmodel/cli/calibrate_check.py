"""`perfmodel calibrate check`: a calibration against fresh measurements of its own device."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli.calibrate import Progress, app
from perfmodel.cli.output import console, figure, print_json, table
from perfmodel.cli.text import seconds
from perfmodel.errors import InputError
from perfmodel.kernels.calibration_file import load_calibrated
from perfmodel.specs.hardware import load_hardware

if TYPE_CHECKING:
    from calibrate.check import Check
    from calibrate.device import Device
    from calibrate.end_to_end import StepCheck
    from calibrate.score import Score
    from perfmodel.specs.hardware import Hardware

FAR_STEPS = 15.0
"""Median error of whole steps, in per cent, that is aimed at."""


@app.command("check")
def check(  # noqa: PLR0913, PLR0917  (each is a flag)
    calibration: Annotated[
        Path, typer.Option("--calibration", help="The file that `calibrate fit` wrote.")
    ],
    hardware: Annotated[
        str, typer.Option("--hardware", "-H", help="Profile that it was fitted with.")
    ],
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, …")] = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="About 100 shapes (the default).")] = False,
    standard: Annotated[bool, typer.Option("--standard", help="About 300 shapes.")] = False,
    cases: Annotated[Path | None, typer.Option("--cases", help="A YAML file of cases.")] = None,
    end_to_end: Annotated[
        bool, typer.Option("--end-to-end", help="Time whole decoders instead of kernels.")
    ] = False,
    size: Annotated[
        str, typer.Option("--size", help="Decoders to build: tiny, small or large.")
    ] = "small",
    threads: Annotated[
        int | None, typer.Option("--threads", help="CPU threads; as in the profile by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Keep the fresh rows in this folder.")
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=1, help="Which other shapes: added to the cases' seed.")
    ] = 7919,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Measure shapes that weren't fitted on, and compare with what the calibration says.

    Exits with status 1 when it doesn't beat the bare roofline by a factor of two, when its
    intervals hold far fewer rows than they say, or when whole steps miss by over 15 % (median).
    """
    try:
        from calibrate.device import open_device  # noqa: PLC0415
    except ImportError as error:
        raise InputError(f"{error.name} is missing: pip install 'perfmodel[calibrate]'") from None
    profile = load_hardware(hardware)
    cpu = device.strip().lower() == "cpu"
    if cpu and threads is None and (profile.sm_count or 0) > (os.cpu_count() or 1):
        raise InputError(
            f"the profile of {profile.name} has {profile.sm_count} units, this machine "
            f"{os.cpu_count()} threads: give its own profile, or --device cuda for a GPU"
        )
    opened = open_device(device, threads or (profile.sm_count if cpu else None))
    if end_to_end:
        failed = _end_to_end(opened, profile, calibration, size, as_json)
    else:
        if quick + standard + (cases is not None) > 1:
            raise InputError("--quick, --standard and --cases exclude each other: give one")
        chosen = cases or _shipped(opened, standard)
        failed = _kernels(opened, profile, calibration, (chosen, out, seed), as_json)
    if failed:
        raise typer.Exit(1)


def _shipped(device: Device, standard: bool) -> Path:
    from calibrate.cases_file import shipped_cases  # noqa: PLC0415

    return shipped_cases(device.kind, "standard" if standard else "quick")


def _kernels(
    device: Device, profile: Hardware, calibration: Path, fresh: tuple[Path, Path | None, int],
    as_json: bool,
) -> bool:  # fmt: skip
    from calibrate.cases_file import load_cases  # noqa: PLC0415
    from calibrate.check import run_check  # noqa: PLC0415

    calibrated, cases = load_calibrated(calibration), load_cases(fresh[0])
    with tempfile.TemporaryDirectory() as scratch:
        folder = fresh[1] or Path(scratch)
        with Progress(quiet=as_json) as progress:
            found = run_check(
                device, profile, calibrated, cases, folder, seed=fresh[2], started=progress.start
            )
    if as_json:
        print_json(_record(found))
    else:
        _show(found)
    return bool(found.failures)


def _figures(own: Score, bare: Score) -> dict[str, float | None]:
    names = ("median", "p90", "bias", "coverage")
    figures = {name: figure(getattr(own, name), 4) for name in names}
    return figures | {"bare_roofline_median": figure(bare.median, 4)}


def _record(found: Check) -> dict[str, Any]:
    return {
        "sets": [
            {
                "set": made.name,
                "rows": made.score.rows,
                **_figures(made.score, made.bare),
                "factor": figure(made.factor, 4),
            }
            for made in found.sets
        ],
        "left_out": dict(found.left_out),
        "failures": list(found.failures),
    }


def _show(found: Check) -> None:
    made = table(
        "Errors on fresh shapes, in %",
        [("Set", "left"), ("Rows", "right"), ("Median", "right"), ("p90", "right"),
         ("Bias", "right"), ("Cover", "right"), ("Roofline", "right"), ("Factor", "right")],
    )  # fmt: skip
    for one in found.sets:
        s = one.score
        made.add_row(
            one.name, str(s.rows), f"{s.median:.1f}", f"{s.p90:.1f}", f"{s.bias:+.1f}",
            f"{s.coverage:.0f}", f"{one.bare.median:.1f}", f"{one.factor:.1f}",
        )  # fmt: skip
    out = console()
    out.print(made)
    out.print("Cover: rows inside the 90 % interval. Roofline: the bare roofline's median error.")
    for what, why in found.left_out.items():
        out.print(f"not checked: {what}: {why}", markup=False, highlight=False)
    for failure in found.failures:
        out.print(f"failed: {failure}", markup=False, highlight=False)


def _end_to_end(
    device: Device, profile: Hardware, calibration: Path, size: str, as_json: bool
) -> bool:
    from calibrate import end_to_end  # noqa: PLC0415

    sizes = {"tiny": end_to_end.TINY, "small": end_to_end.SIZES, "large": end_to_end.LARGE}
    if size not in sizes:
        raise InputError(f"--size: unknown {size!r:.40}; known: {', '.join(sizes)}")
    steps = end_to_end.check_steps(device, profile, str(calibration), sizes[size])
    phases = {
        "prefill": end_to_end.score_steps(steps, "prefill"),
        "decode": end_to_end.score_steps(steps, "decode"),
        "all": end_to_end.score_steps(steps),
    }
    if as_json:
        print_json(
            {
                "steps": [_step_record(step) for step in steps],
                "scores": {
                    name: {"rows": own.rows, **_figures(own, bare)}
                    for name, (own, bare) in phases.items()
                },
            }
        )
    else:
        _show_steps(steps, phases)
    total = phases["all"][0]
    return total.rows > 0 and total.median > FAR_STEPS


def _step_record(step: StepCheck) -> dict[str, Any]:
    row = step.row
    return {
        "model": step.model,
        "phase": row.phase,
        "batch": row.batch,
        "context": row.context,
        "measured_s": row.seconds,
        "predicted_s": step.predicted_s,
        "low_s": step.low_s,
        "high_s": step.high_s,
        "roof_s": step.roof_s,
        "quality": row.quality,
    }


def _show_steps(steps: list[StepCheck], phases: dict[str, tuple[Score, Score]]) -> None:
    made = table(
        "Whole steps of decoders with random weights",
        [("Model", "left"), ("Phase", "left"), ("Batch", "right"), ("Context", "right"),
         ("Measured", "right"), ("Estimate", "right"), ("Error", "right"), ("Roofline", "right")],
    )  # fmt: skip
    for step in steps:
        made.add_row(
            step.model, step.row.phase, str(step.row.batch), str(step.row.context),
            seconds(step.row.seconds), seconds(step.predicted_s), f"{step.error:+.1f} %",
            seconds(step.roof_s),
        )  # fmt: skip
    out = console()
    out.print(made)
    for name, (own, bare) in phases.items():
        if own.rows:
            out.print(
                f"{name}: {own.rows} steps over 5 ms: median error {own.median:.1f} %, 90th "
                f"percentile {own.p90:.1f} %; bare roofline {bare.median:.1f} %", highlight=False,
            )  # fmt: skip
        else:
            out.print(f"{name}: no step over 5 ms, none scored", highlight=False)
