"""``python -m calibrate.speculation``: published speed-ups of speculative decoding, and ours.

DeepSeek-R1's MTP sweep, Spec-Bench, gpt-fast's draft model; what other rows lack.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.published.reader import Row, published_path, read_published
from calibrate.speculation_page import page
from perfmodel.inference.estimate import estimate
from perfmodel.inference.speculation.acceptance import implied_rate
from perfmodel.inference.speculation.answer import Speculated
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.speculation import Speculation
from perfmodel.specs.workload import Workload

SOURCES = ("trtllm-deepseek", "spec-bench", "specdec-published", "vllm-blog-spec", "gpt-fast")
SMALL_DRAFT = {
    "model_type": "llama", "hidden_size": 768, "intermediate_size": 3072,
    "num_hidden_layers": 2, "num_attention_heads": 12, "vocab_size": 32000,
    "max_position_embeddings": 2048,
}  # fmt: skip
"""Vicuna-68M, which Spec-Bench drafts with; recalled from its config, not read again."""
SETTINGS: dict[str, dict[str, Any]] = {
    "PLD": {"method": "ngram", "tokens": 10},
    "Lookahead": {"method": "lookahead", "tree": (7, 1, 1, 1)},
    "Medusa": {"method": "medusa", "tree": (16, 1, 1, 1)},
    "SpS": {"method": "draft", "tokens": 5},
    "EAGLE": {"method": "eagle", "tree": (5, 1, 1, 1, 1)},
    "EAGLE2": {"method": "eagle", "tree": (10, 1, 1, 1, 1, 1)},
    "EAGLE3": {"method": "eagle", "tree": (10, 1, 1, 1, 1, 1)},
}
"""Spec-Bench's settings where its scripts state them (PLD 10 tokens, lookahead level 5 and 7
n-grams); trees of as many tokens and depths as the methods' own irregular ones (Medusa 63 in 4,
EAGLE 25 in 5, EAGLE-2 and -3 60 in 6); 5 tokens of the small model are assumed."""
MODELS = {"Vicuna-7B-v1.3": "llama-1-7b", "Vicuna-13B-v1.3": "llama-1-13b"}
DEVICES = {"A100-80GB": "a100-sxm-80gb", "RTX 3090 24GB": "rtx-3090"}
SPEC_BENCH = Workload(prompt=512, output=512)
"""Assumed: the page states no lengths."""
MTP_CASE = Workload(prompt=1024, output=2048)


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One depth of DeepSeek-R1's MTP sweep."""

    tokens: int
    length: float
    """Measured tokens per round."""
    speedup: float


@dataclass(frozen=True, slots=True)
class Bench:
    """A method on one model and device of Spec-Bench, over all its tasks."""

    method: str
    model: str
    gpu: str
    length: float
    speedup: float

    @property
    def ratio(self) -> float:
        """Time of a round over that of a plain step."""
        return self.length / self.speedup


def mtp_sweep(rows: Iterable[Row]) -> list[SweepPoint]:
    """The sweep's points by number of drafted tokens, the plain step (0, 1, 1) first."""
    found = [r for r in rows if r.notes.startswith("MTP depth sweep")]
    base = next(r.value for r in found if r.spec_decode == "none")
    points = [SweepPoint(0, 1.0, 1.0)]
    for row in found:
        said = re.search(r"gamma=(\d+), mean accepted length ([\d.]+)", row.spec_decode)
        if said is not None:
            points.append(SweepPoint(int(said[1]), float(said[2]), row.value / base))
    return sorted(points, key=lambda point: point.tokens)


def acceptance_by_depth(points: list[SweepPoint]) -> tuple[float, ...]:
    """Chance of each depth given the one before: a_k = (τ_k − τ_{k−1})/(τ_{k−1} − τ_{k−2})."""
    gains = np.diff([point.length for point in points])
    return tuple(float(rate) for rate in gains / np.concatenate([[1.0], gains[:-1]]))


def fitted_cost(points: list[SweepPoint]) -> float:
    """The cost c of a drafted token with the least squares of log(τ/(1 + c·γ)/speed-up)."""
    costs = np.linspace(0, 1, 10_001)
    drafted = [point for point in points if point.tokens]
    logs = [np.log(p.length / (1 + costs * p.tokens) / p.speedup) for p in drafted]
    return float(costs[np.square(logs).sum(axis=0).argmin()])


def mtp_answer(speculation: Speculation, engine: str) -> Speculated:
    """The sweep's deployment: 8 B200, TP 8 and EP 4, NVFP4, batch 1, 1,024 + 2,048 tokens."""
    deployment = Deployment(tp=8, ep=4, weights="nvfp4", engine=engine, speculation=speculation)
    answer = estimate("deepseek-r1", "b200-sxm", MTP_CASE, deployment).speculation
    assert answer is not None  # noqa: S101  (speculation was asked for)
    return answer


def spec_bench(rows: Iterable[Row]) -> list[Bench]:
    """Rows with tokens per round and the speed-up over all tasks."""
    found = []
    for row in rows:
        said = re.search(r"overall speed-up ([\d.]+)x", row.notes)
        if row.source == "spec-bench" and row.metric == "acceptance_len" and said is not None:
            found.append(Bench(row.spec_decode, row.model, row.gpu, row.value, float(said[1])))
    return found


def bench_speedup(bench: Bench, engine: str, draft: Path) -> float | None:
    """Ours from the operators; None where method, model or device isn't known."""
    settings, model = SETTINGS.get(bench.method), MODELS.get(bench.model)
    if settings is None or model is None or bench.gpu not in DEVICES:
        return None
    more: dict[str, Any] = {"draft_model": str(draft)} if settings["method"] == "draft" else {}
    speculation = Speculation(accepted_length=bench.length, **settings, **more)
    deployment = Deployment(engine=engine, speculation=speculation)
    answer = estimate(model, DEVICES[bench.gpu], SPEC_BENCH, deployment).speculation
    assert answer is not None  # noqa: S101
    return float(answer.speedup)


def carried_speedup(bench: Bench, others: Iterable[Bench]) -> float | None:
    """By the median round of the same method on other models and devices; None without one."""
    ratios = [b.ratio for b in others if b.method == bench.method and b != bench]
    return bench.length / float(np.median(ratios)) if ratios else None


def gpt_fast_round() -> Speculated:
    """Llama-2-70B and a 7B draft, both int4 with groups of 32, 4 tokens, one A100."""
    speculation = Speculation(
        method="draft", draft_model="llama-2-7b", tokens=4, acceptance=0.7,
        draft_weights="int4_g32",
    )  # fmt: skip
    deployment = Deployment(weights="int4_g32", engine="torch-compile", speculation=speculation)
    case = Workload(prompt=5, output=100)
    answer = estimate("llama-2-70b", "a100-sxm-80gb", case, deployment).speculation
    assert answer is not None  # noqa: S101
    return answer


def results(rows: list[Row]) -> dict[str, Any]:
    """All that the page shows, computed."""
    sweep = mtp_sweep(rows)
    cost, first = fitted_cost(sweep), fitted_cost(sweep[:2])
    rates = acceptance_by_depth(sweep)
    lines = []
    for point in sweep[1:]:
        asked: dict[str, Any] = {
            "method": "mtp",
            "tokens": point.tokens,
            "acceptance": rates[: point.tokens],
        }
        said = Speculation(**asked, draft_cost=cost)
        one = Speculation(method="mtp", tokens=point.tokens, acceptance=rates[0], draft_cost=cost)
        made = {
            "fitted": mtp_answer(said, "trtllm"),
            "first": mtp_answer(said.model_copy(update={"draft_cost": first}), "trtllm"),
            "constant": mtp_answer(one, "trtllm"),
            "trtllm": mtp_answer(Speculation(**asked), "trtllm"),
            "vllm": mtp_answer(Speculation(**asked), "vllm"),
        }
        lines.append((point, made))
    benches = spec_bench(rows)
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "vicuna-68m.json"
        draft.write_text(json.dumps(SMALL_DRAFT), encoding="utf-8")
        scored = [
            (b, bench_speedup(b, "eager-2023", draft), carried_speedup(b, benches)) for b in benches
        ]
    published = next(r for r in rows if r.id == "gpt-fast-0034").value / 25.25
    whole = gpt_fast_round()
    needed = published * float(whole.round_s / whole.plain.time_s)
    return {
        "cost": cost, "first": first, "rates": rates, "sweep": lines, "bench": scored,
        "gpt_fast": (published, whole, needed, implied_rate(needed, (1,) * 4)),
        "others": [r for r in rows if r.source in ("specdec-published", "vllm-blog-spec")],
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run; 0 done, 2 no table."""
    parser = argparse.ArgumentParser(prog="python -m calibrate.speculation", description=__doc__)
    parser.add_argument("--out", type=Path, help="write the page here instead of to stdout")
    options = parser.parse_args(arguments)
    path = published_path()
    if path is None:
        sys.stderr.write("published.csv is absent: set PERFMODEL_DATA to the shared data folder\n")
        return 2
    rows = [row for row in read_published(path) if row.source in SOURCES]
    text = page(results(rows))
    if options.out is None:
        sys.stdout.write(text)
    else:
        options.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
