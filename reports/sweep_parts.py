"""A sweep's parts as files: encoding, a record beside each, and a manifest that tells sweeps apart.

A folder holds ``part-000000.parquet`` (or ``.csv``), …, and what readers of such folders pass over:
``_sweep.json``, the sweep, and ``_parts/``, a record of each part that is done.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import perfmodel
from perfmodel.errors import InputError
from perfmodel.planning.sweep.answer import Sweep, Swept
from perfmodel.planning.sweep.cases import Refused, hardware_named, model_named
from perfmodel.planning.sweep.columns import Kind
from perfmodel.planning.sweep.table import Table, Words
from perfmodel.specs.engine import load_engine
from perfmodel.specs.sweep import SweepSpec
from perfmodel.whole_file import write_whole

Form = Literal["parquet", "csv"]
MANIFEST, RECORDS = "_sweep.json", "_parts"
TYPES: dict[Kind, pa.DataType] = {
    "number": pa.float64(),
    "whole": pa.int64(),
    "flag": pa.bool_(),
    "text": pa.dictionary(pa.int32(), pa.string()),
}


@dataclass(frozen=True, slots=True)
class PartRecord:
    """What is known of a part without reading it."""

    settings: int
    fits: int
    rows: int
    bytes: int
    """Of its file."""
    refused: list[dict[str, Any]]
    best: list[dict[str, Any]]
    pareto: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A part's file, and its record."""

    data: bytes
    record: PartRecord


def arrow(table: Table, kinds: Mapping[str, Kind]) -> pa.Table:
    """A table with one schema for all parts; what is no number is null."""
    arrays = []
    for name, kind in kinds.items():
        column = table.columns[name]
        if isinstance(column, Words):
            words = pa.array(list(column.words), pa.string())
            arrays.append(pa.DictionaryArray.from_arrays(pa.array(column.codes), words))
        else:
            arrays.append(pa.array(column, TYPES[kind], from_pandas=True))
    schema = pa.schema([(name, TYPES[kind]) for name, kind in kinds.items()])
    return pa.Table.from_arrays(arrays, schema=schema)


def file_bytes(table: Table, kinds: Mapping[str, Kind], form: Form) -> bytes:
    """A table as the bytes of a file."""
    made, out = arrow(table, kinds), io.BytesIO()
    if form == "parquet":
        pa.parquet.write_table(made, out, compression="zstd")
    else:
        for place, (name, kind) in enumerate(kinds.items()):
            if kind == "text":
                made = made.set_column(place, name, made.column(name).cast(pa.string()))
        pa.csv.write_csv(made, out)
    return out.getvalue()


def encoded(part: Swept, kinds: Mapping[str, Kind], form: Form) -> Encoded:
    """A part as bytes and record."""
    data = file_bytes(part.table, kinds, form)
    return Encoded(data, recorded(part, len(data)))


def recorded(part: Swept, size: int = 0) -> PartRecord:
    """What is kept of a part beside its rows."""
    return PartRecord(
        settings=part.settings,
        fits=part.fits,
        rows=part.rows,
        bytes=size,
        refused=[asdict(each) for each in part.refused],
        best=plain_rows(part.best),
        pareto=plain_rows(part.pareto),
    )


def plain_rows(table: Table) -> list[dict[str, Any]]:
    """Rows as JSON takes them: None for what is no number."""
    return [
        {name: None if value != value else value for name, value in row.items()}  # noqa: PLR0124
        for row in table.records()
    ]


def table_of(rows: list[dict[str, Any]], kinds: Mapping[str, Kind]) -> Table:
    """The table that `plain_rows` made rows of."""
    if not rows:
        return Table.empty(kinds)
    columns: dict[str, Any] = {}
    for name, kind in kinds.items():
        values = [row[name] for row in rows]
        if kind == "text":
            words = {word: code for code, word in enumerate(dict.fromkeys(values))}
            codes = np.asarray([words[value] for value in values], dtype=np.int32)
            columns[name] = Words(codes, tuple(words))
        else:
            filled = [np.nan if value is None else value for value in values]
            columns[name] = np.asarray(filled)
    return Table(columns, len(rows))


def swept_of(record: PartRecord, kinds: Mapping[str, Kind]) -> Swept:
    """A part without its rows."""
    return Swept(
        table=Table.empty(kinds),
        settings=record.settings,
        fits=record.fits,
        refused=tuple(Refused(**each) for each in record.refused),
        best=table_of(record.best, kinds),
        pareto=table_of(record.pareto, kinds),
        rows=record.rows,
    )


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def inputs(spec: SweepSpec) -> dict[str, str]:
    """What models, hardware and engines hold, as short digests by name."""
    found = {f"model {n}": _digest(model_named(n)) for n in spec.values("model")}
    found |= {f"hardware {n}": _digest(hardware_named(n)) for n in spec.values("hardware")}
    return found | {f"engine {n}": _digest(load_engine(n)) for n in spec.values("engine")}


class Folder:
    """Where the parts of a sweep are kept.

    Args:
        path: a folder that is there, empty or with a begun sweep, or isn't there yet.
        sweep: whose parts they are.
        size: settings of a part.
        form: of the files.
        force: forget the parts of another sweep.

    Raises:
        InputError: something else lies there.
    """

    def __init__(self, path: Path, sweep: Sweep, size: int, form: Form, *, force: bool) -> None:
        self.path, self.form = path, form
        self.size, self._settings = size, sweep.settings
        self.count = -(-sweep.settings // size)
        mine = {
            "perfmodel": perfmodel.__version__,
            "format": form,
            "part_settings": size,
            "sweep": sweep.spec.record(),
            "inputs": inputs(sweep.spec),
        }
        mine = json.loads(json.dumps(mine))
        self._check(mine, force=force)
        try:
            (path / RECORDS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{path}: can't be made: {error.strerror}") from None
        text = json.dumps(mine, indent=2) + "\n"
        if not (path / MANIFEST).exists():
            write_whole(path / MANIFEST, lambda file: file.write_text(text))

    def _check(self, mine: dict[str, Any], *, force: bool) -> None:
        path = self.path
        if not path.exists():
            if not path.absolute().parent.is_dir():
                raise InputError(f"{path}: there is no folder {path.absolute().parent}")
            return
        if not path.is_dir():
            raise InputError(f"{path}: is a file; name a folder for the parts")
        if not (path / MANIFEST).exists():
            if any(path.iterdir()):
                raise InputError(f"{path}: holds other files; name a new or empty folder")
            return
        try:
            theirs = json.loads((path / MANIFEST).read_text())
        except (OSError, ValueError):
            theirs = {}
        changed = _changed(mine, theirs)
        if not changed:
            return
        if not force:
            raise InputError(
                f"{path}: holds another sweep (changed: {', '.join(changed)}); name another "
                "folder, or --force to begin anew in it"
            )
        self._forget()

    def _forget(self) -> None:
        """Remove the parts, their records, and last of all the manifest."""
        for file in [*self.path.glob("part-*"), *(self.path / RECORDS).glob("part-*")]:
            file.unlink()
        (self.path / MANIFEST).unlink()

    def span(self, number: int) -> tuple[int, int]:
        """The settings of a part."""
        start = number * self.size
        return start, min(start + self.size, self._settings)

    def _file(self, number: int) -> Path:
        return self.path / f"part-{number:06}.{self.form}"

    def _record(self, number: int) -> Path:
        return self.path / RECORDS / f"part-{number:06}.json"

    def known(self, number: int) -> PartRecord | None:
        """The record of a part that is done, its file as it was written."""
        try:
            record = PartRecord(**json.loads(self._record(number).read_text()))
            return record if self._file(number).stat().st_size == record.bytes else None
        except (OSError, ValueError, TypeError):
            return None

    def keep(self, number: int, part: Encoded) -> None:
        """Write a part, and then that it is done."""
        write_whole(self._file(number), lambda file: file.write_bytes(part.data))
        text = json.dumps(asdict(part.record))
        write_whole(self._record(number), lambda file: file.write_text(text))


def _changed(mine: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """The keys in which two manifests differ, those of the sweep and of its inputs by name."""
    own, other = mine["sweep"], theirs.get("sweep") or {}
    found = [name for name in dict.fromkeys([*own, *other]) if own.get(name) != other.get(name)]
    known = theirs.get("inputs") or {}
    found += [f"the {n}" for n, digest in mine["inputs"].items() if known.get(n, digest) != digest]
    return found + [n for n in ("format", "part_settings", "perfmodel") if mine[n] != theirs.get(n)]
