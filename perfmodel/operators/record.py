"""The operators of a step: each with its shape and an exact count of FLOPs and bytes.

An operator is what one GPU executes once; ``count`` says how often a step repeats it. Counting
rules (docs/model.md derives them):

* a multiply-add is 2 FLOPs; only matrix products, attention and recurrences count FLOPs. The
  arithmetic of elementwise operators is below 0.1 % of a step's and never limits them: they are
  counted by their bytes;
* bytes are device-memory traffic: each operand in once, each result out once;
* what crosses a link is counted apart (``wire_bytes``).

Operators know neither hardware nor time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perfmodel.operators.collective import Collective, CollectiveKind
from perfmodel.operators.operator import Operator, Shape
from perfmodel.operators.quantity import Quantity

Phase = Literal["prefill", "decode"]
PartOf = Literal["", "experts", "quantise", "joined"]

__all__ = [
    "Attention",
    "Collective",
    "CollectiveKind",
    "Elementwise",
    "ExpertLayer",
    "Gemm",
    "GroupedGemm",
    "Operator",
    "Phase",
    "Recurrence",
    "Shape",
]


@dataclass(frozen=True, kw_only=True)
class Gemm(Operator):
    """C[m, n] = A[m, k]·B[k, n], ``batch`` times with another B each (1 for a linear layer)."""

    m: Quantity
    n: int
    k: int
    batch: int = 1
    input_bytes_per_element: float = 2.0
    output_bytes_per_element: float = 2.0

    @property
    def shape(self) -> Shape:
        """M tokens, n columns, k contracted, and the batch where there is one."""
        base: Shape = {"m": self.m, "n": self.n, "k": self.k}
        return base | {"batch": self.batch} if self.batch > 1 else base

    @property
    def flops(self) -> Quantity:
        """2·m·n·k per product."""
        return 2 * self.batch * self.n * self.k * self.m

    @property
    def activation_bytes(self) -> Quantity:
        """A in, C out."""
        per_row = self.k * self.input_bytes_per_element + self.n * self.output_bytes_per_element
        return self.batch * per_row * self.m


@dataclass(frozen=True, kw_only=True)
class Attention(Operator):
    """Softmax attention of new queries over cached and new keys."""

    phase: Phase
    sequences: Quantity
    queries: Quantity
    """New tokens per sequence."""
    keys: Quantity
    """Distinct keys per sequence that the queries read together."""
    pairs: Quantity
    """(query, key) pairs per sequence that the mask keeps."""
    context: Quantity
    """Tokens of a sequence, cached and new, whatever the mask keeps of them."""
    heads: int
    kv_heads: int
    qk_dim: int
    value_dim: int
    key_bytes: float
    """Bytes of one token's keys and values in this layer, scales included."""
    cache_format: str = "bf16"
    """The number format that keys and values are read in."""
    recent_bytes: Quantity = 0
    """Of a sequence's keys and values, beyond ``key_bytes`` each: the newest are in 16 bits."""
    latent: bool = False
    """MLA: all heads read one latent (absorbed), or expanded heads wider than the values'."""
    window: int | None = None
    fused: bool = True
    """A fused kernel keeps the scores on chip; an unfused one writes and reads them."""

    @property
    def shape(self) -> Shape:
        """Sequences, queries and keys of each, heads and widths."""
        base: Shape = {
            "sequences": self.sequences,
            "queries": self.queries,
            "keys": self.keys,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "qk_dim": self.qk_dim,
            "value_dim": self.value_dim,
        }
        return base | {"window": self.window} if self.window else base

    @property
    def flops(self) -> Quantity:
        """2·heads·(d_qk + d_v) per pair: the scores, and their product with the values."""
        return 2 * self.heads * (self.qk_dim + self.value_dim) * self.pairs * self.sequences

    @property
    def cache_bytes(self) -> Quantity:
        """Keys and values, each read once."""
        return (self.key_bytes * self.keys + self.recent_bytes) * self.sequences

    @property
    def activation_bytes(self) -> Quantity:
        """Queries in and outputs out.

        Unfused, the scores are written and read before and after the softmax: four passes over
        queries × keys per head.
        """
        per_query: Quantity = 2.0 * self.heads * (self.qk_dim + self.value_dim)
        if not self.fused:
            per_query = per_query + 4 * 2.0 * self.heads * self.keys
        return per_query * self.queries * self.sequences


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """The routed layer that a GPU has a part of: its sizes over all ranks."""

    tokens: Quantity
    """Tokens routed over the ranks that share the experts."""
    hidden: int
    width: int
    """Intermediate width of a whole expert."""
    top_k: int
    experts: int
    tp: int
    """Ranks that share one expert."""
    ep: int
    """Ranks that the experts are spread over."""
    gated: bool
    skew: float = 0.0
    """Exponent of the experts' popularity by rank; 0: all alike."""


@dataclass(frozen=True, kw_only=True)
class GroupedGemm(Operator):
    """One projection of the experts on this GPU: a GEMM per expert over the tokens it got."""

    layer: ExpertLayer
    rows: Quantity
    """(token, expert) pairs that this GPU computes."""
    active_experts: Quantity
    """Expected number of local experts that get at least one token."""
    experts: int
    """Experts on this GPU."""
    n: int
    k: int
    input_bytes_per_element: float = 2.0
    output_bytes_per_element: float = 2.0

    @property
    def shape(self) -> Shape:
        """Rows over all local experts, how many of those are touched, and an expert's matrix."""
        return {
            "rows": self.rows,
            "active_experts": self.active_experts,
            "experts": self.experts,
            "n": self.n,
            "k": self.k,
        }

    @property
    def flops(self) -> Quantity:
        """2·n·k per (token, expert) pair."""
        return 2 * self.n * self.k * self.rows

    @property
    def activation_bytes(self) -> Quantity:
        """Each row in, each result out."""
        per_row = self.k * self.input_bytes_per_element + self.n * self.output_bytes_per_element
        return per_row * self.rows


@dataclass(frozen=True, kw_only=True)
class Recurrence(Operator):
    """A state-space or linear-attention layer's scan: constant state, no growing cache."""

    sequences: Quantity
    queries: Quantity
    state_elements: int
    """Recurrent and convolution state of one sequence in this layer."""
    state_bytes: float
    """The same in bytes."""
    flops_per_token: int
    io_elements: int
    """Elements read and written per token besides the state."""
    states_kept: Quantity = 1
    """States written per sequence: that of each token where later ones may be taken back."""

    @property
    def shape(self) -> Shape:
        """Sequences, tokens of each, and the state's size."""
        return {
            "sequences": self.sequences,
            "queries": self.queries,
            "state_elements": self.state_elements,
        }

    @property
    def flops(self) -> Quantity:
        """The recurrence in its sequential form; a chunked kernel executes more."""
        return self.flops_per_token * self.queries * self.sequences

    @property
    def cache_bytes(self) -> Quantity:
        """The state in, once per sequence and step, and those kept out."""
        return (1 + self.states_kept) * self.state_bytes * self.sequences

    @property
    def activation_bytes(self) -> Quantity:
        """Inputs in and outputs out, 16 bits each."""
        return 2.0 * self.io_elements * self.queries * self.sequences


@dataclass(frozen=True, kw_only=True)
class Elementwise(Operator):
    """Norms, rotary embedding, activations, gathers, cache writes: limited by bytes."""

    tokens: Quantity
    read_bytes: float
    """Per token."""
    write_bytes: float
    """Per token."""
    part_of: PartOf = ""
    """What a library's kernel may do in the same pass: then it takes no time of its own.
    ``joined``: in its neighbour's kernel; it moves its bytes and launches nothing."""

    @property
    def shape(self) -> Shape:
        """Rows, and the bytes of each."""
        return {"tokens": self.tokens, "bytes_per_token": self.read_bytes + self.write_bytes}

    @property
    def activation_bytes(self) -> Quantity:
        """What is read and written."""
        return (self.read_bytes + self.write_bytes) * self.tokens
