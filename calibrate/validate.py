"""Predictions for the rows of a measured table, and how wrong they are.

Rows are predicted as they were measured: with a set's own form, warm caches and quantised inputs
included, not with the cold one that a model's step takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from calibrate.predict_rows import predict_rows
from calibrate.schema import TIME, Family, Mask
from calibrate.score import Score, score
from calibrate.table_work import format_column
from calibrate.tables import Table, known_hardware
from perfmodel.errors import InputError
from perfmodel.kernels.calibration import Calibration, load_calibration
from perfmodel.kernels.choice import Choice
from perfmodel.kernels.timing import DeviceModel
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
    for here, ends, source in predict_rows(table.family, rows.iloc[wanted], model, choice):
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
