"""A sweep from its first part to its last: here or on a cluster, kept in a folder or not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from perfmodel.errors import InputError
from perfmodel.planning.sweep.answer import PART, Progress, Sweep, Swept, joined
from perfmodel.planning.sweep.columns import Kind
from perfmodel.planning.sweep.table import Table, Words
from perfmodel.specs.sweep import parse_sweep
from perfmodel.whole_file import write_whole
from reports.sweep_parts import Encoded, Folder, Form, encoded, file_bytes, swept_of

Made = Iterator[tuple[int, Encoded]]
_LOCAL = threading.local()


def made_part(spec: str, start: int, stop: int, form: Form) -> Encoded:
    """One part, wherever this runs; ``spec`` is a sweep's record as JSON.

    A thread keeps the sweep of its last part, whose curves the next may need.
    """
    if getattr(_LOCAL, "spec", None) != spec:
        _LOCAL.sweep, _LOCAL.spec = Sweep(parse_sweep(json.loads(spec))), spec
    sweep: Sweep = _LOCAL.sweep
    return encoded(sweep.part(start, stop), sweep.columns, form)


def _here(folder: Folder, spec: str, todo: Iterable[int]) -> Made:
    for number in todo:
        yield number, made_part(spec, *folder.span(number), folder.form)


def write_sweep(
    sweep: Sweep,
    path: Path,
    *,
    form: Form = "parquet",
    part_settings: int = PART,
    dask: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Swept:
    """Write every part that isn't there yet; what comes back holds no rows.

    Args:
        sweep: what is swept.
        path: a folder: new, empty, or with this sweep begun.
        form: of the parts' files.
        part_settings: settings of a part.
        dask: the address of a cluster's scheduler; None: here.
        force: begin anew where the folder holds another sweep.
        progress: told how many settings of how many are done.

    Raises:
        InputError: the folder holds something else, can't be written, or no cluster answers.
    """
    folder = Folder(path, sweep, part_settings, form, force=force)
    parts: dict[int, Swept] = {}
    for number in range(folder.count):
        record = folder.known(number)
        if record is not None:
            parts[number] = swept_of(record, sweep.columns)
    done = sum(part.settings for part in parts.values())
    if progress is not None:
        progress(done, sweep.settings)
    todo = [number for number in range(folder.count) if number not in parts]
    for number, part in _made(folder, sweep, todo, dask):
        folder.keep(number, part)
        parts[number] = swept_of(part.record, sweep.columns)
        done += part.record.settings
        if progress is not None:
            progress(done, sweep.settings)
    return joined(sweep, [parts[number] for number in sorted(parts)])


def _made(folder: Folder, sweep: Sweep, todo: list[int], dask: str | None) -> Made:
    spec = json.dumps(sweep.spec.record())
    if dask is None or not todo:
        return _here(folder, spec, todo)
    try:
        from reports.sweep_cluster import on_cluster  # noqa: PLC0415  (only it needs distributed)
    except ImportError as error:
        raise InputError(f"--dask: {error}: install perfmodel[dask]") from None
    return on_cluster(dask, folder, spec, todo)


def write_selection(result: Swept, sweep: Sweep, path: Path) -> None:
    """Write the best rows and the Pareto front as the suffix says; `selection` says which.

    Raises:
        InputError: the file can't be written.
    """
    form: Form = "csv" if path.suffix.lower() == ".csv" else "parquet"
    kinds: dict[str, Kind] = {"selection": "text", **sweep.columns}
    tables = []
    for name, rows in (("best", result.best), ("pareto", result.pareto)):
        said = Words(np.zeros(rows.rows, np.int32), (name,))
        tables.append(Table({"selection": said, **rows.columns}, rows.rows))
    data = file_bytes(Table.joined(tables, kinds), kinds, form)
    write_whole(path, lambda file: file.write_bytes(data))
