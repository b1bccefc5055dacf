"""Whole decoders against `estimate`: real prefill and decode steps on the calibrated device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrate.decoder import SETTINGS, Config, Phase, StepRow, measure_steps
from calibrate.device import Device
from calibrate.score import Score, score
from calibrate.timing import Settings
from perfmodel.inference.estimate import estimate
from perfmodel.specs.architectures import build_model
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.workload import Workload

ENGINE = "torch-eager"
LONG_S = 5e-3
"""Steps above this are scored: shorter ones are the host's."""


@dataclass(frozen=True, slots=True)
class Size:
    """A decoder to build, and the steps to time: (batch, tokens) by phase."""

    name: str
    hidden: int
    inter: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    grid: Mapping[Phase, Sequence[tuple[int, int]]]
    head_dim: int = 64

    @property
    def config(self) -> dict[str, Any]:
        """As a Llama's ``config.json``."""
        return {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": self.hidden,
            "intermediate_size": self.inter,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
            "max_position_embeddings": 8192,
            "rope_theta": 10000.0,
            "tie_word_embeddings": True,
            "attention_bias": False,
            "mlp_bias": False,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "torch_dtype": "bfloat16",
        }


_GRID: dict[Phase, Sequence[tuple[int, int]]] = {
    "prefill": ((1, 32), (1, 128), (1, 512), (4, 96)),
    "decode": ((1, 64), (1, 1024), (4, 256), (16, 128), (8, 768)),
}
SIZES = (
    Size("30M", 512, 1408, 8, 8, 2, 16_384, _GRID),
    Size("135M", 576, 1536, 30, 9, 3, 49_152, _GRID),
    Size("110M", 768, 2048, 12, 6, 6, 32_768, _GRID, head_dim=128),
    Size("250M", 1024, 2816, 16, 16, 4, 32_768, _GRID),
)
"""Of a CPU's core; a GPU's are multiples."""
LARGE = (
    Size("1B", 2048, 8192, 16, 32, 8, 128_256, _GRID),
    Size("3B", 3072, 8192, 28, 24, 8, 128_256, _GRID, head_dim=128),
    Size("8B", 4096, 14_336, 32, 32, 8, 128_256, _GRID, head_dim=128),
)
TINY = (
    Size("7M", 256, 768, 6, 4, 2, 8192,
         {"prefill": ((1, 64), (1, 256), (4, 64)), "decode": ((1, 64), (4, 256), (16, 256))}),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StepCheck:
    """A measured step beside its prediction, in seconds."""

    model: str
    row: StepRow
    predicted_s: float
    low_s: float
    high_s: float
    roof_s: float

    @property
    def error(self) -> float:
        """Signed, in per cent of the measured time."""
        return 100 * (self.predicted_s / self.row.seconds - 1)


def check_steps(
    device: Device,
    hardware: Hardware,
    stack: str | None,
    sizes: Sequence[Size] = SIZES,
    *,
    settings: Settings = SETTINGS,
    progress: Callable[[StepCheck], None] = lambda _: None,
) -> list[StepCheck]:
    """Time the steps of every size on ``device`` and predict them.

    Raises:
        CapacityError: a size doesn't fit.
    """
    found = []
    for size in sizes:
        for made in _steps(size, device, hardware, stack, settings):
            found.append(made)
            progress(made)
    return found


def _steps(
    size: Size, device: Device, hardware: Hardware, stack: str | None, settings: Settings
) -> Iterator[StepCheck]:
    config = Config.of(size.config)
    for phase, grid in size.grid.items():
        for row in measure_steps(config, device, grid, phase, settings=settings):
            yield predict_step(size, row, hardware, stack)


def predict_step(size: Size, row: StepRow, hardware: Hardware, stack: str | None) -> StepCheck:
    """What `estimate` says of a measured step."""
    model = build_model(size.config, f"decoder-{size.name.lower()}", size.name)
    prompt = row.prompt if row.phase == "prefill" else row.context - 1
    workload = Workload(batch=row.batch, prompt=prompt, output=2)
    deployment = Deployment(engine=ENGINE, execution="eager", stack=stack)
    found = estimate(model, hardware, workload, deployment)
    cost = found.prefill.cost.total if row.phase == "prefill" else found.decode_total
    bare = estimate(model, hardware, workload, deployment, roofline_only=True)
    roof = bare.prefill.cost.total if row.phase == "prefill" else bare.decode_total
    ends = (cost.time_s, cost.low_s, cost.high_s, roof.time_s)
    return StepCheck(size.name, row, *(float(end) for end in ends))


def score_steps(steps: Sequence[StepCheck], phase: Phase | None = None) -> tuple[Score, Score]:
    """Errors of the steps over 5 ms, and of the bare roofline on them."""
    kept = [s for s in steps if s.row.seconds > LONG_S and phase in (None, s.row.phase)]
    measured = np.asarray([s.row.seconds for s in kept])
    predicted, low, high, roof = (
        np.asarray([getattr(s, name) for s in kept])
        for name in ("predicted_s", "low_s", "high_s", "roof_s")
    )
    return score(predicted, measured, low, high), score(roof, measured)
