"""Rows of the table of published figures, as they stand."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path

from perfmodel.errors import InputError
from perfmodel.specs.plain_numbers import plain_float

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Row:
    """One published figure; text as in the table, numbers where it has them."""

    id: str
    source: str
    metric: str
    value: float
    model: str
    gpu: str
    gpus: int
    tp: int
    pp: int
    ep: int
    dp: int
    weights: str
    kv: str
    engine: str
    version: str
    load_mode: str
    batch: str
    prompt: str
    output: str
    spec_decode: str
    completeness: str
    notes: str
    page: str
    """Where the figure was read: a repository's file, a blog."""

    @property
    def number(self) -> int:
        """The row's number within its source."""
        return int(self.id.rsplit("-", 1)[1])


def published_path() -> Path | None:
    """PERFMODEL_DATA/published.csv, else that of ``shared/data`` beside the repository."""
    stated = os.environ.get("PERFMODEL_DATA")
    folder = Path(stated) if stated else ROOT.parent / "shared" / "data"
    path = folder / "published.csv"
    return path if path.is_file() else None


def _count(text: str) -> int:
    return int(plain_float(text)) if text else 1


def read_published(path: Path) -> list[Row]:
    """All rows of the table.

    Raises:
        InputError: a column is missing or a value isn't a number, with the row's id.
    """
    with path.open(encoding="utf-8", newline="") as file:
        return [_row(record, path) for record in csv.DictReader(file)]


def _row(r: dict[str, str], path: Path) -> Row:
    try:
        return Row(
            id=r["id"], source=r["source_id"], metric=r["metric"], value=plain_float(r["value"]),
            model=r["model"], gpu=r["gpu"], gpus=_count(r["gpus"]), tp=_count(r["tp"]),
            pp=_count(r["pp"]), ep=_count(r["ep"]), dp=_count(r["dp"]), weights=r["weight_dtype"],
            kv=r["kv_dtype"], engine=r["engine"], version=r["engine_version"],
            load_mode=r["load_mode"], batch=r["batch_or_concurrency"], prompt=r["input_len"],
            output=r["output_len"], spec_decode=r["spec_decode"],
            completeness=r["completeness"], notes=r["notes"], page=r["source"],
        )  # fmt: skip
    except (KeyError, ValueError) as error:
        raise InputError(f"{path}: row {r.get('id', '?')}: {error}") from None
