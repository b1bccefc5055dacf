"""Formats of a cache: bytes per token by hand, limits, and the sign of fewer bits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import UnknownNameError
from perfmodel.operators.cache import cache_bytes, kv_bytes_per_token
from perfmodel.operators.context import Step
from perfmodel.operators.format_bytes import Formats, matrix_bytes, vector_bytes
from perfmodel.operators.step import step_operators
from perfmodel.specs.cache_formats import cache_format
from perfmodel.specs.formats import grouped, number_format
from perfmodel.specs.model import Attention
from tests.operators.support import attentions, model, named

# Llama-3.1-8B: 32 layers of 8 KV heads of 128, keys and values.
VECTORS = 32 * 8 * 2
VALUES = VECTORS * 128


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [
        ("bf16", 2 * VALUES),
        ("fp8", VALUES),
        ("fp8_e5m2", VALUES),
        ("int8_tensor", VALUES),
        ("int8", VALUES + 2 * VECTORS),
        ("fp8_channel", VALUES + 4 * VECTORS),
        ("int8_per_token_head", VALUES + 4 * VECTORS),  # vLLM: 32-bit scales
        ("int4_per_token_head", VALUES / 2 + 4 * VECTORS),
        ("fp8_token", VALUES + 4 * 32 * 2),
        ("int8_token_z16", VALUES + (2 + 2) * 32 * 2),
        ("int4", VALUES / 2 + 2.5 * VECTORS),  # a group of 128 is a head
        ("int4_g32_z16", VALUES / 2 + 4 * VALUES / 32),
        ("int4_channel_g32_z16", VALUES / 2 + 4 * VALUES / 32),
        ("int8_channel_g64", VALUES + 2 * VALUES / 64),
        ("kivi4", VALUES / 2 + 4 * VALUES / 32),
        ("kivi2", VALUES / 4 + 4 * VALUES / 32),
        ("q8_0", VALUES * 34 / 32),
        ("q8_0/q4_0", VALUES / 2 * 34 / 32 + VALUES / 2 * 18 / 32),
        ("nvfp4", VALUES / 2 + VALUES / 16),
    ],
)
def test_bytes_of_a_token_by_hand(name, by_hand):
    assert kv_bytes_per_token(model("llama-3.1-8b"), cache_format(name)) == by_hand


def test_the_newest_tokens_of_kivi_stay_in_16_bits():
    layers = model("llama-3.1-8b").layers
    quantised = VALUES / 2 + 4 * VALUES / 32
    extra = 2 * VALUES - quantised
    kivi = cache_format("kivi4")
    assert cache_bytes(layers, 1000, kivi) == 1000 * quantised + 128 * extra
    assert cache_bytes(layers, 100, kivi) == 100 * 2 * VALUES
    step = Step("decode", 1, 1, 999)
    operators = step_operators(model("llama-3.1-8b"), step, Formats(cache=kivi))
    (read,) = attentions(operators)
    assert read.count * read.cache_bytes == cache_bytes(layers, 1000, kivi)
    write = named(operators, "kv_write")  # in 16 bits, read again, and quantised
    assert write.count * write.bytes == 3 * 2 * VALUES + quantised


def test_mla_stores_its_latent_as_keys():
    """DeepSeek-V3: 61 layers of 512 + 64."""
    deepseek = model("deepseek-v3")
    assert kv_bytes_per_token(deepseek, cache_format("fp8/bf16")) == 61 * 576
    assert kv_bytes_per_token(deepseek, cache_format("int4_channel_g32")) == 61 * 576 * 4.5 / 8


@given(st.integers(1, 600), st.integers(1, 600), st.integers(0, 4000))
def test_a_group_of_the_whole_row_is_a_channel(rows, columns, more):
    group, channel = grouped(4, rows + more, 4), grouped(4, None, 4)
    assert matrix_bytes(group, rows, columns) == matrix_bytes(channel, rows, columns)
    assert vector_bytes(group, 8, rows) == vector_bytes(channel, 8, rows)


@given(st.integers(1, 8), st.integers(1, 256))
def test_a_channel_over_ever_more_tokens_comes_down_to_the_elements(heads, width):
    sizes = [
        vector_bytes(cache_format(f"int4_channel_g{g}_z16").keys, heads, width)
        for g in (16, 64, 256, 999_999)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == pytest.approx(
        vector_bytes(cache_format("int4_tensor").keys, heads, width), rel=1e-4
    )


NAMES = ["bf16", "q8_0", "int8_per_token_head", "fp8", "int4_g32_z16", "int4", "kivi4", "kivi2"]


@given(
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
    st.integers(1, 16),
    st.sampled_from([64, 96, 128, 256]),
    st.integers(1, 20_000),
)
def test_fewer_bits_never_take_more_bytes(first, second, kv_heads, head_dim, context):
    fewer, more = sorted((cache_format(first), cache_format(second)), key=lambda f: f.bits)
    if fewer.bits == more.bits or fewer.recent > more.recent:
        return
    mixer = Attention(heads=kv_heads, kv_heads=kv_heads, head_dim=head_dim)
    layers = [model("llama-3.1-8b").layers[0].model_copy(update={"mixer": mixer})]
    assert cache_bytes(layers, context, fewer) <= cache_bytes(layers, context, more)


@given(
    st.sampled_from(
        ["bf16", "q8_0", "int8", "fp8_block", "int4_g32_z16", "int4", "mxfp4", "nvfp4"]
    ),
    st.sampled_from(
        ["bf16", "q8_0", "int8", "fp8_block", "int4_g32_z16", "int4", "mxfp4", "nvfp4"]
    ),
    st.integers(2, 400),
    st.integers(128, 20_000),
)
def test_fewer_bits_never_weigh_more(first, second, blocks, columns):
    """Rows of at least 256 in whole blocks of 128: below, a scale may outweigh its elements."""
    fewer, more = sorted((number_format(first), number_format(second)), key=lambda f: f.bits)
    if fewer.bits < more.bits:
        rows = 128 * blocks
        assert matrix_bytes(fewer, rows, columns) < matrix_bytes(more, rows, columns)


@pytest.mark.parametrize(
    "name",
    ["q4_k_m", "exl2_4.0", "fp32", "nf4", "fp8_block", "int8_wo", "fp8/fp8/fp8", "kivi3", ""],
)
def test_formats_that_no_cache_has(name):
    with pytest.raises(UnknownNameError) as refused:
        cache_format(name)
    assert "\n" not in str(refused.value)
