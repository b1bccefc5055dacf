"""The kinds of question: what each asks, what it is given, and the unit of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.errors import ConformanceError, one_line

MODEL = "model"
"""The input that names an entry of ``models:``; every other one is a number or a name."""
LARGEST = 10**9


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number of at least ``least``."""

    least: int = 1

    def fault(self, value: Any) -> str | None:
        """What is wrong with ``value``, if anything."""
        if isinstance(value, int) and not isinstance(value, bool) and self.least <= value < LARGEST:
            return None
        return f"a whole number from {self.least} on is needed"


@dataclass(frozen=True, slots=True)
class Share:
    """A number from 0 to 1."""

    def fault(self, value: Any) -> str | None:
        """What is wrong with ``value``, if anything."""
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            return None
        return "a number from 0 to 1 is needed"


@dataclass(frozen=True, slots=True)
class Name:
    """A word; one of ``known`` where those are stated."""

    known: tuple[str, ...] = ()

    def fault(self, value: Any) -> str | None:
        """What is wrong with ``value``, if anything."""
        if isinstance(value, str) and value and (not self.known or value in self.known):
            return None
        return f"one of {', '.join(self.known)} is needed" if self.known else "a name is needed"


Input = Whole | Share | Name
_COUNT, _FROM_ZERO = Whole(), Whole(0)
INPUTS: Mapping[str, Input] = {
    MODEL: Name(),
    "acceptance": Share(),
    "batch": _COUNT,
    "cache": Name(),
    "cached": _FROM_ZERO,
    "chunk": _COUNT,
    "columns": _COUNT,
    "context": _COUNT,
    "draft_tokens": _COUNT,
    "experts": _COUNT,
    "format": Name(),
    "heads": _COUNT,
    "k": _COUNT,
    "m": _COUNT,
    "mla": Name(("absorbed", "expanded")),
    "n": _COUNT,
    "new": _COUNT,
    "qk_dim": _COUNT,
    "rows": _COUNT,
    "state": Name(("bf16", "fp32")),
    "tokens": _COUNT,
    "top_k": _COUNT,
    "tp": _COUNT,
    "v_dim": _COUNT,
    "window": _COUNT,
}
"""What an input may be, whichever kind it is given to."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of question."""

    asks: str
    """What is counted, in one sentence."""
    unit: str
    needs: tuple[str, ...]
    takes: Mapping[str, Any] = field(default_factory=dict)
    """Inputs that may be left out, with what they then are; None: absent."""

    def complete(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """``given`` checked, and filled in with what was left out.

        Raises:
            ConformanceError: an input that is missing, unknown or wrong; begins with its name.
        """
        for name in given:
            if name not in self.needs and name not in self.takes:
                known = ", ".join([*self.needs, *self.takes])
                raise ConformanceError(f"{name}: no input of this kind; known: {known}")
        for name in self.needs:
            if name not in given:
                raise ConformanceError(f"{name}: is missing")
        for name, value in given.items():
            fault = INPUTS[name].fault(value)
            if fault is not None:
                raise ConformanceError(f"{name}: {fault}, not {one_line(repr(value), 60)}")
        return {**self.takes, **given}


_CACHE = {"cache": "bf16"}
KINDS: Mapping[str, Kind] = {
    "parameters": Kind(
        "Parameters of the main network: tied tables once, a vision tower where the checkpoint has "
        "one, no prediction (MTP) modules, no stored rotary constants.",
        "parameters",
        (MODEL,),
    ),
    "text_parameters": Kind("The same without the vision tower.", "parameters", (MODEL,)),
    "active_parameters": Kind(
        "Text parameters that one token passes through: all but the experts it isn't routed to; "
        "both embedding tables count.",
        "parameters",
        (MODEL,),
    ),
    "mtp_parameters": Kind(
        "Parameters of the multi-token-prediction modules, without copies of embedding and head.",
        "parameters",
        (MODEL,),
    ),
    "weight_bytes": Kind(
        "Bytes of the main network's weights as stored in `format`, scales included; "
        "`checkpoint`: as its config's quantization_config says.",
        "B",
        (MODEL, "format"),
    ),
    "decode_weight_bytes": Kind(
        "Bytes of weights in bf16 that one decode step of `batch` sequences reads: every matrix "
        "and norm once, the expected distinct experts, the output table; of the input table "
        "nothing.",
        "B",
        (MODEL,),
        {"batch": 1},
    ),
    "bits_per_weight": Kind(
        "Stored bits per element of a matrix of `rows` contracted and `columns` produced "
        "elements, scales and zero points included.",
        "bit",
        ("format", "rows", "columns"),
    ),
    "kv_bytes_per_token": Kind(
        "Bytes that one token takes in the caches of all layers on each of `tp` ranks, before "
        "any window is full (an indexer's keys apart).",
        "B",
        (MODEL,),
        {**_CACHE, "tp": 1},
    ),
    "kv_bytes_per_token_beyond_window": Kind(
        "Bytes that one more token takes once every window (or chunk) is full.",
        "B",
        (MODEL,),
        _CACHE,
    ),
    "kv_cache_bytes": Kind(
        "Bytes of one sequence's keys and values at `context` tokens; layers with a window (or "
        "chunks) keep as many tokens at most.",
        "B",
        (MODEL, "context"),
        _CACHE,
    ),
    "state_bytes_per_sequence": Kind(
        "Bytes of one sequence's recurrent states, an element as `state` says, and of the "
        "convolutions' last (kernel − 1) inputs in 16 bits.",
        "B",
        (MODEL, "state"),
    ),
    "prefill_flops": Kind(
        "FLOPs of the prefill of one sequence: `tokens` new ones after `cached`, logits of the "
        "last alone. `mla: expanded` computes keys and values of all tokens from the latent.",
        "FLOP",
        (MODEL, "tokens"),
        {"cached": 0, "mla": "expanded"},
    ),
    "decode_flops": Kind(
        "FLOPs of one decode step: a new token for each of `batch` sequences after `cached` "
        "tokens each, and its logits. `mla: absorbed` works on the latent itself.",
        "FLOP",
        (MODEL, "cached"),
        {"batch": 1, "mla": "absorbed"},
    ),
    "linear_flops_per_token": Kind(
        "FLOPs per token of all products with weights in the layers: projections, feed-forward, "
        "routers and the experts a token visits; not attention, not the LM head.",
        "FLOP",
        (MODEL,),
    ),
    "ffn_flops_per_token": Kind(
        "The part of these that belongs to the feed-forward blocks of a dense model.",
        "FLOP",
        (MODEL,),
    ),
    "lm_head_flops": Kind(
        "FLOPs of the LM head in the prefill of `batch` prompts of `tokens` each: one row of "
        "logits per sequence.",
        "FLOP",
        (MODEL, "batch", "tokens"),
    ),
    "gemm_flops": Kind("FLOPs of C[m,n] = A[m,k] · B[k,n].", "FLOP", ("m", "n", "k")),
    "attention_flops": Kind(
        "FLOPs of one layer's attention for one sequence: `new` causal queries after `cached` "
        "tokens, over the (query, key) pairs that the mask keeps.",
        "FLOP",
        ("heads", "qk_dim", "v_dim", "new"),
        {"cached": 0, "window": None},
    ),
    "causal_pairs": Kind(
        "(query, key) pairs that a causal mask keeps; with a `window` a query sees the last so "
        "many keys, itself included; with a `chunk` it sees back to the start of its chunk.",
        "pairs",
        ("new",),
        {"cached": 0, "window": None, "chunk": None},
    ),
    "expected_experts": Kind(
        "Distinct experts that `tokens` tokens touch in one layer in expectation, each routed to "
        "`top_k` of `experts` uniformly and independently.",
        "experts",
        ("experts", "top_k", "tokens"),
    ),
    "tokens_per_round": Kind(
        "Mean tokens of a speculative round: `draft_tokens` drafted in a chain, each accepted "
        "with probability `acceptance` if those before it were, and one from the target.",
        "tokens",
        ("acceptance", "draft_tokens"),
    ),
}
