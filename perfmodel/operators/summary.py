"""One model's exact counts as plain data: what `models show --json` prints."""

from __future__ import annotations

from typing import Any

from perfmodel.operators.cache import kv_bytes_per_token, state_bytes_per_sequence
from perfmodel.operators.parameters import count_parameters
from perfmodel.specs.model import Model


def model_record(model: Model) -> dict[str, Any]:
    """Parameters, cache and state of ``model``; bytes at 16 bits an element."""
    counts = count_parameters(model)
    return {
        "name": model.name,
        "architecture": model.architecture,
        "parameters": counts.total,
        "text_parameters": counts.text,
        "active_parameters": counts.active,
        "mtp_parameters": counts.mtp,
        "kv_bytes_per_token": int(kv_bytes_per_token(model)),
        "kv_bytes_per_token_beyond_window": int(kv_bytes_per_token(model, beyond_window=True)),
        "state_bytes_per_sequence": int(state_bytes_per_sequence(model)),
        "weight_bytes": 2 * counts.total,
        "layers": len(model.layers),
        "hidden": model.hidden,
        "vocabulary": model.vocab,
        "max_positions": model.max_positions,
        "checkpoint_format": model.checkpoint.weights if model.checkpoint else None,
    }
