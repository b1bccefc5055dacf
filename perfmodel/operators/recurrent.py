"""From linear-attention and state-space layers to their operators.

FLOPs are those of the recurrence in its sequential form, per element of the state and token:
decay, rank-one update, read-out. Chunked kernels execute more to use the matrix units.
"""

from __future__ import annotations

from collections.abc import Iterator

from perfmodel.operators.cache import (
    STATE_BYTES,
    Recurrent,
    conv_channels,
    layer_state,
    layer_state_bytes,
)
from perfmodel.operators.context import HALF, Context
from perfmodel.operators.mixers import named
from perfmodel.operators.record import Operator, Recurrence
from perfmodel.operators.weights import delta_weights, mamba1_weights, mamba2_weights
from perfmodel.specs.model import GatedDeltaNet, Mamba1, Mamba2

DELTA_FLOPS = 7
"""Gated delta rule per state element: decay 1, kᵀS 2, rank-one update 2, qᵀS 2."""
SSM_FLOPS = 5
"""State space per state element: decay 1, (Δx)⊗B and its addition 2, C·h 2."""


def _recurrence(
    mixer: Recurrent, c: Context, flops: int, io_elements: int, weights: float
) -> Iterator[Operator]:
    channels = conv_channels(mixer)
    recurrent, conv = layer_state(mixer)
    for part in c.step.parts:
        yield Recurrence(
            name="recurrence",
            count=c.count,
            arithmetic=c.formats.base_arithmetic,
            weight_bytes=weights,
            per_part=True,
            sequences=part.sequences,
            queries=part.new,
            states_kept=part.new if part.phase == "decode" else 1,
            state_elements=recurrent + conv,
            state_bytes=layer_state_bytes(mixer, STATE_BYTES[c.state_dtype]),
            flops_per_token=flops * recurrent + 2 * mixer.conv_kernel * channels,
            io_elements=io_elements + 2 * channels,
        )


def delta_operators(d: GatedDeltaNet, c: Context) -> Iterator[Operator]:
    """Gated delta net: projections, convolution and recurrence, gated norm, output."""
    weights = named(delta_weights(d, c.hidden))
    keys, values = d.key_heads * d.key_dim, d.value_heads * d.value_dim
    yield from c.linear(weights["in_proj_qkvz"])
    yield from c.linear(weights["in_proj_ba"])
    io_elements = 2 * keys + 2 * values + 2 * d.value_heads  # q, k, v, b, a in; y out
    vectors = c.vectors(weights["conv"], weights["decay"])
    yield from _recurrence(d, c, DELTA_FLOPS, io_elements, vectors)
    gated = c.vectors(weights["gated_norm"])
    yield from c.gated("gated_norm", values, weights["out_proj"], gated)
    yield from c.linear(weights["out_proj"], after="written")


def mamba2_operators(m: Mamba2, c: Context) -> Iterator[Operator]:
    """Mamba-2: projection, convolution and scan, gated norm, output."""
    weights = named(mamba2_weights(m, c.hidden))
    yield from c.linear(weights["in_proj"])
    io_elements = 2 * m.inner + 2 * m.groups * m.state + m.heads  # x, B, C, dt in; y out
    vectors = c.vectors(weights["conv"], weights["decay"])
    yield from _recurrence(m, c, SSM_FLOPS, io_elements, vectors)
    gated = c.vectors(weights["gated_norm"]) if m.gated_norm else 0.0
    yield from c.gated("gated_norm", m.inner, weights["out_proj"], gated)
    yield from c.linear(weights["out_proj"], after="written")


def mamba1_operators(m: Mamba1, c: Context) -> Iterator[Operator]:
    """Mamba-1: projection, convolution, dt/B/C, selective scan, gate, output."""
    weights = named(mamba1_weights(m, c.hidden))
    yield from c.linear(weights["in_proj"])
    yield from c.linear(weights["x_proj"], after="kernel")
    if m.inner_norms:
        moved = HALF * (m.dt_rank + 2 * m.state)
        inner = c.vectors(weights["inner_norms"])
        yield c.elementwise("inner_norms", moved, moved, weight_bytes=inner)
    yield from c.linear(weights["dt_proj"], after="pass" if m.inner_norms else "kernel")
    io_elements = 3 * m.inner + 2 * m.state  # x, dt, B, C in; y out
    vectors = c.vectors(weights["conv"], weights["decay"])
    yield from _recurrence(m, c, SSM_FLOPS, io_elements, vectors)
    yield from c.gated("gate", m.inner, weights["out_proj"])
    yield from c.linear(weights["out_proj"], after="written")
