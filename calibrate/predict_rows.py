"""Predictions of measured rows: which set each row belongs to, else its share of the roof."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.schema import Family, Indices
from calibrate.table_work import format_column, operators_of, routing_code, set_name, shapes_of
from perfmodel.errors import InputError
from perfmodel.kernels.calibration_file import LoadedSet
from perfmodel.kernels.choice import Choice, transfer_widens
from perfmodel.kernels.forms.base import Chip, Shapes
from perfmodel.kernels.forms.gemm_stack import block_kernel
from perfmodel.kernels.timing import DeviceModel
from perfmodel.operators.quantity import Array
from perfmodel.specs.hardware import Hardware

Ends = tuple[Array, Array, Array]
"""Seconds with the low and high end of the interval, each (n,)."""
Piece = tuple[Indices, Ends | str, str]
"""Positions of rows, their predictions or the reason for none, and the source."""


def predict_rows(
    family: Family, rows: pd.DataFrame, model: DeviceModel, choice: Choice | None
) -> Iterator[Piece]:
    """What is known of the rows, format by format, in pieces that cover all of them."""
    column = rows[format_column(family)].to_numpy()
    for name in dict.fromkeys(column):
        here = np.flatnonzero(column == name)
        wanted = set_name(family, str(name))
        if wanted is None:
            kind = "operation" if family == "collective" else "dtype"
            yield here, f"unknown {kind} {str(name)[:60]!r}", ""
            continue
        if family == "moe":
            known = rows["distribution"].iloc[here].map(routing_code).notna().to_numpy()
            for odd in dict.fromkeys(rows["distribution"].iloc[here[~known]]):
                mine = here[(rows["distribution"].iloc[here] == odd).to_numpy()]
                yield mine, f"unknown distribution {str(odd)[:60]!r}", ""
            here = here[known]
        if len(here):
            yield from _of_format(family, rows, here, wanted, model, choice)


def _of_format(
    family: Family, rows: pd.DataFrame, here: Indices, wanted: str, model: DeviceModel,
    choice: Choice | None,
) -> Iterator[Piece]:  # fmt: skip
    """By the set of each row's kernel, and within collectives for each number of GPUs."""
    sets = {} if choice is None else choice.calibrated.sets
    names = sets_of(wanted, rows.iloc[here], model.hardware, sets)
    groups = rows["num_gpus"].to_numpy() if family == "collective" else np.zeros(len(rows))
    for name in dict.fromkeys(names):
        for ranks in np.unique(groups[here]):
            mine = here[(names == name) & (groups[here] == ranks)]
            chip = _chip(family, sets.get(name), model, int(ranks))
            if len(mine) == 0:
                continue
            if choice is None or chip is None:
                yield from _by_roof(family, rows.iloc[mine], mine, model)
                continue
            shapes = shapes_of(family, rows.iloc[mine])
            if name.startswith("grouped_gemm."):
                shapes = layer_shapes(shapes)
            ends = _by_set(name, sets[name], chip, shapes, choice)
            yield mine, ends, choice.label


def sets_of(
    wanted: str, rows: pd.DataFrame, hardware: Hardware, sets: Mapping[str, LoadedSet]
) -> NDArray[np.str_]:
    """The set's name for each row (n,); empty where there is none.

    A format may have a set for each kernel (``gemm.fp8_block.deepgemm``): the one that the row's
    kernel names, else the one that the library would take, else the set for all or the first.
    An MLA prefill multiplies in 16 bits whatever the cache: one set serves both.
    """
    by_kernel = {name.removeprefix(f"{wanted}."): name for name in sets
                 if name.startswith(f"{wanted}.")}  # fmt: skip
    plain = wanted if wanted in sets else next(iter(by_kernel.values()), "")
    grouped = wanted.replace("experts.", "grouped_gemm.")
    if not plain and grouped in sets:
        plain = grouped
    if not plain and wanted.startswith("mla_prefill.") and "mla_prefill.bf16" in sets:
        plain = "mla_prefill.bf16"
    out = np.full(len(rows), plain, dtype=object)
    if by_kernel and wanted == "gemm.fp8_block":
        taken = block_kernel(hardware, shapes_of("gemm", rows))
        out = np.asarray([by_kernel.get(kernel, plain) for kernel in taken], dtype=object)
    labels = rows["kernel"].str.lower().to_numpy()
    # The longest last: a name may be part of another.
    for kernel in sorted(by_kernel, key=len):
        out[[kernel.lower() in label for label in labels]] = by_kernel[kernel]
    return out.astype(np.str_)


def layer_shapes(shapes: Shapes) -> dict[str, Array]:
    """An expert layer as its two grouped multiplies with the activation between."""
    hidden, inter = shapes["hidden"], shapes["inter"] / shapes["moe_tp"]
    return {
        "rows": shapes["rows"],
        "active": shapes["active"],
        "elements": (2 + shapes["gated"]) * hidden * inter,
        "widths": 2 * hidden + (2 + 4 * shapes["gated"]) * inter,
        "calls": np.full(len(hidden), 2.0),
    }


def _chip(family: Family, found: LoadedSet | None, model: DeviceModel, ranks: int) -> Chip | None:
    """The device's constants for a set; None where it can't be used on the device."""
    if found is None:
        return None
    if family == "collective":
        link, inside = model.wire_rate(ranks)
        memory = model.hardware.memory_bandwidth
        return Chip(1.0, memory, 1, 1e9, 1.0, link) if inside and ranks > 1 else None
    known = model.hardware.peak(found.arithmetic) is not None
    return model.chip(found.arithmetic) if known else None


def _by_set(name: str, found: LoadedSet, chip: Chip, shapes: Shapes, choice: Choice) -> Ends:
    time, low, high = found.kernels.predict(chip, shapes)
    if choice.origin == "transferred":
        widen = transfer_widens(name)
        low, high = time * (low / time) ** widen, time * (high / time) ** widen
    return time, low, high


def _by_roof(
    family: Family, rows: pd.DataFrame, here: Indices, model: DeviceModel
) -> Iterator[Piece]:
    """The generic shares of the roof, for families and formats without a set."""
    for part, operator in operators_of(family, rows):
        try:
            time = model.time(operator)
        except InputError as error:
            yield here[part], f"no set, and {error}", ""
            continue
        ends = (time.time_s, time.low_s, time.high_s)
        count = len(part)
        made = [np.broadcast_to(np.asarray(end, dtype=np.float64), (count,)) for end in ends]
        yield here[part], (made[0], made[1], made[2]), f"no set: {time.source} share of the roof"
