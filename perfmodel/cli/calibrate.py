"""`perfmodel calibrate run`: measure kernels on a device. Needs `perfmodel[calibrate]`.

`fit` and `check` join the same ``app``, each registering its command from a module of its own.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli.lazy import HELP
from perfmodel.cli.output import console, print_json, table
from perfmodel.cli.text import seconds
from perfmodel.errors import InputError
from perfmodel.specs.hardware import load_hardware

if TYPE_CHECKING:
    from calibrate.device import Device
    from calibrate.measure import Summary
    from calibrate.plan import Case, Plan
    from calibrate.rows import Row

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings=HELP,
    help="Measure kernels on a device, fit their models, check how wrong they are.",
)


@app.callback()
def group() -> None:
    """Keep `run` a command of its own while it is the only one."""


@app.command("run")
def run(  # noqa: PLR0913, PLR0917  (each is a flag)
    out: Annotated[
        Path, typer.Option("--out", help="Folder of the rows; resumed if it has any.")
    ] = Path("measured"),
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, …")] = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="About 100 shapes (the default).")] = False,
    standard: Annotated[bool, typer.Option("--standard", help="About 300 shapes.")] = False,
    cases: Annotated[Path | None, typer.Option("--cases", help="A YAML file of cases.")] = None,
    families: Annotated[
        str, typer.Option("--families", help="Comma-separated; ceilings always run.")
    ] = "",
    plan_only: Annotated[bool, typer.Option("--plan", help="List the cases; run none.")] = False,
    warm: Annotated[bool, typer.Option("--warm", help="Inputs stay in the last cache.")] = False,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=1e-4, max=1.0, help="Of the median, relative.")
    ] = 0.02,
    threads: Annotated[
        int | None, typer.Option("--threads", help="CPU threads (default: torch's own choice).")
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option("--hardware", help="Profile whose peaks shares are taken of, not measured."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Run real kernels on random data; append a row per shape; write the device's profile.

    An interrupted run resumes with the same --out. A shape that fails becomes a row that says why.
    """
    try:
        from calibrate import cases_file, measure, plan, roof  # noqa: PLC0415
        from calibrate.device import open_device  # noqa: PLC0415
    except ImportError as error:
        raise InputError(f"{error.name} is missing: pip install 'perfmodel[calibrate]'") from None
    if quick + standard + (cases is not None) > 1:
        raise InputError("--quick, --standard and --cases exclude each other: give one")
    opened = open_device(device, threads)
    chosen = cases or cases_file.shipped_cases(opened.kind, "standard" if standard else "quick")
    read = cases_file.load_cases(chosen)
    if read.device != opened.kind:
        raise InputError(f"{chosen}: is for {read.device}, not for {opened.kind}")
    made = plan.make_plan(read, opened, [name for name in families.split(",") if name])
    if plan_only:
        _show_plan(made, as_json)
        return
    above = None if hardware is None else roof.Roof.of(load_hardware(hardware))
    settings = measure.settings_of(read, tolerance)
    runner = measure.Runner(opened, out, settings, warm=warm, roof=above)
    with Progress(quiet=as_json) as progress:
        summary = runner.run(made, progress.start(made))
    _finish(made, summary, opened, as_json)


def _show_plan(plan: Plan, as_json: bool) -> None:
    from calibrate.plan import total_minutes  # noqa: PLC0415

    if as_json:
        rows = [{"family": c.family, **c.shape, "estimated_s": c.seconds} for c in plan.cases]
        print_json({"cases": rows, "estimated_s": plan.seconds, "notes": list(plan.notes)})
        return
    made = table(None, [("Family", "left"), ("Shape", "left"), ("Estimate", "right")])
    for case in plan.cases:
        made.add_row(case.family, _shape_text(case), seconds(case.seconds))
    out = console()
    out.print(made)
    for note in plan.notes:
        out.print(f"left out: {note}")
    out.print(f"{len(plan.cases)} cases, about {total_minutes(plan.seconds)} (min:s)")


def _shape_text(case: Case) -> str:
    return " ".join(f"{column}={value}" for column, value in case.shape.items())


def _finish(plan: Plan, summary: Summary, device: Device, as_json: bool) -> None:
    from calibrate.profile import measured_profile, write_profile  # noqa: PLC0415

    profile: str | None = str(summary.out / "profile.yaml")
    why = ""
    try:
        data = measured_profile(summary.out, device.total_bytes, device.cache_bytes)
        write_profile(data, summary.out / "profile.yaml")
    except InputError as error:
        profile, why = None, str(error)
    record: dict[str, Any] = {
        "device": device.name,
        "out": str(summary.out),
        "measured": summary.measured,
        "failed": summary.failed,
        "resumed": summary.resumed,
        "above_roof": summary.flagged,
        "disturbed": summary.disturbed,
        "profile": profile,
        "notes": [*plan.notes, *([why] if why else [])],
    }
    if as_json:
        print_json(record)
        return
    out = console()
    failed = f" ({summary.failed} failed, with reasons)" if summary.failed else ""
    out.print(
        f"{summary.measured} rows written to {summary.out}{failed}, {summary.resumed} were there"
    )
    if summary.flagged:
        out.print(f"{summary.flagged} rows lie above the roof: look at them before you use them")
    if summary.disturbed:
        out.print(f"{summary.disturbed} rows were disturbed by other jobs; try --threads 1")
    for note in record["notes"]:
        out.print(f"note: {note}")
    if profile:
        out.print(f"measured profile: {profile}")


class Progress:
    """A bar on stderr that moves by estimated time; nothing when ``quiet`` or not a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._bar: Any = None
        self._context: AbstractContextManager[Any] = nullcontext()
        if not quiet:
            from rich.console import Console  # noqa: PLC0415
            from rich.progress import Progress as Bar  # noqa: PLC0415

            self._context = self._bar = Bar(console=Console(stderr=True), transient=True)

    def __enter__(self) -> Progress:
        self._context.__enter__()
        return self

    def __exit__(self, *fault: Any) -> None:
        self._context.__exit__(*fault)

    def start(self, plan: Plan) -> Progress:
        """Begin a bar as long as the plan's estimate."""
        if self._bar is not None:
            self._task = self._bar.add_task("measuring", total=plan.seconds)
        return self

    def __call__(self, case: Case, row: Row) -> None:
        """Move the bar by a finished case, and name a failed one."""
        if self._bar is None:
            return
        if row.result.status == "failed":
            self._bar.console.print(f"{case.family} {_shape_text(case)}: {row.result.reason}")
        done = f"{case.family} {seconds(row.result.latency_us * 1e-6)}"
        self._bar.update(self._task, advance=case.seconds, description=done)


# The other commands join the app here, so that whoever loads it has all of them.
from perfmodel.cli import calibrate_check as _check  # noqa: E402, F401
from perfmodel.cli import calibrate_engine as _engine  # noqa: E402, F401
from perfmodel.cli import calibrate_fit as _fit  # noqa: E402, F401
from perfmodel.cli import calibrate_serving as _serving  # noqa: E402, F401
