"""Random small models, built from the records themselves."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from perfmodel.specs.model import (
    Attention,
    DenseFfn,
    GatedDeltaNet,
    Indexer,
    LatentAttention,
    Layer,
    Mamba1,
    Mamba2,
    Model,
    MoeFfn,
    Norm,
)

flags = st.booleans()
widths = st.integers(1, 40)


@st.composite
def attention(draw: Any, multiple: int = 1, plain: bool = False) -> Attention:
    """``plain``: nothing that every tensor-parallel rank holds whole."""
    kv_heads = draw(st.integers(1, 3)) * multiple
    window = draw(st.none() | st.integers(1, 30))
    return Attention(
        heads=kv_heads * draw(st.integers(1, 4)),
        kv_heads=kv_heads,
        head_dim=draw(widths),
        value_head_dim=draw(st.none() | widths),
        q_bias=draw(flags),
        kv_bias=draw(flags),
        out_bias=not plain and draw(flags),
        qk_norm="none" if plain else draw(st.sampled_from(["none", "head", "width"])),
        qk_norm_bias=draw(flags),
        window=window,
        chunked=window is not None and draw(flags),
        sinks=draw(flags),
        output_gate=draw(flags),
        rotary_dim=draw(st.integers(0, 8)),
    )


@st.composite
def latent(draw: Any) -> LatentAttention:
    index = Indexer(heads=draw(widths), head_dim=draw(widths), top_k=draw(st.integers(1, 20)))
    return LatentAttention(
        heads=draw(st.integers(1, 4)),
        q_rank=draw(st.none() | widths),
        kv_rank=draw(widths),
        nope_dim=draw(widths),
        rope_dim=draw(widths),
        value_dim=draw(widths),
        bias=draw(flags),
        indexer=draw(st.none() | st.just(index)),
    )


@st.composite
def recurrent(draw: Any) -> Any:
    conv_kernel = draw(st.integers(1, 4))
    groups = draw(st.integers(1, 3))
    delta = GatedDeltaNet(
        key_heads=groups,
        value_heads=groups * draw(st.integers(1, 3)),
        key_dim=draw(widths),
        value_dim=draw(widths),
        conv_kernel=conv_kernel,
    )
    second = Mamba2(
        heads=groups * draw(st.integers(1, 3)),
        head_dim=draw(widths),
        state=draw(widths),
        groups=groups,
        conv_kernel=conv_kernel,
        conv_bias=draw(flags),
        bias=draw(flags),
        gated_norm=draw(flags),
    )
    first = Mamba1(
        inner=draw(widths),
        state=draw(widths),
        dt_rank=draw(widths),
        conv_kernel=conv_kernel,
        conv_bias=draw(flags),
        bias=draw(flags),
        inner_norms=draw(flags),
    )
    return draw(st.sampled_from([delta, first, second]))


@st.composite
def dense(draw: Any, multiple: int = 1, plain: bool = False) -> DenseFfn:
    return DenseFfn(
        width=draw(widths) * multiple,
        gated=draw(flags),
        up_bias=draw(flags),
        down_bias=not plain and draw(flags),
    )


@st.composite
def moe(draw: Any, multiple: int = 1, plain: bool = False) -> MoeFfn:
    experts = draw(st.integers(1, 4)) * multiple
    return MoeFfn(
        experts=experts,
        top_k=draw(st.integers(1, experts)),
        width=draw(widths) * multiple,
        gated=draw(flags),
        bias=not plain and draw(flags),
        shared=draw(st.none() | dense(multiple, plain)),
        shared_gate=not plain and draw(flags),
        router_bias=not plain and draw(flags),
        correction_bias=not plain and draw(flags),
    )


@st.composite
def models(draw: Any, mixers: Any = None, ffns: Any = None, multiple: int = 1) -> Model:
    """One to four layers; the vocabulary is a multiple of 64, so that ranks share it evenly."""
    mixers = attention() | latent() | recurrent() if mixers is None else mixers
    ffns = dense() | moe() if ffns is None else ffns
    layers = st.builds(
        Layer, mixer=mixers, ffn=st.none() | ffns, norms=st.integers(0, 4), parallel=flags
    ) | st.builds(Layer, mixer=st.none(), ffn=ffns, norms=st.integers(0, 1))
    head = draw(flags) or multiple > 1
    return Model(
        name="random",
        architecture="random",
        hidden=draw(widths) * multiple,
        vocab=64 * draw(st.integers(1, 4)),
        layers=tuple(draw(st.lists(layers, min_size=1, max_size=4))),
        norm=Norm(
            kind=draw(st.sampled_from(["rms", "layer"])), weight=draw(flags), bias=draw(flags)
        ),
        tied=draw(flags),
        head=head,
        head_bias=head and draw(flags),
        position_rows=draw(st.sampled_from([0, 50])),
        embedding_width=draw(st.none() | widths) if head else None,
        embedding_norms=draw(st.integers(0, 1)),
        final_norm=draw(flags),
        max_positions=1000,
        state_dtype=draw(st.sampled_from(["fp32", "bf16"])),
    )
