"""How well rows that weren't used are predicted: with nothing fitted, and with others' rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from calibrate.score import Score
from calibrate.serving_check import Predicted, score_of
from calibrate.serving_fit import Response, claims_ttft, fit_numbers
from calibrate.serving_preset import Numbers
from calibrate.serving_transfer import carried, deployment, value_of

DRAWS = 20
"""Draws of the points that are fitted on."""
POINTS = 4

Key = Callable[[Response], tuple[str, ...]]
Split = tuple[Sequence[Response], Sequence[Response]]
"""Rows that are fitted on, and rows that are scored."""
Fit = Callable[[Sequence[Response]], Numbers]


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


def layout(r: Response) -> tuple[str, ...]:
    """Rows of a deployment on so many GPUs."""
    return (*deployment(r), str(r.predicted.row.tp))


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
        for value in dict.fromkeys(value_of(r, field) for r in group):
            here = [r for r in group if value_of(r, field) == value]
            others = [r for r in group if value_of(r, field) != value]
            if others:
                yield others, here


def few(rows: Sequence[Response], points: int = POINTS, key: Key = deployment) -> Iterator[Split]:
    """Points of each group drawn several times, the others scored."""
    generator = np.random.default_rng(1)
    for group in _groups(rows, key).values():
        if len(group) <= points:
            continue
        for _ in range(DRAWS):
            order = [group[i] for i in generator.permutation(len(group))]
            yield order[:points], order[points:]


def spread(rows: Sequence[Response], key: Key = layout) -> Iterator[Split]:
    """As `few`, a point each of few and many users with short and long prompts."""
    generator = np.random.default_rng(1)
    for group in _groups(rows, key).values():
        if len(group) <= POINTS:
            continue
        for _ in range(DRAWS):
            chosen = _quarters(group, generator)
            yield [group[i] for i in chosen], [r for i, r in enumerate(group) if i not in chosen]


def _quarters(group: Sequence[Response], generator: np.random.Generator) -> list[int]:
    """A row of each quarter; of all rows where a quarter is empty."""
    users, prompts = (
        np.array([getattr(r.predicted.row, name) for r in group]) for name in ("concurrency", "isl")
    )
    many, long = users > np.median(users), prompts > np.median(prompts)
    chosen: list[int] = []
    for high, late in product((False, True), repeat=2):
        free = np.isin(np.arange(len(group)), chosen, invert=True)
        quarter = np.flatnonzero(free & (many == high) & (long == late))
        chosen.append(int(generator.choice(quarter if len(quarter) else np.flatnonzero(free))))
    return chosen


def outcome(name: str, splits: Iterator[Split], fit: Fit = fit_numbers) -> Outcome:
    """Fit and score every split; errors of all scored rows together."""
    made: list[Predicted] = []
    before: list[Predicted] = []
    for fitted, scored in splits:
        numbers = fit(fitted).array
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
    return score_of([p for p in rows if claims_ttft(p)], "ttft_ms")


def outcomes(rows: Sequence[Response]) -> list[Outcome]:
    """Every protocol, on rows without a flag."""
    plain = [r.predicted for r in rows]
    return [
        scored_as("no serving data", plain, plain),
        outcome("unseen points of a deployment", halves(rows)),
        outcome("unseen model", without(rows, "model"), lambda r: carried(r, ("model",)).numbers),
        outcome("unseen GPU", without(rows, "gpu"), lambda r: carried(r, ("gpu",)).numbers),
        outcome(f"{POINTS} points of the deployment", few(rows)),
        outcome(f"{POINTS} points of its tp", few(rows, key=layout)),
        outcome(f"{POINTS} spread points of its tp", spread(rows)),
    ]
