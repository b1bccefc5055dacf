"""`perfmodel hardware list`, `show` and `check`: profiles of accelerators, and their lint."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from perfmodel.cli.lazy import HELP
from perfmodel.cli.output import console, print_json, table
from perfmodel.cli.text import binary, digits, si
from perfmodel.specs.hardware import Hardware, hardware_names, load_hardware
from perfmodel.specs.hardware_checks import check_hardware
from perfmodel.specs.hardware_facts import hardware_facts, label_of
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


def _rows(hardware: Hardware) -> Iterator[tuple[str, str, str]]:
    """Label, figure with its unit, and ``recalled`` or nothing, for each fact of a profile."""
    for fact in hardware_facts(hardware):
        yield fact.label, fact.shown, "recalled" if fact.recalled else ""
    bf16 = hardware.peak("bf16")
    if bf16 is not None:
        yield "ridge point in bf16", si(bf16 / hardware.memory_bandwidth, "FLOP/B"), ""


def _show(hardware: Hardware) -> None:
    made = table(hardware.title or hardware.name, [("", "left"), ("", "right"), ("", "left")])
    made.show_header = False
    for row in _rows(hardware):
        made.add_row(*row)
    out = console()
    out.print(made)

    def paragraph(text: str, indent: str) -> None:
        out.print(textwrap.fill(text, out.width, initial_indent=indent, subsequent_indent="    "))

    out.print("\nPeaks are dense; links are per direction and GPU. Sources:")
    for group in type(hardware).model_fields:
        source = getattr(getattr(hardware, group), "source", None)
        if source:
            paragraph(f"{label_of(group)}: {source}", "  ")
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
