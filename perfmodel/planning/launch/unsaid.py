"""Settings that were priced and that a command doesn't say."""

from __future__ import annotations

from perfmodel.planning.launch.launch import Launched
from perfmodel.specs.deployment import Deployment

ALWAYS = frozenset({
    "weights", "kv_cache", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization",
    "max_model_len",
})  # fmt: skip
"""What every command says."""
PRICING = frozenset({"engine", "stack", "expert_skew", "gpus_per_node", "offload_overlap",
                     "comm_overlap", "activations", "attention", "fusion"})  # fmt: skip
"""What describes the traffic, the machine or the kernels, and isn't set."""


def unsaid(case: Launched, said: frozenset[str], engine: str) -> tuple[str, ...]:
    """A note for each setting that differs from the default and has no flag here."""
    default = Deployment()
    names = [
        name
        for name in Deployment.model_fields
        if name not in ALWAYS | PRICING | said
        and getattr(case.given, name) != getattr(default, name)
    ]
    return tuple(
        f"priced with {name} = {getattr(case.given, name)}, which this command doesn't set: see "
        f"{engine}'s documentation"
        for name in names
    )
