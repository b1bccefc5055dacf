"""The files that `perfmodel plan` writes: the workbook, and its tables as CSV and Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from perfmodel.cli.pictures import drawer
from perfmodel.errors import InputError
from perfmodel.planning.capacity.answer import Plan
from perfmodel.whole_file import Named, check_apart, check_free

PANEL = "Output"
XLSX = ".xlsx"
SUFFIXES = (XLSX, ".csv", ".parquet")
WANTED: dict[str, tuple[str, str]] = {
    "xlsx": ("<file>", "A workbook with live formulas: change traffic, service levels or prices, "
             "and fleets and cost follow."),
    "csv": ("<path>", "The workbook's tables: a folder of .csv files, or one .csv file with a row "
            "for each deployment."),
    "parquet": ("<path>", "Likewise as .parquet."),
    "plot": ("<file>", "User speed against cost, with the front: .svg, .png or .pdf."),
}  # fmt: skip
"""Placeholder and help of each flag."""


def file_option(name: str) -> Any:
    """The flag of one kind of file."""
    metavar, help_text = WANTED[name]
    return typer.Option(f"--{name}", metavar=metavar, help=help_text, rich_help_panel=PANEL)


def force_option() -> Any:
    """Whether files that are there already are overwritten."""
    return typer.Option(
        "--force", metavar="", help="Overwrite files that are there already.", rich_help_panel=PANEL
    )


@dataclass(frozen=True, slots=True)
class PlanFiles:
    """What is to be written, None for what isn't."""

    xlsx: Path | None = None
    csv: Path | None = None
    parquet: Path | None = None
    plot: Path | None = None

    @property
    def wanted(self) -> bool:
        """Whether a workbook or its tables are."""
        return any((self.xlsx, self.csv, self.parquet))

    def check(self, reads: Iterable[Named], *, force: bool) -> None:
        """Say before the work that its result couldn't be kept; ``reads``: what the work reads.

        Raises:
            InputError: a file is in the way, has the wrong suffix, or a library is missing.
        """
        reads = tuple(reads)
        drawer("front", "draw_front", self.plot, force=force, reads=reads)
        if not self.wanted:
            return
        _imported(self)
        from reports.workbook.files import check_tables  # noqa: PLC0415

        if self.xlsx is not None:
            check_free(self.xlsx, (XLSX,), force=force, reads=reads)
        for path, suffix in self._tables():
            _check_suffix(path, suffix)
            check_tables(path, suffix, force=force, reads=reads)
            check_apart(self.plot, path)

    def write(self, plan: Plan) -> None:
        """Write them.

        Raises:
            InputError: they can't be written, or the plan has nothing to write.
        """
        if self.plot is not None:
            from reports.front import draw_front  # noqa: PLC0415  (only where it is drawn)

            draw_front(plan, self.plot)
        if not self.wanted:
            return
        from reports.workbook.book import book_of, write_workbook  # noqa: PLC0415
        from reports.workbook.files import write_tables  # noqa: PLC0415

        book = book_of(plan)
        if self.xlsx is not None:
            write_workbook(book, self.xlsx)
        for path, suffix in self._tables():
            write_tables(book.tables, path, suffix)

    def _tables(self) -> list[tuple[Path, str]]:
        given = ((self.csv, ".csv"), (self.parquet, ".parquet"))
        return [(path, suffix) for path, suffix in given if path is not None]


def _check_suffix(path: Path, suffix: str) -> None:
    """A folder called like another flag's file is a slip, or that very file.

    Raises:
        InputError: names the path and what would do.
    """
    own = path.suffix.lower()
    if own != suffix and own in SUFFIXES:
        raise InputError(
            f"{path}: --{suffix[1:]} writes no {own}: name it with {suffix}, or a folder"
        )


def _imported(files: PlanFiles) -> None:
    """Look for the libraries before the work.

    Raises:
        InputError: one is missing; names what to install.
    """
    needed = [("xlsxwriter", True), ("pyarrow", files.parquet is not None)]
    for module, needs in needed:
        if needs and not _there(module):
            flag = "--parquet" if module == "pyarrow" else "--xlsx, --csv, --parquet"
            raise InputError(f"{flag}: {module} isn't installed: install perfmodel[workbook]")


def _there(module: str) -> bool:
    from importlib.util import find_spec  # noqa: PLC0415

    find: Callable[[str], object] = find_spec
    return find(module) is not None
