"""Writing answers: JSON, CSV, or rich tables. Answers go to stdout, everything else to stderr."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def print_json(record: Mapping[str, Any]) -> None:
    """One JSON object on stdout, nothing else."""
    json.dump(record, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def figure(value: float, digits: int = 5) -> float | None:
    """A number for JSON to ``digits`` significant digits; None where there is none (NaN)."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows with a header; the first row's keys are the columns."""
    if not rows:
        return
    writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


NARROWEST = 60
"""Columns below which tables aren't squeezed any further: the terminal wraps their lines."""


def console() -> Console:
    """The terminal (or pipe, 80 columns wide) that tables are printed to."""
    from rich.console import Console  # noqa: PLC0415  (only where tables are drawn)

    made = Console(highlight=False, markup=False, emoji=False, soft_wrap=False)
    made.width = max(NARROWEST, made.width)
    return made


def bold(text: str) -> Text:
    """Text that stands out."""
    from rich.text import Text  # noqa: PLC0415

    return Text(text, style="bold")


def print_table(out: Console, made: Table) -> None:
    """A table with an empty line before it."""
    out.print()
    out.print(made)


def table(title: str | None, columns: Iterable[tuple[str, str]]) -> Table:
    """A plain table; ``columns`` are (heading, ``left`` or ``right``)."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    made = Table(title=None if title is None else bold(title), title_justify="left",
                 box=box.SIMPLE_HEAD, show_edge=False, collapse_padding=True, pad_edge=False,
                 header_style="bold")  # fmt: skip
    for heading, justify in columns:
        made.add_column(
            heading,
            justify="right" if justify == "right" else "left",
            no_wrap=justify == "right",
            overflow="fold",
        )
    return made
