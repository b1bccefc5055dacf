"""Collectives: from a table of measured calls of one device to a calibrated set an operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from calibrate.calibrated import CalibratedSet, held_out, intervals
from calibrate.design import Indices
from calibrate.fit import fit_form
from calibrate.score import Score
from perfmodel.kernels.forms.base import Chip, Shapes
from perfmodel.kernels.forms.collective import CollectiveForm, Operation
from perfmodel.kernels.kernel_set import KernelSet
from perfmodel.operators.quantity import Array
from perfmodel.specs.hardware import Hardware
from perfmodel.units import MICROSECOND

OPERATIONS: dict[str, Operation] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
"""The table's names and ours."""
ELEMENT_BYTES = {"half": 2.0, "int8": 1.0}
FOLDS = 8
NARROW_EACH = 4
"""One in so many of a group's sizes is taken at one byte an element, the others at two."""


@dataclass(frozen=True, slots=True)
class CollectiveSet:
    """The calibration of one operation."""

    operation: Operation
    calibrated: CalibratedSet
    scores: Mapping[str, Score]
    """On the rows not used: all, by regime, above 10 µs."""
    unseen: Score
    """On rows whose (ranks, bytes) were used at neither width."""


def collective_chip(hardware: Hardware) -> Chip:
    """The datasheet's constants; without a link between devices, they talk over PCIe."""
    link = hardware.link or hardware.pcie
    if link is None:
        raise ValueError(f"{hardware.name} states no link between devices")
    return Chip.of(hardware, 1.0, link.gb_s_per_direction * 1e9)


def rows_of(table: pd.DataFrame) -> tuple[Shapes, Array]:
    """Shapes (n,) by name and seconds (n,) of one device and operation; repeats at their median.

    Raises:
        ValueError: rows of several devices or operations.
    """
    for name in ("gpu", "op"):
        if table[name].nunique() != 1:
            raise ValueError(f"rows of one {name} are needed, not of {table[name].nunique()}")
    keys = ["num_gpus", "message_bytes", "dtype"]
    merged = table.groupby(keys, as_index=False)["latency_us"].median()
    shapes = {
        "message_bytes": merged["message_bytes"].to_numpy(dtype=np.float64),
        "ranks": merged["num_gpus"].to_numpy(dtype=np.float64),
        "element_bytes": merged["dtype"].map(ELEMENT_BYTES).to_numpy(dtype=np.float64),
    }
    return shapes, merged["latency_us"].to_numpy(dtype=np.float64) * MICROSECOND


def spread_sizes(shapes: Shapes, count: int) -> Indices:
    """Indices (≤ count): for each number of ranks its sizes evenly, the ends included."""
    groups = np.unique(shapes["ranks"])
    taken: list[int] = []
    for ranks in groups:
        sizes = np.unique(shapes["message_bytes"][shapes["ranks"] == ranks])
        at = np.unique(np.round(np.linspace(0, len(sizes) - 1, count // len(groups))).astype(int))
        for number, size in enumerate(sizes[at]):
            here = (shapes["ranks"] == ranks) & (shapes["message_bytes"] == size)
            rows = np.flatnonzero(here)
            rows = rows[np.argsort(-shapes["element_bytes"][rows], kind="stable")]
            narrow = number % NARROW_EACH == NARROW_EACH // 2
            taken.append(int(rows[-1] if narrow else rows[0]))
    return np.unique(taken)


def calibrate_collectives(
    table: pd.DataFrame, hardware: Hardware, count: int = 24, seed: int = 0
) -> tuple[CollectiveSet, ...]:
    """Fit each operation on at most ``count`` rows, and score it on all others.

    The rows of an operation are too few for a learned correction, or for intervals of its own:
    those pool what was left out of the fits of all operations of the device.
    """
    chip = collective_chip(hardware)
    parts = [(op, *rows_of(rows)) for op, rows in table.groupby("op", sort=True)]
    used = [spread_sizes(shapes, count) for _, shapes, _ in parts]
    forms = [CollectiveForm(OPERATIONS[str(op)]) for op, _, _ in parts]
    left, regime = [], []
    for form, rows, (_, shapes, measured) in zip(forms, used, parts, strict=True):
        kept = take(shapes, rows)
        left.append(_left_out(form, chip, kept, measured[rows], seed))
        regime.append(form.regime(kept))
    ends = intervals(np.concatenate(left), np.concatenate(regime), forms[0].regimes)
    out = []
    for form, rows, (_, shapes, measured) in zip(forms, used, parts, strict=True):
        kept = take(shapes, rows)
        features = form.features(chip, kept)
        found = fit_form(form, chip, kept, measured[rows], seed=seed)
        kernels = KernelSet(
            form=form,
            values=found.values,
            residual=None,
            intervals=ends,
            box_low=features.min(axis=0),
            box_high=features.max(axis=0),
        )
        fitted = CalibratedSet(kernels, chip, found, rows)
        scores = held_out(fitted, shapes, measured)
        fresh = held_out(fitted, shapes, measured, _unseen(shapes, rows))["all"]
        out.append(CollectiveSet(form.operation, fitted, scores, fresh))
    return tuple(out)


def take(shapes: Shapes, rows: Indices) -> dict[str, Array]:
    """Rows of every shape."""
    return {name: size[rows] for name, size in shapes.items()}


def _unseen(shapes: Shapes, used: Indices) -> Indices:
    """Rows whose (ranks, bytes) no used row has."""
    keys = shapes["ranks"] * 2.0**40 + shapes["message_bytes"]
    return np.flatnonzero(~np.isin(keys, keys[used]))


def _left_out(
    form: CollectiveForm, chip: Chip, shapes: Shapes, measured: Array, seed: int
) -> Array:
    """log(measured / predicted) (n,) of each row by parameters fitted without it.

    The least and the largest message of each group stay in every fit, since predictions lie
    between them; their own residuals count as they are.
    """
    inner = np.ones(len(measured), dtype=bool)
    for ranks in np.unique(shapes["ranks"]):
        here = np.flatnonzero(shapes["ranks"] == ranks)
        order = here[np.argsort(shapes["message_bytes"][here])]
        inner[[order[0], order[-1]]] = False
    part = np.where(inner, np.random.default_rng(seed).permutation(len(measured)) % FOLDS, -1)
    left = np.empty(len(measured))
    for fold in range(-1, FOLDS):
        out = np.flatnonzero(part == fold)
        kept = np.flatnonzero(part != fold) if fold >= 0 else np.arange(len(measured))
        values = fit_form(form, chip, take(shapes, kept), measured[kept], starts=1).values
        left[out] = np.log(measured[out] / form.seconds(chip, values, take(shapes, out)))
    return left
