"""What test_quantised_checkpoints.py and test_checkpoint_schemes.py share."""

from __future__ import annotations

from typing import Any

from perfmodel.inference.estimate import Estimate, estimate
from perfmodel.specs.architectures import build_model
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload
from tests.operators.support import config

# Llama-3.1-8B: a layer's matrices, and what stays in 16 bits (both tables, 65 norms).
ATTENTION = 2 * 4096 * 4096 + 2 * 4096 * 1024


FFN = 3 * 4096 * 14336


LAYERS = 32 * (ATTENTION + FFN)


HEAD = 128_256 * 4096


REST = 2 * (2 * HEAD + 65 * 4096)


def quantised(section: dict[str, Any], base: str = "llama-3.1-8b", **changes: Any) -> Model:
    """A catalogue model with another ``quantization_config``."""
    return build_model(config(base) | {"quantization_config": section} | changes, "x", "x.json")


def run(model: Model, on: str = "h100-sxm", **deployment: Any) -> Estimate:
    return estimate(model, on, Workload(batch=2, prompt=64, output=4), Deployment(**deployment))


def stored(model: Model, **deployment: Any) -> float:
    """Weight bytes; a decode step reads the same but for the input table."""
    result = run(model, "b200-sxm", **deployment)
    return float(result.memory.weights_bytes)


def compressed(weights: dict[str, Any], inputs: dict[str, Any] | None = None, **more: Any) -> Any:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    } | more


def fp8(*ignored: Any) -> dict[str, Any]:
    return {"quant_method": "fp8", "modules_to_not_convert": ["lm_head", *ignored]}


ONE = 32 * 4 * 4
"""One fp32 scale for each matrix of 32 layers."""
