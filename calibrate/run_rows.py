"""The folder of a `calibrate run` as arrays that forms take: one entry for each set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibrate.rows import read_rows
from calibrate.runs.base import BITS
from calibrate.runs.experts import rows_of
from calibrate.runs.registry import FAMILIES
from perfmodel.errors import InputError
from perfmodel.operators.quantity import Array
from perfmodel.specs.hardware import Hardware
from perfmodel.units import MICROSECOND

Row = Mapping[str, str]
GOOD = ("clean", "corrected")
"""Qualities of rows that a fit takes: the times of others are too long."""
SHORT = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
OPERATIONS = {"rms_norm": "norm", "silu_mul": "silu", "rotary": "rotary"}
STREAMS = ("copy", "triad")


@dataclass(frozen=True, slots=True)
class Measured:
    """Rows of one set: shapes, times, and the exact work, each (n,)."""

    family: str
    shapes: dict[str, Array]
    seconds: Array
    flops: Array
    bytes: Array
    kernel: str
    dtype: str
    clocked: bool
    """Whether the host's clock took the times, so that they hold the launch."""

    def __len__(self) -> int:
        return len(self.seconds)


def is_run(path: Path) -> bool:
    """Whether ``path`` is a folder that `calibrate run` wrote."""
    if not path.is_dir():
        return False
    heads = (read_rows(path / f"{name}.csv")[:1] for name in FAMILIES)
    return any("quality" in row and "kind" in row for head in heads for row in head)


@dataclass(frozen=True, slots=True)
class Run:
    """What a folder holds."""

    sets: dict[str, Measured]
    left_out: dict[str, str]
    """Rows that a fit doesn't take, by reason."""
    release: str
    source: str


def read_run(folder: Path, hardware: Hardware) -> Run:
    """The rows to fit on: those that were measured, and not disturbed by other jobs.

    Raises:
        InputError: no row that can be used, or rows of several devices or of another one.
    """
    rows: dict[str, list[Row]] = {}
    left: Counter[str] = Counter()
    every = [(name, row) for name in FAMILIES for row in read_rows(folder / f"{name}.csv")]
    for name, row in every:
        reason = _reason(row)
        if reason:
            left[reason] += 1
        else:
            rows.setdefault(name, []).append(row)
    _check_device([row for _, row in every], hardware, folder)
    if not rows:
        raise InputError(f"{folder}: no undisturbed row to fit on; measure with --threads 1")
    used = [row for found in rows.values() for row in found]
    dates = sorted(row["date"][:10] for row in used)
    releases = sorted({row["framework_version"] for row in used})
    return Run(
        sets=sets_of_rows(rows),
        left_out={reason: f"{count} rows" for reason, count in left.items()},
        release="+".join(releases),
        source=f"{len(used)} rows of calibrate run on {used[0]['device']}, {used[0]['threads']} "
        f"{'threads' if used[0]['kind'] == 'cpu' else 'SMs'}, {dates[0]}",
    )


def _reason(row: Row) -> str:
    """Why a fit doesn't take a row, or nothing."""
    if row["status"] != "ok":
        return "failed when measured"
    return "" if row["quality"] in GOOD else "disturbed by other jobs"


def _check_device(rows: list[Row], hardware: Hardware, folder: Path) -> None:
    devices = {(row["device"], row["threads"], row["kind"]) for row in rows}
    if len(devices) > 1:
        raise InputError(f"{folder}: rows of several devices or numbers of threads")
    for _, threads, kind in devices:
        if hardware.sm_count is not None and str(hardware.sm_count) != threads and kind == "cpu":
            raise InputError(
                f"{folder}: measured on {threads} threads, and {hardware.name} has "
                f"{hardware.sm_count}: give the run's own profile.yaml"
            )


def sets_of_rows(rows: Mapping[str, list[Row]]) -> dict[str, Measured]:
    """The rows of a run by the set that they belong to.

    A format's commonest kernel has the plain name (``attention_decode.bf16``), others theirs
    behind it.
    """
    groups: dict[tuple[str, str], list[tuple[str, Row]]] = {}
    for family, found in rows.items():
        for row in found:
            for key in _keys(family, row):
                groups.setdefault(key, []).append((family, row))
    out: dict[str, Measured] = {}
    for (name, dtype), every in groups.items():
        members = _fewer_streams(every) if name == "elementwise" else every
        # Streams of every format serve each elementwise set, but make none by themselves.
        if name == "elementwise" and all(family == "bandwidth" for family, _ in members):
            continue
        kernels = Counter(_kernel(name, row) for _, row in members)
        plain = kernels.most_common(1)[0][0]
        for kernel in kernels:
            mine = [pair for pair in members if _kernel(name, pair[1]) == kernel]
            label = name if name == "launch" else f"{name}.{SHORT.get(dtype, dtype)}"
            label += "" if kernel == plain else f".{kernel}"
            out[label] = _measured(name, mine, kernel, dtype)
    return out


def _fewer_streams(members: list[tuple[str, Row]]) -> list[tuple[str, Row]]:
    """One stream of each kind: their small errors would make the others' intervals look small."""
    seen: set[str] = set()
    out = []
    for family, row in members:
        if family != "bandwidth" or row["op"] not in seen:
            out.append((family, row))
        if family == "bandwidth":
            seen.add(row["op"])
    return out


def _kernel(name: str, row: Row) -> str:
    """What tells kernels of one set apart; streams and layers run with their set's others."""
    return row["kernel"] if name.startswith("attention") else "any"


def _keys(family: str, row: Row) -> Iterator[tuple[str, str]]:
    if family in ("gemm", "matmul_peak"):
        yield "gemm", row["dtype"]
    elif family in ("grouped_gemm", "moe"):
        yield "grouped_gemm", row["dtype"]
    elif family.startswith("attention"):
        yield family, row["kv_dtype"]
    elif family == "launch":
        yield "launch", ""
    elif family == "elementwise" and row["kernel"] == "torch.eager":
        yield "elementwise", row["dtype"]
    elif family == "bandwidth" and row["op"] in STREAMS:
        yield "elementwise", "bfloat16"
        yield "elementwise", "float32"


def _measured(name: str, members: list[tuple[str, Row]], kernel: str, dtype: str) -> Measured:
    shapes = [SHAPES[name](family, row) for family, row in members]
    rows = [row for _, row in members]
    return Measured(
        family=name,
        shapes={key: np.asarray([shape[key] for shape in shapes]) for key in shapes[0]},
        seconds=np.asarray([float(row["latency_us"]) for row in rows]) * MICROSECOND,
        flops=np.asarray([float(row["flops"]) for row in rows]),
        bytes=np.asarray([float(row["bytes"]) for row in rows]),
        kernel=rows[0]["kernel"] if kernel == "any" else kernel,
        dtype=dtype,
        clocked=all(row["method"] == "clock" for row in rows),
    )


def _numbers(row: Row, *names: str) -> dict[str, float]:
    return {name: float(row[name]) for name in names}


def _gemm(family: str, row: Row) -> dict[str, float]:
    del family
    return _numbers(row, "m", "n", "k")


def _attention(family: str, row: Row) -> dict[str, float]:
    own = ("kv_len",) if family == "attention_decode" else ("q_len", "prefix_len")
    sizes = _numbers(row, "batch", *own, "heads", "kv_heads", "head_dim", "window")
    return sizes | {"kv_bytes": BITS[row["kv_dtype"]] / 8}


def _grouped(family: str, row: Row) -> dict[str, float]:
    """A projection, or the two of a layer with the activation between them."""
    s = _numbers(row, *(c for c in FAMILIES[family].columns if c != "distribution"))
    rows = s["rows"] if family == "grouped_gemm" else s["tokens"] * s["topk"]
    active = sum(count > 0 for count in rows_of(int(rows), int(s["experts"]), row["distribution"]))
    if family == "grouped_gemm":
        made = {"elements": s["n"] * s["k"], "widths": s["n"] + s["k"], "calls": 1.0}
    else:
        hidden, inter = s["hidden"], s["inter"]
        made = {"elements": 3 * hidden * inter, "widths": 2 * hidden + 6 * inter, "calls": 2.0}
    return {"rows": rows, "active": float(active), **made}


def _elementwise(family: str, row: Row) -> dict[str, float]:
    made = dict.fromkeys((*OPERATIONS.values(), "copy"), 0.0)
    operation = "copy" if family == "bandwidth" else OPERATIONS[row["op"]]
    return made | {operation: float(row["bytes"])}


def _launch(family: str, row: Row) -> dict[str, float]:
    del family
    return {"graph": 1.0 if row["op"] == "graph" else 0.0}


SHAPES: dict[str, Callable[[str, Row], dict[str, float]]] = {
    "gemm": _gemm,
    "attention_decode": _attention,
    "attention_prefill": _attention,
    "grouped_gemm": _grouped,
    "elementwise": _elementwise,
    "launch": _launch,
}
"""A row's shape as the set's form takes it."""
