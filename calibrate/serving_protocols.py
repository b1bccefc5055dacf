"""How well rows that weren't used are predicted: with nothing fitted, and with others' rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from calibrate.score import Score
from calibrate.serving_check import Predicted, score_of
from calibrate.serving_fit import Response, fit_numbers
from calibrate.serving_flags import ttft_flag

DRAWS = 20
"""Draws of the points that are fitted on."""
POINTS = 4

Key = Callable[[Response], tuple[str, ...]]
Split = tuple[Sequence[Response], Sequence[Response]]
"""Rows that are fitted on, and rows that are scored."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Errors under one protocol, beside those of the preset on the same rows."""

    name: str
    tpot: Score
    ttft: Score
    """Of rows whose TTFT makes a claim."""
    tpot_before: Score
    ttft_before: Score


def engine(r: Response) -> tuple[str, ...]:
    """Rows that share a preset."""
    return (r.predicted.row.engine,)


def deployment(r: Response) -> tuple[str, ...]:
    """Rows of one engine, model, GPU and format, whatever tp, lengths and load."""
    row = r.predicted.row
    return (row.engine, row.model, row.gpu, row.weights)


def _groups(rows: Sequence[Response], key: Key) -> dict[tuple[str, ...], list[Response]]:
    found: dict[tuple[str, ...], list[Response]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def halves(rows: Sequence[Response]) -> Iterator[Split]:
    """Each deployment's rows in two halves by seeded draw, each fitted on once."""
    generator = np.random.default_rng(0)
    for group in _groups(rows, deployment).values():
        order = [group[i] for i in generator.permutation(len(group))]
        one, two = order[::2], order[1::2]
        if one and two:
            yield one, two
            yield two, one


def without(rows: Sequence[Response], field: str) -> Iterator[Split]:
    """Each value of ``field`` scored with the engine's rows of all others."""
    for group in _groups(rows, engine).values():
        values = dict.fromkeys(getattr(r.predicted.row, field) for r in group)
        for value in values:
            here = [r for r in group if getattr(r.predicted.row, field) == value]
            others = [r for r in group if getattr(r.predicted.row, field) != value]
            if others:
                yield others, here


def few(rows: Sequence[Response], points: int = POINTS) -> Iterator[Split]:
    """Points of each deployment drawn several times, the others scored."""
    generator = np.random.default_rng(1)
    for group in _groups(rows, deployment).values():
        if len(group) <= points:
            continue
        for _ in range(DRAWS):
            order = [group[i] for i in generator.permutation(len(group))]
            yield order[:points], order[points:]


def outcome(name: str, splits: Iterator[Split]) -> Outcome:
    """Fit and score every split; errors of all scored rows together."""
    made: list[Predicted] = []
    before: list[Predicted] = []
    for fitted, scored in splits:
        numbers = fit_numbers(fitted).array
        made += [r.at(numbers) for r in scored]
        before += [r.predicted for r in scored]
    return scored_as(name, made, before)


def scored_as(name: str, made: Sequence[Predicted], before: Sequence[Predicted]) -> Outcome:
    """The outcome of predictions beside those of the preset."""
    return Outcome(
        name, score_of(made, "tpot_ms"), claimed(made),
        score_of(before, "tpot_ms"), claimed(before),
    )  # fmt: skip


def claimed(rows: Sequence[Predicted]) -> Score:
    """Errors of TTFT where it makes a claim and the cache isn't full."""
    return score_of([p for p in rows if not ttft_flag(p.row) and not p.kv_bound], "ttft_ms")


def outcomes(rows: Sequence[Response]) -> list[Outcome]:
    """Every protocol, on rows without a flag."""
    plain = [r.predicted for r in rows]
    return [
        scored_as("no serving data", plain, plain),
        outcome("unseen points of a deployment", halves(rows)),
        outcome("unseen model", without(rows, "model")),
        outcome("unseen GPU", without(rows, "gpu")),
        outcome(f"{POINTS} points of the deployment", few(rows)),
    ]
