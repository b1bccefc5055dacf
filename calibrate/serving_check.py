"""Simulated loads beside measured ones: what `validate serving` and `calibrate serving` run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from calibrate.score import Score, score
from calibrate.serving_flags import flags_of, ttft_flag
from calibrate.serving_settings import EXPERT_SKEW, settings_of, spread_of
from calibrate.serving_table import Row, ServingTable
from perfmodel.errors import InputError, PerfmodelError
from perfmodel.serving.arrivals import ClosedLoop, Demand
from perfmodel.serving.engine import Engine
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.lockstep import LockstepSteps
from perfmodel.serving.serve import Served, Serving, served
from perfmodel.serving.simulate import simulate_engines
from perfmodel.serving.step_times import StepTimes
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.loading import load_model
from perfmodel.specs.model import MoeFfn

ENGINES: Mapping[str, str] = {"vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm-2025"}
"""The preset of an engine's name; another name is a preset or a file itself."""
ROUNDS = 10
"""Requests of each user, as InferenceX sends them; the first round starts at once."""
BOUND = 0.9
"""Share of the cache that all users' sequences need from which a row counts as bound by it."""
REGIMES = ((8, "C <= 8"), (32, "C <= 32"), (128, "C <= 128"), (math.inf, "C > 128"))

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Predicted:
    """What the simulator says of a row; NaN and a reason where it can say nothing."""

    row: Row
    ttft_ms: float = math.nan
    tpot_ms: float = math.nan
    kv_bound: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GroupScore:
    """Errors of the rows of a group; in per cent."""

    group: str
    """``all``, ``engine``, ``model``, ``gpu``, ``bench``, ``concurrency``, ``kv``."""
    name: str
    tpot: Score
    ttft: Score


@dataclass(frozen=True, slots=True)
class ServingCheck:
    """A table with predictions, flags and scores."""

    table: ServingTable
    predicted: tuple[Predicted, ...]
    flags: tuple[str, ...]
    scores: tuple[GroupScore, ...]
    """Of rows without a flag."""
    flagged: tuple[GroupScore, ...]
    """Of the others, by flag."""


class Predictor:
    """Predicts rows, with one engine for all rows of a deployment.

    Args:
        engine: a preset or file for every row; None: by the row's engine.
        rounds: requests of each user.
    """

    def __init__(self, engine: str | None = None, rounds: int = ROUNDS) -> None:
        self._engine = engine
        self._rounds = rounds
        self._cases: dict[tuple[object, ...], Served | str] = {}
        self._times: dict[tuple[object, ...], StepTimes | LockstepSteps] = {}

    def with_engine(self, engine: str) -> Predictor:
        """The same loops on another preset or file."""
        return Predictor(engine, self._rounds)

    def served(self, row: Row) -> Served:
        """The row's engine; rows that differ in limits alone share their step times.

        Raises:
            InputError: no such model, GPU or engine, or it doesn't fit.
        """
        settings = settings_of(row)
        preset = self._engine or ENGINES.get(row.engine, row.engine)
        same = (row.model, row.gpu, preset, row.weights, row.tp, row.ep, row.attention_dp,
                settings.kv_cache)  # fmt: skip
        key = (*same, settings, row.max_num_seqs)
        made = self._cases.get(key)
        if made is None:
            made = _serve(row, preset)
            if not isinstance(made, str):
                times = self._times.setdefault(same, made.engine.times)
                made = replace(made, engine=replace(made.engine, times=times))
            self._cases[key] = made
        if isinstance(made, str):
            raise InputError(made)
        return made

    def predict(self, row: Row) -> Predicted:
        """Simulate a row's closed loop; never raises for what a row holds."""
        try:
            case = self.served(row)
            ttft, tpot = self.run(row, case.engine)
        except PerfmodelError as error:
            return Predicted(row, reason=str(error))
        return Predicted(row, ttft, tpot, kv_bound=_bound(row, case))

    def run(self, row: Row, engine: Engine) -> tuple[float, float]:
        """Mean TTFT and TPOT in milliseconds of a row's closed loop on ``engine``.

        Raises:
            InputError: a request that can never be served.
        """
        users = spread_of(row).users
        demand = Demand(
            ClosedLoop(users),
            _lengths(row.isl, row.length_factor),
            _lengths(row.osl, row.length_factor),
            self._rounds * users,
        )
        found = simulate_engines(demand, engine)
        tpot = 1e3 * found.tpot_s.mean
        return 1e3 * found.ttft_s.mean + settings_of(row).ttft_steps * tpot, tpot


def _serve(row: Row, preset: str) -> Served | str:
    """The row's deployment, or why there is none."""
    settings = settings_of(row)
    ranks = spread_of(row).ranks
    if row.attention_dp > 1 and ranks == 1:
        return "attention data parallelism: ep above tp is needed, experts that the ranks share"
    try:
        model = load_model(row.model)
        routed = any(isinstance(layer.ffn, MoeFfn) for layer in model.layers)
        deployment = Deployment(
            tp=row.tp, ep=row.ep, dp=ranks, weights=row.weights or "auto", engine=preset,
            kv_cache=settings.kv_cache or "auto", max_num_seqs=row.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            gpu_memory_utilization=settings.gpu_memory_utilization,
            expert_skew=EXPERT_SKEW if routed else 0.0,
        )  # fmt: skip
        return served(model, row.gpu, deployment, Serving(prefix_caching=False))
    except PerfmodelError as error:
        return str(error)


def _lengths(nominal: int, factor: float) -> Lengths:
    """Evenly from (2·factor − 1) of the nominal length to all of it."""
    if factor == 1:
        return Lengths("constant", (nominal,))
    return Lengths("uniform", (max(1, round((2 * factor - 1) * nominal)), nominal))


def _bound(row: Row, case: Served) -> bool:
    """Whether the users' sequences, half their outputs made, need most of the cache."""
    engine = case.engine
    tokens = row.length_factor * (row.isl + row.osl / 2)
    return bool(spread_of(row).users * tokens / engine.blocks().block > BOUND * engine.capacity)


def check_serving(
    table: ServingTable, engine: str | None = None, progress: Progress | None = None
) -> ServingCheck:
    """Predict a table's rows and score them."""
    predictor = Predictor(engine)
    found: list[Predicted] = []
    same: dict[Row, Predicted] = {}
    for row in table.rows:
        key = replace(row, number=0, ttft_ms=0.0, tpot_ms=0.0, engine_version="")
        if key not in same:
            same[key] = predictor.predict(row)
        found.append(replace(same[key], row=row))
        if progress is not None:
            progress(len(found), len(table.rows))
    flags = flags_of(table.rows)
    clean = [p for p, flag in zip(found, flags, strict=True) if not flag and not p.reason]
    odd = [(p, flag) for p, flag in zip(found, flags, strict=True) if flag and not p.reason]
    return ServingCheck(
        table, tuple(found), tuple(flags), tuple(group_scores(clean)), tuple(_flagged(odd))
    )


def _flagged(rows: Sequence[tuple[Predicted, str]]) -> list[GroupScore]:
    names = dict.fromkeys(flag for _, flag in rows)
    return [_score("flag", name, [p for p, flag in rows if flag == name]) for name in names]


GROUPS: Mapping[str, Callable[[Predicted], str]] = {
    "all": lambda _: "all",
    "engine": lambda p: p.row.engine,
    "model": lambda p: p.row.model,
    "gpu": lambda p: p.row.gpu,
    "bench": lambda p: p.row.bench or "unnamed",
    "concurrency": lambda p: next(n for most, n in REGIMES if p.row.concurrency <= most),
    "kv": lambda p: "KV-bound" if p.kv_bound else "not KV-bound",
    "deployment": lambda p: f"{p.row.model}, {p.row.gpu}, {p.row.engine}, {p.row.weights}",
}


def group_scores(rows: Sequence[Predicted]) -> list[GroupScore]:
    """Errors by every group there is; the TTFT of rows whose TTFT makes no claim too."""
    made = []
    for group, name_of in GROUPS.items():
        names = dict.fromkeys(name_of(p) for p in rows)
        listed = sorted(names) if group != "concurrency" else [n for _, n in REGIMES if n in names]
        made += [_score(group, n, [p for p in rows if name_of(p) == n]) for n in listed]
    return made


def _score(group: str, name: str, rows: Sequence[Predicted]) -> GroupScore:
    return GroupScore(group, name, score_of(rows, "tpot_ms"), score_of(rows, "ttft_ms"))


def score_of(rows: Sequence[Predicted], field: str) -> Score:
    """Errors of ``ttft_ms`` or ``tpot_ms`` where both numbers are there."""
    pairs = np.asarray([(getattr(p, field), getattr(p.row, field)) for p in rows]).reshape(-1, 2)
    kept = pairs[np.isfinite(pairs).all(axis=1)]
    return score(kept[:, 0], kept[:, 1])


def output_of(check: ServingCheck) -> pd.DataFrame:
    """The input's rows with predictions, flags and reasons."""
    data = check.table.data.copy()
    data["predicted_ttft_ms"] = [_text(p.ttft_ms) for p in check.predicted]
    data["predicted_tpot_ms"] = [_text(p.tpot_ms) for p in check.predicted]
    data["kv_bound"] = ["" if p.reason else str(p.kv_bound).lower() for p in check.predicted]
    data["flag"] = list(check.flags)
    data["ttft_flag"] = [ttft_flag(row) or "" for row in check.table.rows]
    data["reason"] = [p.reason for p in check.predicted]
    return data


def _text(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else ""
