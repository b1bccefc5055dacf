"""What commands that draw share: where a picture goes, how large it is, and what draws it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from perfmodel.errors import InputError
from perfmodel.whole_file import PICTURES, Named, check_free

SIDES = (3.0, 40.0)
"""Inches of a picture's side."""
OUTPUT = "Output"


def inches(text: Any) -> tuple[float, float]:
    """Width and height from ``9x6.5``.

    Raises:
        BadParameter: names the text and the range.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*[x×]\s*(\d+(?:\.\d+)?)", str(text).strip(), re.ASCII)
    sides = (float(found[1]), float(found[2])) if found else (0.0, 0.0)
    if not all(SIDES[0] <= side <= SIDES[1] for side in sides):
        low, high = (f"{side:g}" for side in SIDES)
        raise typer.BadParameter(f"{str(text)[:40]!r}: WIDTHxHEIGHT in inches, {low} to {high}")
    return sides


def out_option(help_text: str = "Draw it: .svg, .png or .pdf.") -> Any:
    """The flag for a picture's file."""
    return typer.Option("--out", metavar="<file>", help=help_text, rich_help_panel=OUTPUT)


def size_option() -> Any:
    """The flag for a picture's size."""
    return typer.Option(
        "--size", metavar="<WxH>", parser=inches, rich_help_panel=OUTPUT,
        help="Width and height of the picture in inches, such as 9x6.5.",
    )  # fmt: skip


def force_option() -> Any:
    """The flag that lets a picture take another's place."""
    return typer.Option("--force", metavar="", help="Overwrite --out.", rich_help_panel=OUTPUT)


def json_option() -> Any:
    """The flag for the numbers behind a picture."""
    return typer.Option("--json", metavar="", help="One JSON object.", rich_help_panel=OUTPUT)


def drawer(
    module: str, name: str, path: Path | None, *, force: bool, reads: Iterable[Named]
) -> Callable[..., None] | None:
    """What draws the picture ``path``, looked for before the work; None where none is asked for.

    ``reads`` is what the work reads, which the picture must not overwrite.

    Raises:
        InputError: a file that can't be written, or no matplotlib.
    """
    if path is None:
        return None
    check_free(path, PICTURES, force=force, reads=reads)
    try:
        found: Callable[..., None] = getattr(import_module(f"reports.{module}"), name)
    except ImportError as error:
        raise InputError(f"{path}: {error}: install perfmodel[plots]") from None
    return found
