"""Three numbers of an engine preset fitted on measured loads: kernels, host step, host sequence.

A closed loop's mean times are nearly linear in these numbers, so each row is simulated four times
(as the preset is, and with each number moved) and the fit runs on the straight lines; a preset
that is written is simulated again. Each number is drawn to the preset's own by a prior, so that
one point moves it a little and five decide it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from calibrate.serving_check import Predicted, Predictor
from calibrate.serving_table import Row
from perfmodel.errors import PerfmodelError
from perfmodel.operators.quantity import Array
from perfmodel.serving.step_times import Chunk, StepTimes
from perfmodel.units import MICROSECOND

NAMES = ("kernels", "step_us", "sequence_us")
MOVES = np.array([0.1, 200.0, 10.0])
"""By how much each number is moved for its line."""
WIDTHS = np.array([0.15, 300.0, 15.0])
"""Standard deviation of the priors: the log of the factor on kernels, and microseconds."""
NOISE = 0.03
"""Relative error of a row that the fit expects; larger ones count less and less (soft L1)."""
LEAST, MOST = np.array([0.5, 0.0, 0.0]), np.array([2.0, 1e4, 500.0])
"""Bounds of the numbers."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What is fitted."""

    kernels: float
    """Factor on the time of all kernels."""
    step_us: float
    sequence_us: float

    @property
    def array(self) -> Array:
        """(3,)."""
        return np.array([self.kernels, self.step_us, self.sequence_us])


class MovedSteps:
    """`StepTimes` with another host and kernels slower by a factor."""

    def __init__(self, times: StepTimes, own: Numbers, new: Numbers, speed: float = 1.0) -> None:
        self._times, self._own, self._new = times, own, new
        self._speed = MICROSECOND * speed
        self.tokens_per_step, self.width = times.tokens_per_step, times.width

    def _moved(self, seconds: float, sequences: int) -> float:
        own, new = self._own, self._new
        was = self._speed * (own.step_us + own.sequence_us * sequences)
        now = self._speed * (new.step_us + new.sequence_us * sequences)
        return max(seconds - was, 0.0) * new.kernels / own.kernels + now

    def decode(self, sequences: int, context: float) -> float:
        """A step of decoding sequences."""
        return self._moved(self._times.decode(sequences, context), sequences)

    def mixed(self, sequences: int, context: float, chunks: list[Chunk], ended: int) -> float:
        """A step with prompts."""
        seconds = self._times.mixed(sequences, context, chunks, ended)
        return self._moved(seconds, sequences + len(chunks))

    def linear_up_to(self, sequences: int, context: float) -> float:
        """As the times that are moved."""
        return self._times.linear_up_to(sequences, context)


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


def responses(predictor: Predictor, rows: Sequence[Row]) -> list[Response | Predicted]:
    """Four simulations of each row; a `Predicted` with its reason where there is none."""
    return [_response(predictor, row) for row in rows]


def _response(predictor: Predictor, row: Row) -> Response | Predicted:
    base = predictor.predict(row)
    if base.reason:
        return base
    case = predictor.served(row)
    host = case.plan.engine.host
    own = Numbers(1.0, host.step_us, host.sequence_us)
    slopes = np.zeros((2, 3))
    at = np.array([base.ttft_ms, base.tpot_ms])
    for place, move in enumerate(MOVES):
        moved = own.array
        moved[place] += move
        new = Numbers(*(float(value) for value in moved))
        times = MovedSteps(case.engine.times, own, new, host.speed)
        try:
            found = predictor.run(row, replace(case.engine, times=times))
        except PerfmodelError as error:
            return Predicted(row, reason=str(error))
        slopes[:, place] = (np.array(found) - at) / move
    return Response(base, own, slopes)


def fit_numbers(rows: Sequence[Response]) -> Numbers:
    """The numbers that suit the rows' TPOT best; at least one row, all of one engine."""
    own = rows[0].own
    base = np.array([r.predicted.tpot_ms for r in rows])
    slopes = np.stack([r.slopes[1] for r in rows])
    measured = np.array([r.predicted.row.tpot_ms for r in rows])

    def numbers(free: Array) -> Array:
        moved: Array = own.array + np.append(0.0, WIDTHS[1:] * free[1:])
        moved[0] = own.kernels * np.exp(WIDTHS[0] * free[0])
        return moved

    def misfits(free: Array) -> Array:
        made = base + slopes @ (numbers(free) - own.array)
        errors = np.log(np.maximum(made, 0.05 * base) / measured) / NOISE
        robust = np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + errors**2) - 1))
        return np.concatenate([robust, free])

    low = np.array([np.log(LEAST[0]), *(LEAST[1:] - own.array[1:])]) / WIDTHS
    high = np.array([np.log(MOST[0]), *(MOST[1:] - own.array[1:])]) / WIDTHS
    found = least_squares(misfits, np.clip(np.zeros(3), low + 1e-9, high), bounds=(low, high))
    kernels, step, sequence = (float(value) for value in numbers(found.x))
    return Numbers(kernels, step, sequence)
