"""vLLM's published start-up accounting against ours: weights and room for the cache."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from calibrate.published.reader import Row
from perfmodel.inference.memory import memory_use
from perfmodel.inference.plan import make_plan
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import load_hardware
from perfmodel.specs.loading import load_model
from perfmodel.specs.workload import Workload
from perfmodel.units import GIB

MODELS = {
    "GPT-OSS-20B": "gpt-oss-20b",
    "GPT-OSS-120B": "gpt-oss-120b",
    "Llama-3.3-70B": "llama-3.3-70b",
    "Llama-3.1-8B": "llama-3.1-8b",
    "Qwen3-0.6B": "qwen3-0.6b",
    "Qwen3-32B": "qwen3-32b",
}
METRICS = {"weights_gib_per_gpu", "kv_cache_gib_per_gpu"}
UTILISATION = {"GPT-OSS-120B": 0.95}
"""The parts of this set-up add to 0.95 of the card, not to 0.9 as its note says."""


@dataclass(frozen=True, slots=True)
class Room:
    """One published figure in GiB per GPU, and ours."""

    id: str
    what: str
    setup: str
    published: float
    predicted: float

    @property
    def error(self) -> float:
        """Signed, in per cent."""
        return 100 * (self.predicted / self.published - 1)


def rooms(rows: Iterable[Row]) -> list[Room]:
    """All rows of the source whose settings are known (graded A) and whose model is text only."""
    found = []
    for row in rows:
        chosen = row.source == "vllm-memory" and row.metric in METRICS
        if not chosen or row.model not in MODELS or row.completeness != "A":
            continue
        deployment = Deployment(
            tp=row.tp,
            weights="fp8" if row.weights == "fp8" else "auto",
            gpu_memory_utilization=UTILISATION.get(row.model, 0.9),
        )
        model, hardware = load_model(MODELS[row.model]), load_hardware("h100-sxm")
        workload = Workload(batch=1, prompt=1024, output=256)
        memory = memory_use(
            model, hardware, workload, make_plan(model, hardware, workload, deployment)
        )
        weights = row.metric == "weights_gib_per_gpu"
        ours = memory.weights_bytes if weights else memory.kv_room_bytes
        found.append(
            Room(
                id=row.id,
                what="weights" if weights else "KV room",
                setup=f"{MODELS[row.model]}, TP{row.tp}",
                published=row.value,
                predicted=float(ours) / GIB,
            )
        )
    return found
