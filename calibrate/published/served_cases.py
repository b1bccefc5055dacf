"""Served rows of the published table as loads for the simulator: each mapped, or refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, TypeVar

from calibrate.published.cases import Unmapped
from calibrate.published.names import CACHES
from calibrate.published.reader import Row
from calibrate.published.served_names import (
    BLOCK_SCALED,
    DEVICES,
    ENGINES,
    MODELS,
    SERVED,
    WEIGHTS,
    ServedEngine,
)
from calibrate.published.served_settings import (
    MEDIANS,
    REQUESTS,
    ROUNDS,
    TRTLLM_BENCH,
    Settings,
    lengths_of,
    settings_of,
)
from calibrate.serving_settings import EXPERT_SKEW
from perfmodel.serving.arrivals import ClosedLoop, Demand, OpenLoop
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.serve import Serving
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.loading import load_model
from perfmodel.specs.model import MoeFfn

V = TypeVar("V")
REPEATS = "repeats the figures of another GPU's page to the last digit"
Quantity = Literal["throughput", "ttft", "tpot"]
QUANTITIES: dict[str, Quantity] = {
    "throughput_tok_s_total": "throughput", "ttft_ms": "ttft", "tpot_ms": "tpot",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Load:
    """One served row that the simulator predicts."""

    id: str
    source: str
    engine: str
    model: str
    experts: bool
    hardware: str
    deployment: Deployment
    serving: Serving
    demand: Demand
    tuned: bool
    """Limits of a step as `trtllm-bench` chooses them."""
    overlapped: bool
    """A client sees each token one step after it was computed."""
    median: bool
    """The published latency is a median; a mean otherwise."""
    quantity: Quantity
    measured: float
    """Output tokens per second, or milliseconds."""

    @property
    def kind(self) -> str:
        """What scores are reported by beside source, engine and hardware."""
        return "experts" if self.experts else "dense"


def loads(rows: Sequence[Row]) -> tuple[list[Load], Counter[tuple[str, str]]]:
    """Loads, and the other served rows counted by source and reason."""
    mapped: list[Load] = []
    refused: Counter[tuple[str, str]] = Counter()
    served = [row for row in rows if row.load_mode in SERVED]
    repeats = repeated(served)
    for row in served:
        if row.id in repeats:
            refused[row.source, REPEATS] += 1
            continue
        try:
            mapped.append(load_of(row))
        except Unmapped as reason:
            refused[row.source, str(reason)] += 1
    return mapped, refused


def repeated(rows: Iterable[Row]) -> set[str]:
    """Rows whose figure was published before of the same deployment on another GPU."""
    first: dict[tuple[object, ...], str] = {}
    found = set()
    for r in rows:
        key = (r.source, r.metric, r.value, r.model, r.engine, r.version, r.prompt, r.output)
        if first.setdefault(key, r.gpu) != r.gpu:
            found.add(r.id)
    return found


def load_of(row: Row) -> Load:
    """Map one row.

    Raises:
        Unmapped: something isn't known, or the simulator has no such thing.
    """
    _check(row)
    engine = _known(ENGINES, (row.source, row.engine), "no engine preset for")
    hardware = _known(DEVICES, row.gpu, "no hardware profile:")
    model = _known(MODELS, row.model, "not in the catalogue:")
    settings = settings_of(row)
    experts = any(isinstance(layer.ffn, MoeFfn) for layer in load_model(model).layers)
    return Load(
        id=row.id,
        source=row.source,
        engine=engine.label,
        model=model,
        experts=experts,
        hardware=hardware,
        deployment=_deployment(row, engine, settings, experts),
        serving=Serving(scheduler=engine.scheduler, prefix_caching=False, disaggregate=_pools(row)),
        demand=_demand(row),
        tuned=row.source == "trtllm-maxload-v1.0",
        overlapped=settings.overlapped,
        median=row.source in MEDIANS,
        quantity=_known(QUANTITIES, row.metric, "metric isn't predicted:"),
        measured=row.value,
    )


def _known(table: dict[str, V] | dict[tuple[str, str], V], key: object, why: str) -> V:
    found = table.get(key)  # type: ignore[call-overload]
    if found is None:
        shown = " / ".join(key) if isinstance(key, tuple) else str(key)
        raise Unmapped(f"{why} {shown}")
    return found  # type: ignore[no-any-return]


def _check(row: Row) -> None:
    if row.completeness not in {"A", "B"}:
        raise Unmapped("graded C: a trend only")
    if row.spec_decode and row.spec_decode != "none":
        raise Unmapped("speculation whose acceptance isn't recorded")
    if row.batch == "1":
        raise Unmapped("one user at a time: no load")
    if row.pp > 1:
        raise Unmapped("pipeline stages: micro-batches aren't simulated")
    if _other_page(row):
        raise Unmapped("stands on the page of another model")
    if _prompts_cached(row):
        raise Unmapped("the run before sent the same prompts: prefill came from the cache")


def _other_page(row: Row) -> bool:
    """Whether a page of one model lists the row under another's name."""
    found = re.search(r"docs/performance-lab/([a-z0-9.-]+)/[a-z0-9-]+[.]md", row.page)
    return found is not None and not row.model.lower().startswith(found[1].removesuffix("x"))


def _prompts_cached(row: Row) -> bool:
    """Whether a load came after one of the same random prompts, which the cache still held.

    Each server saw 128, 64 and 32 users in turn with one seed. A million tokens of prompts fit;
    500 prompts of 32,784 tokens don't.
    """
    if row.source != "dstack-pd-ratio" or row.batch == "128" or int(row.prompt) > 10_000:
        return False
    short = "nominal 2048/128" in row.notes
    return row.metric == "ttft_ms" or (row.metric == "throughput_tok_s_total" and short)


def _deployment(row: Row, engine: ServedEngine, settings: Settings, experts: bool) -> Deployment:
    tp, dp = row.tp, 1
    if row.dp > 1:
        if not row.dp == row.ep == row.tp:
            raise Unmapped("attention data parallelism over experts that are split by tensors")
        tp, dp = 1, row.dp
    return Deployment(
        tp=tp,
        dp=dp,
        ep=row.ep if experts else 1,
        weights=_weights(row),
        kv_cache=CACHES.get(row.kv, "auto"),
        engine=engine.preset,
        expert_skew=EXPERT_SKEW if experts else 0.0,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        gpu_memory_utilization=settings.gpu_memory_utilization,
        graph_batch=settings.graph_batch,
    )


def _weights(row: Row) -> str:
    name = _known(WEIGHTS, row.weights, "weight format can't be stated:")
    own = row.source not in TRTLLM_BENCH and row.model.startswith(BLOCK_SCALED)
    return "fp8_block" if name == "fp8" and own else name


def _pools(row: Row) -> tuple[int, int] | None:
    found = re.search(r"(\d+) prefill \+ (\d+) decode workers", row.notes)
    return (int(found[1]), int(found[2])) if found else None


def _demand(row: Row) -> Demand:
    """Who sends requests, how many and of which lengths."""
    prompt, output = lengths_of(row)
    if found := re.fullmatch(r"inf \(num_requests=(\d+)\)", row.batch):
        return _burst(int(found[1]), prompt, output)
    if found := re.fullmatch(r"burst of (\d+), no cap", row.batch):
        return _burst(int(found[1]), prompt, output)
    if found := re.fullmatch(r"burst of (\d+), client cap (\d+)", row.batch):
        sent, users = int(found[1]), int(found[2])
        return Demand(ClosedLoop(users), prompt, output, sent)
    if not row.batch.isdigit():
        raise Unmapped("how many users, or at which rate, isn't stated as a number")
    users = int(row.batch)
    if "all requests sent at once at the given concurrency" in row.notes:
        return _burst(users, prompt, output)
    return Demand(ClosedLoop(users), prompt, output, REQUESTS.get(row.source, ROUNDS * users))


def _burst(sent: int, prompt: Lengths, output: Lengths) -> Demand:
    return Demand(OpenLoop(inf), prompt, output, sent)
