"""Predictions for the rows of a measured table, and how wrong they are.

Rows are predicted as they were measured: with a set's own form, warm caches and quantised inputs
included, not with the cold one that a model's step takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.schema import TIME, Family, Indices, Mask
from calibrate.score import Score, score
from calibrate.table_work import (
    format_column,
    operators_of,
    routing_code,
    set_name,
    shapes_of,
)
from calibrate.tables import Table, known_hardware
from perfmodel.errors import InputError
from perfmodel.kernels.calibration import Calibration, load_calibration
from perfmodel.kernels.calibration_file import LoadedSet
from perfmodel.kernels.choice import TRANSFER_WIDENS, Choice
from perfmodel.kernels.forms.base import Chip, Shapes
from perfmodel.kernels.forms.gemm_stack import block_kernel
from perfmodel.kernels.timing import DeviceModel
from perfmodel.operators.quantity import Array
from perfmodel.specs.hardware import Hardware
from perfmodel.units import MIB, MICROSECOND

ADDED = ("predicted_us", "lower_us", "upper_us", "source", "reason")
"""The columns that predictions add; ``reason`` says why there is none."""
FOREIGN = "measured on|unknown hardware"
"""How the reasons of rows of another device begin."""


@dataclass(frozen=True, slots=True)
class RegimeScore:
    """Errors of the predicted rows of one format within one regime."""

    family: Family
    dtype: str
    """As the table calls it; a collective's operation."""
    regime: str
    source: str
    score: Score


@dataclass(frozen=True, slots=True)
class Validation:
    """What `validate_table` found."""

    table: Table
    hardware: str
    predictions: pd.DataFrame
    """The columns of `ADDED`, row by row as the table's; NaN where there is no prediction."""
    scores: tuple[RegimeScore, ...]

    @property
    def predicted(self) -> Mask:
        """(n,) whether the row has a prediction."""
        mask: Mask = self.predictions["predicted_us"].notna().to_numpy()
        return mask

    @property
    def own(self) -> Table:
        """The rows that the device measured, for `calibrate.lint`."""
        mine = ~self.predictions["reason"].str.match(FOREIGN).to_numpy()
        rows = self.table.rows[mine].reset_index(drop=True)
        return replace(self.table, rows=rows, numbers=self.table.numbers[mine])

    @property
    def unpredicted(self) -> dict[str, int]:
        """Rows without a prediction, by reason; the commonest first."""
        reasons = self.predictions["reason"][~self.predicted]
        return {str(reason): int(count) for reason, count in reasons.value_counts().items()}

    @property
    def sources(self) -> dict[str, int]:
        """Predicted rows by where their prediction comes from."""
        counts = self.predictions["source"][self.predicted].value_counts()
        return {str(source): int(count) for source, count in counts.items()}

    @property
    def output(self) -> pd.DataFrame:
        """The table's rows with the predictions beside them."""
        return pd.concat([self.table.rows, self.predictions], axis=1)


def validate_table(
    table: Table,
    hardware: Hardware,
    choice: Choice | None,
    calibration: Calibration | None = None,
) -> Validation:
    """Predict every row that ``hardware`` measured, and score the predictions.

    Args:
        table: rows of one family.
        hardware: the device; rows of another one are left without a prediction.
        choice: the calibration, the device's own or a relative's; None: only the roof.
        calibration: shares of the roof for what ``choice`` doesn't cover; the generic ones.

    Raises:
        InputError: the table has one of the columns of `ADDED`.
    """
    taken = [name for name in ADDED if name in table.rows]
    if taken:
        raise InputError(f"{table.source}: has a column {taken[0]} already: predictions add it")
    rows = table.rows
    blank: dict[str, float | str] = dict.fromkeys(ADDED[:3], np.nan) | dict.fromkeys(ADDED[3:], "")
    out = pd.DataFrame(blank, index=rows.index)
    out["reason"] = _foreign(rows["gpu"], hardware)
    model = DeviceModel(hardware, calibration or load_calibration())
    wanted = np.flatnonzero((out["reason"] == "").to_numpy())
    for here, ends, source in _predict(table.family, rows.iloc[wanted], model, choice):
        at = wanted[here]
        if isinstance(ends, str):
            out.iloc[at, out.columns.get_loc("reason")] = ends  # type: ignore[index]
            continue
        for name, end in zip(ADDED[:3], ends, strict=True):
            out.iloc[at, out.columns.get_loc(name)] = end / MICROSECOND  # type: ignore[index]
        out.iloc[at, out.columns.get_loc("source")] = source  # type: ignore[index]
    return Validation(table, hardware.name, out, tuple(_scores(table, out)))


def output_of(validations: Sequence[Validation]) -> pd.DataFrame:
    """The rows of several families one below the other."""
    return pd.concat([v.output for v in validations], ignore_index=True)


def _foreign(names: pd.Series[str], hardware: Hardware) -> pd.Series[str]:
    """Why rows of each GPU aren't this device's; empty for those that are.

    A name that no profile has is taken for the device where the table names no other.
    """
    alone = names.nunique() == 1
    reasons = {}
    for name in names.unique():
        device = known_hardware(str(name))
        if device is not None and device.name != hardware.name:
            reasons[name] = f"measured on {device.name}, not {hardware.name}"
        elif device is None and not alone and name != hardware.name:
            reasons[name] = f"unknown hardware {str(name)[:60]!r}"
        else:
            reasons[name] = ""
    return names.map(reasons)


Ends = tuple[Array, Array, Array]
"""Seconds with the low and high end of the interval, each (n,)."""
Piece = tuple[Indices, Ends | str, str]
"""Positions of rows, their predictions or the reason for none, and the source."""


def _predict(
    family: Family, rows: pd.DataFrame, model: DeviceModel, choice: Choice | None
) -> Iterator[Piece]:
    """What is known of the rows, format by format."""
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
            ends = _by_set(sets[name], chip, shapes_of(family, rows.iloc[mine]), choice)
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


def _by_set(found: LoadedSet, chip: Chip, shapes: Shapes, choice: Choice) -> Ends:
    time, low, high = found.kernels.predict(chip, shapes)
    if choice.origin == "transferred":
        low = time * (low / time) ** TRANSFER_WIDENS
        high = time * (high / time) ** TRANSFER_WIDENS
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


def regimes(family: Family, rows: pd.DataFrame) -> dict[str, Mask]:
    """Masks (n,) over ``rows`` by regime; a row is in several."""
    masks: dict[str, Mask] = {"all": np.ones(len(rows), dtype=np.bool_)}
    if family == "gemm":
        masks |= _halves("m", rows["m"], 64)
    elif family == "moe":
        masks |= _halves("tokens", rows["tokens"], 64)
    elif family == "collective":
        small = (rows["message_bytes"] <= MIB).to_numpy()
        masks |= {"≤ 1 MiB": small, "> 1 MiB": ~small}
    elif family.startswith("attention"):
        decode = family == "attention_decode"
        total = rows["kv_len"] if decode else rows["q_len"] + rows["prefix_len"]
        cut = ((rows["window"] > 0) & (rows["window"] < total)).to_numpy()
        masks |= {"windowed": cut, "not windowed": ~cut}
    masks["over 10 µs"] = (rows[TIME] > 10).to_numpy()
    return masks


def _halves(name: str, size: pd.Series[int], limit: int) -> dict[str, Mask]:
    small = (size <= limit).to_numpy()
    return {f"{name} ≤ {limit}": small, f"{name} > {limit}": ~small}


def _scores(table: Table, out: pd.DataFrame) -> Iterator[RegimeScore]:
    usable = out["predicted_us"].notna().to_numpy()
    rows, out = table.rows[usable], out[usable]
    masks = regimes(table.family, rows)
    formats = rows[format_column(table.family)].to_numpy()
    for name in dict.fromkeys(formats):
        of_format = formats == name
        for regime, mask in masks.items():
            mine = of_format & mask
            if not mine.any():
                continue
            predicted, low, high = (out[end].to_numpy()[mine] for end in ADDED[:3])
            sources = " · ".join(dict.fromkeys(out["source"][mine]))
            found = score(predicted, rows[TIME].to_numpy()[mine], low, high)
            yield RegimeScore(table.family, str(name), regime, sources, found)
