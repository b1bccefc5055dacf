"""`perfmodel hardware list`, `show` and `check`: profiles of accelerators, and their lint."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from perfmodel.cli.lazy import HELP
from perfmodel.cli.output import console, print_json, table
from perfmodel.cli.text import binary, digits, exact, si
from perfmodel.specs.hardware import Hardware, hardware_names, load_hardware
from perfmodel.specs.hardware_checks import check_hardware
from perfmodel.specs.hardware_schema import unit, walk
from perfmodel.units import GIGA, TERA

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings=HELP,
    help="Accelerators that perfmodel knows.",
)
Json = Annotated[bool, typer.Option("--json", metavar="", help="One JSON object.")]
Name = Annotated[str, typer.Argument(help="Name of a profile, or a YAML file.")]
FORMATS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")


def hardware_record(hardware: Hardware) -> dict[str, Any]:
    """A profile as plain data: the file's fields, and what perfmodel computes with, in SI."""
    profile = hardware.model_dump(mode="json", by_alias=True, exclude_none=True)
    bf16 = hardware.peak("bf16") or hardware.peak("fp16") or hardware.peak("fp32")
    return profile | {
        "si": {
            "peak_flops": {f: hardware.peak(f) for f in FORMATS if hardware.peak(f) is not None},
            "memory_bandwidth": hardware.memory_bandwidth,
            "capacity_bytes": hardware.capacity_bytes,
            "ridge_point": None if bf16 is None else bf16 / hardware.memory_bandwidth,
        }
    }


def _tera(rate: float | None) -> str:
    return "–" if rate is None else digits(rate / TERA)


@app.command("list")
def list_hardware(as_json: Json = False) -> None:
    """List the profiles with their main rates (dense) and usable memory."""
    profiles = [load_hardware(name) for name in hardware_names()]
    if as_json:
        print_json({"hardware": [hardware_record(profile) for profile in profiles]})
        return
    made = table(
        None,
        [("Hardware", "left"), ("bf16 TFLOP/s", "right"), ("fp8", "right"), ("Usable", "right"),
         ("GB/s", "right"), ("Link GB/s", "right")],
    )  # fmt: skip
    for profile in profiles:
        made.add_row(
            profile.name,
            _tera(profile.peak("bf16") or profile.peak("fp16")),
            _tera(profile.peak("fp8")),
            binary(profile.capacity_bytes),
            digits(profile.memory_bandwidth / GIGA),
            "–" if profile.link is None else digits(profile.link_bandwidth / GIGA),
        )
    console().print(made)


UNIT_SUFFIX = re.compile(r"_(usd_per_hour|tflops|gb_s|gb|gib|mb|kb|mhz|w)(?=_|$)")
"""The unit in a key, which stands beside the figure instead."""


def _label(group: str, name: str) -> str:
    """``memory.bandwidth_gb_s`` in words."""
    return " ".join(UNIT_SUFFIX.sub("", f"{group}_{name}").replace("_", " ").split())


def _figure(value: Any, unit_name: str) -> str:
    if not isinstance(value, int | float):
        return str(value)
    shown_unit = "" if unit_name in {"", "–"} else f" {unit_name}"
    return f"{exact(value)}{shown_unit}"


def _figures(hardware: Hardware) -> Iterator[tuple[str, str, str]]:
    """Label, figure with its unit, and ``recalled`` or nothing, for each fact of a profile."""
    units = {key: unit(field) for key, field in walk(Hardware)}
    profile = hardware.model_dump(mode="json", by_alias=True, exclude_none=True)
    for name in ("vendor", "architecture", "compute_capability", "year"):
        if name in profile:
            note = "recalled" if name in hardware.recalled else ""
            yield name.replace("_", " "), str(profile[name]), note
    for group, fields in profile.items():
        if not isinstance(fields, dict):
            continue
        recalled = set(fields.get("recalled", []))
        for name, value in fields.items():
            if name not in {"source", "recalled"}:
                figure = _figure(value, units.get(f"{group}.{name}", ""))
                yield _label(group, name), figure, "recalled" if name in recalled else ""
    bf16 = hardware.peak("bf16")
    if bf16 is not None:
        yield "ridge point in bf16", si(bf16 / hardware.memory_bandwidth, "FLOP/B"), ""


def _show(hardware: Hardware) -> None:
    made = table(hardware.title or hardware.name, [("", "left"), ("", "right"), ("", "left")])
    made.show_header = False
    for row in _figures(hardware):
        made.add_row(*row)
    out = console()
    out.print(made)

    def paragraph(text: str, indent: str) -> None:
        out.print(textwrap.fill(text, out.width, initial_indent=indent, subsequent_indent="    "))

    out.print("\nPeaks are dense; links are per direction and GPU. Sources:")
    for group in type(hardware).model_fields:
        source = getattr(getattr(hardware, group), "source", None)
        if source:
            paragraph(f"{_label(group, '')}: {source}", "  ")
    if hardware.notes:
        paragraph(f"Note: {hardware.notes}", "")


@app.command("show")
def show(hardware: Name, as_json: Json = False) -> None:
    """Show one profile with its sources."""
    profile = load_hardware(hardware)
    if as_json:
        print_json(hardware_record(profile))
    else:
        _show(profile)


@app.command("check")
def check(
    hardware: Annotated[
        list[str] | None, typer.Argument(help="Names or YAML files; all shipped ones if none.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Look for implausible figures: sparse peaks, bidirectional links, GB for GiB.

    Exits with status 1 when something is found.
    """
    names = hardware or hardware_names()
    findings = {name: check_hardware(load_hardware(name)) for name in names}
    count = sum(len(found) for found in findings.values())
    if as_json:
        rows = [
            {"hardware": name, "check": f.check, "field": f.field, "message": f.message}
            for name, found in findings.items()
            for f in found
        ]
        print_json({"checked": len(names), "findings": rows})
    else:
        for name, found in findings.items():
            for f in found:
                print(f"{name}: {f.field}: {f.message} [{f.check}]")
        print(f"{len(names)} profiles checked, {count} findings")
    if count:
        raise typer.Exit(1)
