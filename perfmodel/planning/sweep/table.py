"""Rows of a sweep: text as codes of a few words, numbers as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfmodel.planning.sweep.columns import DERIVED, Kind

Flags: TypeAlias = NDArray[np.bool_]
DTYPES: dict[Kind, type] = {"number": np.float64, "whole": np.int64, "flag": np.bool_}


@dataclass(frozen=True, slots=True)
class Words:
    """A column of text: each row's place in a list of words."""

    codes: NDArray[np.int32]
    words: tuple[str, ...]

    def taken(self, rows: Any) -> Words:
        """Some rows, by their places or flags."""
        return Words(self.codes[rows], self.words)

    def array(self) -> NDArray[np.object_]:
        """The words as an array of objects."""
        return np.asarray(self.words, dtype=object)[self.codes]


Column: TypeAlias = "NDArray[Any] | Words"


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of one deployment: what is the same in all of them, and arrays of the rest."""

    constants: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    rows: int

    def value(self, name: str) -> Any:
        """A number, word or array of a column, or of one in another unit."""
        if name in DERIVED:
            column, factor = DERIVED[name]
            return self.value(column) * factor
        return self.arrays[name] if name in self.arrays else self.constants[name]

    def taken(self, flags: Any) -> Segment:
        """Some rows; ``flags`` may be one truth for all."""
        if np.ndim(flags) == 0:
            flags = np.full(self.rows, bool(flags))
        arrays = {name: array[flags] for name, array in self.arrays.items()}
        return Segment(self.constants, arrays, int(np.count_nonzero(flags)))


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of one length."""

    columns: Mapping[str, Column]
    rows: int

    @classmethod
    def of(cls, segments: Sequence[Segment], kinds: Mapping[str, Kind]) -> Table:
        """All segments in order, with the columns of ``kinds``."""
        counts = [segment.rows for segment in segments]
        columns = {name: _column(name, kind, segments, counts) for name, kind in kinds.items()}
        return cls(columns, sum(counts))

    @classmethod
    def empty(cls, kinds: Mapping[str, Kind]) -> Table:
        """No rows."""
        text = Words(np.empty(0, dtype=np.int32), ())
        columns: dict[str, Column] = {
            name: text if kind == "text" else np.empty(0, dtype=DTYPES[kind])
            for name, kind in kinds.items()
        }
        return cls(columns, 0)

    @classmethod
    def joined(cls, tables: Sequence[Table], kinds: Mapping[str, Kind]) -> Table:
        """All rows of several tables."""
        if not tables:
            return cls.empty(kinds)
        columns = {name: _joined([t.columns[name] for t in tables]) for name in kinds}
        return cls(columns, sum(table.rows for table in tables))

    def values(self, name: str) -> NDArray[np.float64]:
        """A column of numbers, or one in another unit, as float64."""
        column, factor = DERIVED.get(name, (name, None))
        found = self.columns[column]
        assert not isinstance(found, Words)  # noqa: S101  (the caller asked for numbers)
        array = found.astype(np.float64)
        return array if factor is None else array * factor

    def taken(self, rows: Any) -> Table:
        """Some rows, by their places or flags."""
        columns = {
            name: column.taken(rows) if isinstance(column, Words) else column[rows]
            for name, column in self.columns.items()
        }
        first = next(iter(columns.values()))
        return Table(columns, len(first.codes if isinstance(first, Words) else first))

    @staticmethod
    def arrays(columns: Mapping[str, Column]) -> dict[str, NDArray[Any]]:
        """Columns as plain arrays, text as objects."""
        return {
            name: column.array() if isinstance(column, Words) else column
            for name, column in columns.items()
        }

    def records(self) -> list[dict[str, Any]]:
        """Each row as plain data; for few rows."""
        listed = {name: array.tolist() for name, array in self.arrays(self.columns).items()}
        rows = zip(*listed.values(), strict=True)
        return [dict(zip(listed, values, strict=True)) for values in rows]


def _column(name: str, kind: Kind, segments: Sequence[Segment], counts: list[int]) -> Column:
    if kind == "text":
        said = [_word(segment.constants[name]) for segment in segments]
        place = {word: code for code, word in enumerate(dict.fromkeys(said))}
        codes = [place[word] for word in said]
        return Words(np.repeat(np.asarray(codes, dtype=np.int32), counts), tuple(place))
    dtype = DTYPES[kind]
    if all(name in segment.constants for segment in segments):
        numbers = [_number(segment.constants[name]) for segment in segments]
        return np.repeat(np.asarray(numbers, dtype=dtype), counts)
    return np.concatenate([segment.arrays[name].astype(dtype, copy=False) for segment in segments])


def _joined(parts: Sequence[Column]) -> Column:
    words: dict[str, int] = {}
    codes: list[NDArray[np.int32]] = []
    arrays: list[NDArray[Any]] = []
    for part in parts:
        if isinstance(part, Words):
            places = [words.setdefault(word, len(words)) for word in part.words]
            codes.append(np.asarray(places, dtype=np.int32)[part.codes])
        else:
            arrays.append(part)
    return Words(np.concatenate(codes), tuple(words)) if codes else np.concatenate(arrays)


def _word(value: Any) -> str:
    return "none" if value is None else str(value)


def _number(value: Any) -> Any:
    return np.nan if value is None else value
