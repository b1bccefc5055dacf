"""The mean field against the simulator at random settings, by policy and by what limits.

Run: ``python benchmarks/mean_field_random.py [--count 40] [--seed 0] [--rows F.csv]``.

A seeded draw of lengths, their spread, users, and a step's tokens for one deployment, so that the
errors are those of the queues and not of step times. Three families: `free` (the cache holds all),
`cache` (0.7 to 2.5 times as many users as it holds), `one` (outputs of one token).
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.serving.arrivals import ClosedLoop, Demand
from perfmodel.serving.blocks import Blocks
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.policy import POLICIES, policy_named
from perfmodel.serving.serve import Served, Serving, served
from perfmodel.serving.simulate import simulate_engines
from perfmodel.serving.steady_state import FastEngine, steady_state_of

POLICY_NAMES = [name for name, policy in POLICIES.items() if policy.prefill != "drained"]
FAMILIES = ("free", "cache", "one")
BLOCK = 16
CYCLES = 60
"""Requests per user, the first half of them left out."""
FEWEST = 2400
"""Requests at least: the mean of few varies by itself."""
NAMES = ("ttft", "tpot", "queue", "requests")


@dataclass(frozen=True)
class Setting:
    """One engine and what is asked of it."""

    family: str
    policy: str
    prompt: Lengths
    output: Lengths
    users: int
    budget: int
    capacity: int
    """Blocks of cache."""


def _log(rng: np.random.Generator, low: float, high: float) -> int:
    return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))


def _lengths(rng: np.random.Generator, tokens: int, equal: bool) -> Lengths:
    """Even from a share of ``tokens`` to all of it, or lognormal; or all equal."""
    kind = "constant" if equal else str(rng.choice(["narrow", "wide", "lognormal"]))
    if kind == "constant" or tokens < 2:
        return Lengths.parse(tokens, "length")
    if kind == "lognormal":
        return Lengths.parse(f"lognormal:{tokens}:0.5:{3 * tokens}", "length")
    low = max(1, round(tokens * (0.8 if kind == "narrow" else 0.2)))
    return Lengths.parse(f"uniform:{low}:{tokens}", "length")


def draw(rng: np.random.Generator, family: str, policy: str) -> Setting:
    """A setting at random; one in eight has equal lengths."""
    equal = bool(rng.random() < 1 / 8)
    prompt = _lengths(rng, _log(rng, 32, 8192), equal)
    output = _lengths(rng, 1 if family == "one" else _log(rng, 4, 1024), equal)
    users, budget = _log(rng, 1, 200), int(rng.choice([2048, 8192]))
    capacity = 10**6
    if family == "cache":
        held = _log(rng, 4, 128)
        longest = int(prompt.quantiles(100)[-1] + output.quantiles(100)[-1]) * 3
        need = _held(policy, prompt, output)
        capacity = max(round(held * need / BLOCK), longest // BLOCK + 2)
        users = max(1, round(rng.uniform(0.7, 2.5) * capacity * BLOCK / need))
        users = min(users, 256)
    return Setting(family, policy, prompt, output, users, budget, capacity)


def _held(policy: str, prompt: Lengths, output: Lengths) -> float:
    """Mean tokens of cache per sequence, those that the policy keeps free for it among them."""
    outputs = output.quantiles(200)
    stay = float((outputs**2).mean() / outputs.mean())
    own = float(prompt.quantiles(200).mean())
    return own + (1 + policy_named(policy).reserve) / 2 * stay + BLOCK / 2


@lru_cache
def _deployment(policy: str) -> Served:
    return served("llama-3.1-8b", "h100-sxm", None, Serving(scheduler=policy, prefix_caching=False))


@lru_cache
def _fast(policy: str) -> FastEngine:
    return FastEngine.of(_deployment(policy))


def compared(setting: Setting) -> dict[str, Any]:
    """Both answers, and errors in per cent."""
    fast = _fast(setting.policy)
    engine = replace(
        fast.case.engine,
        blocks=lambda: Blocks(setting.capacity, BLOCK, max_model_len=131_072),
        max_num_batched_tokens=setting.budget,
        max_num_seqs=256,
    )
    fast = replace(fast, case=replace(fast.case, engine=engine))
    told = steady_state_of(
        fast,
        concurrency=setting.users,
        prompt=setting.prompt,
        output=setting.output,
        requests_per_user=0,
    )
    number = max(CYCLES * setting.users, FEWEST)
    demand = Demand(ClosedLoop(setting.users), setting.prompt, setting.output, number)
    run = simulate_engines(demand, engine, warmup=number // 2)
    pairs = {
        "ttft": (told.ttft_s, run.ttft_s.mean),
        "tpot": (told.tpot_s, run.tpot_s.mean),
        "queue": (told.queue_s, run.queue_s.mean),
        "requests": (told.requests_per_s, setting.users / run.e2e_s.mean),
        "running": (told.running, run.mean_running),
    }
    row: dict[str, Any] = {
        "family": setting.family,
        "policy": setting.policy,
        "prompt": setting.prompt.spec,
        "output": setting.output.spec,
        "users": setting.users,
        "budget": setting.budget,
        "capacity": setting.capacity,
        "limited_by": str(told.limited_by),
        "near_limit": bool(getattr(told, "near_limit", False)),
        "equal": setting.prompt.kind == "constant" and setting.output.kind == "constant",
        "preemptions": run.preemptions,
    }
    for name, (fast_value, simulated) in pairs.items():
        row[f"{name}_fast"], row[f"{name}_sim"] = float(fast_value), float(simulated)
        row[name] = 100 * (float(fast_value) / simulated - 1) if simulated > 0 else np.nan
    # A wait is held against the whole time to a first token: of a wait of nothing none is a share.
    row["queue"] = 100 * (row["queue_fast"] - row["queue_sim"]) / row["ttft_sim"]
    return row


def settings(seed: int, count: int) -> Iterator[Setting]:
    """``count`` of each family and policy."""
    for i, family in enumerate(FAMILIES):
        for j, policy in enumerate(POLICY_NAMES):
            rng = np.random.default_rng([seed, i, j])
            yield from (draw(rng, family, policy) for _ in range(count))


def told(rows: list[dict[str, Any]], name: str) -> str:
    """Median, 90th percentile and largest of absolute errors."""
    errors = np.abs([row[name] for row in rows if np.isfinite(row[name])])
    if not len(errors):
        return "–"
    parts = np.median(errors), np.quantile(errors, 0.9), errors.max()
    return " / ".join(f"{part:.1f}" for part in parts)


def table(rows: list[dict[str, Any]], by: tuple[str, ...]) -> list[str]:
    """One line for each value of ``by``."""
    keys = sorted({tuple(row[key] for key in by) for row in rows}, key=str)
    lines = [
        f"| {' | '.join(by)} | settings | {' | '.join(f'{name} %' for name in NAMES)} |",
        f"|{'---|' * len(by)}--:|{'---|' * len(NAMES)}",
    ]
    for key in keys:
        here = [row for row in rows if tuple(row[name] for name in by) == key]
        cells = [str(part) for part in key] + [str(len(here))]
        lines.append("| " + " | ".join(cells + [told(here, name) for name in NAMES]) + " |")
    return lines


def main() -> None:
    """Print the tables, and write the rows where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=Path)
    asked = parser.parse_args()
    rows = [compared(setting) for setting in settings(asked.seed, asked.count)]
    if asked.rows:
        with asked.rows.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    for by in (("family", "policy"), ("family", "equal"), ("family", "limited_by", "near_limit")):
        sys.stdout.write("\n".join([*table(rows, by), "", ""]))


if __name__ == "__main__":
    main()
