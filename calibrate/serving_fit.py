"""Three numbers of an engine preset fitted on measured loads: reads, compute, host per sequence.

Which requests share a step of a closed loop doesn't depend on how long steps take, so that its mean
times are linear in these numbers until a kernel's limit changes. Each row is simulated four times
(with the preset, and with each number moved) and the fit runs on the straight lines; a preset that
is written is simulated again. Each number is drawn to the preset's own by a prior, so that one
point moves it a little and five decide it.

TPOT is fitted, and TTFT where it makes a claim: how long prompts take shows there, while a TPOT
alone can't tell slow prompts from slow decoding.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from calibrate.serving_check import Predicted, Predictor
from calibrate.serving_flags import ttft_flag
from calibrate.serving_preset import Numbers, changed, numbers_of, own_numbers, text_of
from calibrate.serving_table import Row
from perfmodel.operators.quantity import Array
from perfmodel.specs.engine import Engine

MOVES = np.array([0.1, 0.1, 10.0])
"""By how much each number is moved for its line."""
WIDTHS = np.array([0.15, 0.15, 15.0])
"""Standard deviations of the priors: the logs of the factors, and microseconds."""
NOISE = np.array([0.10, 0.03])
"""Relative error of a row's TTFT and TPOT that the fit expects; larger ones count less and less
(soft L1). Repeated measurements of one release differ by 3 and 0.6 %, in one case of ten by 21 and
9 %: TTFT by about three times as much."""


@dataclass(frozen=True, slots=True)
class Response:
    """A row's times at the preset's numbers, and their slopes."""

    predicted: Predicted
    own: Numbers
    slopes: Array
    """(2, 3): milliseconds of TTFT and TPOT for one unit of each number."""

    def at(self, numbers: Array) -> Predicted:
        """The row with other numbers."""
        p = self.predicted
        base = np.array([p.ttft_ms, p.tpot_ms])
        ttft, tpot = np.maximum(base + self.slopes @ (numbers - self.own.array), 0.05 * base)
        return replace(p, ttft_ms=float(ttft), tpot_ms=float(tpot))


def claims_ttft(p: Predicted) -> bool:
    """Whether a row's TTFT is one that the simulator can be held to.

    Users of equal lengths start and end together in a simulation; servers spread them, or don't.
    """
    return not ttft_flag(p.row) and not p.kv_bound and p.row.length_factor < 1


def responses(predictor: Predictor, rows: Sequence[Row]) -> list[Response | Predicted]:
    """Four simulations of each row; a `Predicted` with its reason where there is none."""
    with tempfile.TemporaryDirectory() as folder:
        moved = _Moved(predictor, Path(folder))
        return [_response(predictor, moved, row) for row in rows]


class _Moved:
    """Predictors whose presets have one number moved."""

    def __init__(self, predictor: Predictor, folder: Path) -> None:
        self._predictor, self._folder = predictor, folder
        self._made: dict[str, list[Predictor]] = {}

    def of(self, engine: Engine) -> list[Predictor]:
        """For each number."""
        if engine.name not in self._made:
            self._made[engine.name] = [self._one(engine, place) for place in range(len(MOVES))]
        return self._made[engine.name]

    def _one(self, engine: Engine, place: int) -> Predictor:
        numbers = own_numbers(engine).array
        numbers[place] += MOVES[place]
        path = self._folder / f"{len(self._made)}-{place}.yaml"
        path.write_text(text_of(changed(engine, numbers_of(numbers))), encoding="utf-8")
        return self._predictor.with_engine(str(path))


def _response(predictor: Predictor, moved: _Moved, row: Row) -> Response | Predicted:
    base = predictor.predict(row)
    if base.reason:
        return base
    engine = predictor.served(row).plan.engine
    slopes = np.zeros((2, len(MOVES)))
    for place, other in enumerate(moved.of(engine)):
        found = other.predict(row)
        if found.reason:
            return replace(base, reason=found.reason)
        change = (found.ttft_ms - base.ttft_ms, found.tpot_ms - base.tpot_ms)
        slopes[:, place] = np.array(change) / MOVES[place]
    return Response(base, own_numbers(engine), slopes)


@dataclass(frozen=True, slots=True)
class _Lines:
    """The times that are fitted of some rows: (n,), and (n, 3) for their slopes."""

    base: Array
    slopes: Array
    measured: Array
    noise: Array

    def misfits(self, change: Array) -> Array:
        """Errors over what is expected, whose squares are soft L1, with numbers so changed."""
        made = np.maximum(self.base + self.slopes @ change, 0.05 * self.base)
        errors = np.log(made / self.measured) / self.noise
        robust: Array = np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + errors**2) - 1))
        return robust


def _lines(rows: Sequence[Response]) -> _Lines:
    base, measured = (
        np.array([(p.ttft_ms, p.tpot_ms) for p in points])
        for points in ([r.predicted for r in rows], [r.predicted.row for r in rows])
    )
    used = np.isfinite(measured)
    used[:, 0] &= np.array([claims_ttft(r.predicted) for r in rows])
    slopes = np.stack([r.slopes for r in rows])
    noise = np.broadcast_to(NOISE, used.shape)
    return _Lines(base[used], slopes[used], measured[used], noise[used])


def fit_numbers(rows: Sequence[Response]) -> Numbers:
    """The numbers that suit the rows best; at least one row, all of one deployment."""
    return fit_common([rows], 1.0)


def fit_common(groups: Sequence[Sequence[Response]], share: float) -> Numbers:
    """The numbers that groups have in common; at least one row, all of one engine.

    Args:
        groups: rows of one deployment each.
        share: of the prior's variance that all groups have in common. The rest is each group's
            own and isn't carried over: 1 takes all rows as one deployment's, 0 gives the preset.
    """
    own = groups[0][0].own
    lines = [_lines(rows) for rows in groups]
    common, apart = np.sqrt(share), np.sqrt(1 - share)

    def numbers(free: Array) -> Numbers:
        moved: Array = own.array + np.append(np.zeros(2), WIDTHS[2:] * free[2:])
        moved[:2] = own.array[:2] * np.exp(WIDTHS[:2] * free[:2])
        return numbers_of(moved)

    def misfits(flat: Array) -> Array:
        shared, *each = flat.reshape(-1, len(WIDTHS))
        parts = [
            line.misfits(numbers(common * shared + apart * mine).array - own.array)
            for line, mine in zip(lines, each, strict=True)
        ]
        return np.concatenate([*parts, flat])

    found = least_squares(misfits, np.zeros(len(WIDTHS) * (1 + len(groups))))
    return numbers(common * found.x[: len(WIDTHS)])
