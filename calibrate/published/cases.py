"""Published rows as cases for the model: each mapped, or refused with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from calibrate.published.flags import flagged
from calibrate.published.names import (
    APPLE,
    CACHES,
    DEVICES,
    ENGINES,
    HOST_SPEED,
    MODELS,
    PCIE_SOURCES,
    ROCM_PRESET,
    WEIGHTS,
    EngineName,
)
from calibrate.published.reader import Row
from perfmodel.units import MILLISECOND

K = TypeVar("K")
V = TypeVar("V")
Quantity = Literal["ttft", "tpot", "total"]
LOADS = {"batch1", "static_batch"}
DUMMY_EXPERTS = {"trtllm-static", "argonne-llm-inference-bench", "trtllm-blogs"}
"""Sources whose TensorRT-LLM rows ran on dummy weights: the router picks the same two experts."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What rows must share to be predicted in one pass."""

    model: str
    quantised_head: bool
    dummy_experts: bool
    hardware: str
    pcie_only: bool
    weights: str
    activations: str
    kv_cache: str
    tp: int
    pp: int
    preset: str
    host_speed: float
    """Factor on the preset's host times, where the machine's is known."""
    quantity: Quantity


@dataclass(frozen=True, slots=True)
class Case:
    """One row that the model predicts."""

    id: str
    source: str
    """The table's source, with the engine where it holds several."""
    origin: str
    """The table's source alone: what a hold-out leaves out as a whole."""
    family: str
    regime: str
    setting: Setting
    batch: int
    prompt: int
    output: int
    measured_s: float


class Unmapped(Exception):  # noqa: N818  (a row's fate, not an error)
    """Why a row can't be predicted."""


def cases(rows: Iterable[Row]) -> tuple[list[Case], Counter[tuple[str, str]]]:
    """Cases, and the other rows counted by source and reason."""
    mapped: list[Case] = []
    refused: Counter[tuple[str, str]] = Counter()
    for row in rows:
        try:
            mapped.append(case(row))
        except Unmapped as reason:
            refused[row.source, str(reason)] += 1
    return mapped, refused


def case(row: Row) -> Case:
    """Map one row.

    Raises:
        Unmapped: it says nothing that the model predicts, or something isn't known.
    """
    _check_kind(row)
    if (reason := flagged(row)) is not None:
        raise Unmapped(reason)
    engine = _known(ENGINES, (row.source, row.engine), "no engine preset for")
    device = _known(DEVICES, row.gpu, "no hardware profile:")
    weights = _known(WEIGHTS, row.weights, "weight format can't be stated:")
    quantity, seconds, prompt, output = _measured(row)
    dummy = engine.preset == "trtllm" and row.source in DUMMY_EXPERTS and "Mixtral" in row.model
    batch = _whole(row.batch, "batch isn't stated")
    setting = Setting(
        model=_known(MODELS, row.model, "not in the catalogue:"),
        quantised_head=weights.head,
        dummy_experts=dummy,
        hardware=device,
        pcie_only=row.source in PCIE_SOURCES,
        weights=weights.name,
        activations=weights.activations,
        kv_cache=CACHES.get(row.kv, "auto"),
        tp=row.tp,
        pp=row.pp,
        preset=_preset(engine, device),
        host_speed=HOST_SPEED.get((row.source, device), 1.0),
        quantity=quantity,
    )
    source = f"{row.source}/{engine.label}" if engine.label else row.source
    if device == "mi300x":
        source += "-rocm"
    if device in APPLE:
        source += "/metal"
    return Case(
        id=row.id,
        source=source,
        origin=row.source,
        family="rocm" if device == "mi300x" else engine.family,
        regime=_regime(quantity, batch),
        setting=setting,
        batch=batch,
        prompt=prompt,
        output=output,
        measured_s=seconds,
    )


def _check_kind(row: Row) -> None:
    if row.completeness not in {"A", "B"}:
        raise Unmapped("graded C: a trend only")
    if row.load_mode not in LOADS:
        raise Unmapped(f"not a static batch: {row.load_mode}")
    if row.source == "infersim-actual" and row.gpus > 1:
        raise Unmapped("how four GPUs share the experts isn't stated")
    if row.spec_decode and row.spec_decode != "none":
        raise Unmapped("speculative decoding")


def _known(table: dict[K, V], key: K, why: str) -> V:
    if key not in table:
        shown = " / ".join(key) if isinstance(key, tuple) else str(key)
        raise Unmapped(f"{why} {shown}")
    return table[key]


def _preset(engine: EngineName, device: str) -> str:
    if engine.family == "gguf" and device in APPLE:
        return "llamacpp-metal"
    return ROCM_PRESET.get(engine.preset, engine.preset) if device == "mi300x" else engine.preset


def _regime(quantity: Quantity, batch: int) -> str:
    if quantity == "ttft":
        return "prefill"
    word = "decode" if quantity == "tpot" else "end to end"
    return f"{word}, {'batch 1' if batch == 1 else 'batched'}"


def _whole(text: str, why: str) -> int:
    if not text.replace(".0", "").isdigit():
        raise Unmapped(why)
    return int(float(text))


def _measured(row: Row) -> tuple[Quantity, float, int, int]:
    """Quantity, seconds, prompt and output of the workload that gives it."""
    if row.metric in {"ttft_ms", "prefill_tok_s"}:
        prompt = _whole(row.prompt, "prompt isn't stated")
        seconds = MILLISECOND * row.value if row.metric == "ttft_ms" else prompt / row.value
        return "ttft", seconds, prompt, 1
    if row.metric in {"tpot_ms", "decode_tok_s_per_user"}:
        return _per_token(row)
    if row.metric == "request_latency_ms":
        return _whole_request(row, MILLISECOND * row.value)
    if row.metric.startswith("throughput_tok_s"):
        return _throughput(row)
    raise Unmapped(f"metric isn't predicted: {row.metric}")


def _per_token(row: Row) -> tuple[Quantity, float, int, int]:
    """Qwen's page counts the prefill in its rate, which matters from 6,144 tokens on."""
    if row.metric == "tpot_ms":
        return _decode(row, MILLISECOND * row.value)
    if row.source == "qwen2.5-speed" and row.prompt != "1":
        return _whole_request(row, int(row.output) / row.value)
    return _decode(row, 1 / row.value)


def _throughput(row: Row) -> tuple[Quantity, float, int, int]:
    batch = _whole(row.batch, "batch isn't stated")
    if row.source == "infersim-actual":  # a decode rate per GPU, without the prefill
        return _decode(row, batch / row.value)
    gpus = row.gpus if row.metric.endswith("per_gpu") else 1
    output = _whole(row.output, "output isn't stated")
    return _whole_request(row, output * batch / (row.value * gpus))


def _decode(row: Row, seconds: float) -> tuple[Quantity, float, int, int]:
    """A mean decode step. Rows without a prompt start from an empty context."""
    prompt = max(1, int(float(row.prompt))) if row.prompt else 4
    output = max(2, _whole(row.output or "2", "output isn't stated"))
    return "tpot", seconds, prompt, output


def _whole_request(row: Row, seconds: float) -> tuple[Quantity, float, int, int]:
    prompt = _whole(row.prompt, "prompt isn't stated")
    return "total", seconds, prompt, _whole(row.output, "output isn't stated")
