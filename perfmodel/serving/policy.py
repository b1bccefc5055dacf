"""Schedulers, told apart by four facts of how they fill a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perfmodel.errors import UnknownNameError
from perfmodel.specs.engine_groups import Scheduler


@dataclass(frozen=True, slots=True)
class Policy:
    """How an engine chooses what a step computes."""

    name: str
    prefill: Literal["mixed", "alone", "drained"]
    """Prompts share a step with decoding sequences; have a step of their own, which the decoding
    ones wait for; or wait until no sequence decodes any more."""
    chunked: bool
    """Whether a prompt is split where the step's token budget ends."""
    reserve: float
    """Share of outputs whose cache must be free when a sequence is admitted: of its own, and of
    what is still to come of those in the engine. At 1 it is held, so that none is preempted; below,
    the cache grows and may run out."""
    padded: bool = False
    """A slot stays occupied, and computed, until the whole batch has ended."""
    meaning: str = ""


POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(
            "static", "drained", chunked=False, reserve=1.0, padded=True,
            meaning="a batch starts when the one before has ended, padded to its longest output",
        ),
        Policy(
            "decode_first", "drained", chunked=False, reserve=1.0,
            meaning="prompts wait until every decoding sequence has ended (FasterTransformer)",
        ),
        Policy(
            "prefill_first", "alone", chunked=False, reserve=0.0,
            meaning="waiting prompts have the next step to themselves (Orca, vLLM before 0.6)",
        ),
        Policy(
            "prefill_first_chunked", "alone", chunked=True, reserve=0.5,
            meaning="as prefill_first, long prompts in chunks, half of each output's cache free "
            "at admission (SGLang)",
        ),
        Policy(
            "chunked_mixed", "mixed", chunked=True, reserve=0.0,
            meaning="decoding sequences first, what is left of the token budget to chunks of "
            "prompts in the same step (vLLM v1)",
        ),
        Policy(
            "inflight_no_evict", "mixed", chunked=False, reserve=1.0,
            meaning="whole prompts beside decoding sequences; the cache of prompt and output is "
            "held from the start (TensorRT-LLM's GUARANTEED_NO_EVICT)",
        ),
        Policy(
            "inflight_no_evict_chunked", "mixed", chunked=True, reserve=1.0,
            meaning="as inflight_no_evict, prompts in chunks (enable_chunked_prefill; "
            "trtllm-bench's default)",
        ),
        Policy(
            "inflight_max_utilisation", "mixed", chunked=False, reserve=0.0,
            meaning="whole prompts beside decoding sequences; as many as fit now, preempting "
            "when the cache is full (TensorRT-LLM's MAX_UTILIZATION)",
        ),
    )
}  # fmt: skip


def policy_named(name: str) -> Policy:
    """The policy called ``name``.

    Raises:
        UnknownNameError: with the names that are known.
    """
    if name not in POLICIES:
        known = ", ".join(POLICIES)
        raise UnknownNameError(f"--scheduler: unknown scheduler {name[:60]!r}; known: {known}")
    return POLICIES[name]


PREFILLS: dict[str, Literal["mixed", "alone", "drained"]] = {
    "prefill_first": "alone",
    "chunked_mixed": "mixed",
    "inflight_no_evict": "mixed",
    "inflight_max_utilisation": "mixed",
    "static": "drained",
    "single": "alone",
}
RESERVES = {"as_grown": 0.0, "estimated": 0.5, "whole": 1.0, "context": 1.0}
"""Share of an output whose cache must be free; ``estimated``: SGLang's estimate begins near 0.7
and falls as long as it was too high, 0.5 was found to serve (assumed)."""


def policy_of(preset: Scheduler) -> Policy:
    """The scheduler of an engine preset."""
    return Policy(
        name=preset.policy,
        prefill=PREFILLS[preset.policy],
        chunked=preset.chunked_prefill,
        reserve=RESERVES[preset.reserve],
        padded=preset.policy == "static",
        meaning=preset.source,
    )
