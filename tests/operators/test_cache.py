"""Sizes of caches and states: hand-derived, and alike for scalars and arrays."""

import numpy as np
import pytest

from perfmodel.operators.cache import (
    cache_bytes,
    indexer_bytes_per_token,
    kept_tokens,
    kv_bytes_per_token,
    state_bytes_per_sequence,
    state_elements,
)
from perfmodel.specs.formats import FORMATS
from perfmodel.specs.loading import load_model


def test_a_window_caps_the_tokens():
    windowed, full = (layer.mixer for layer in load_model("gpt-oss-120b").layers[:2])
    assert kept_tokens(windowed, 100) == 100
    assert kept_tokens(windowed, 1000) == 128
    assert kept_tokens(full, 1000) == 1000
    contexts = np.array([1.0, 128.0, 129.0])
    np.testing.assert_array_equal(kept_tokens(windowed, contexts), [1, 128, 128])


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-120b", "gemma-3-27b", "deepseek-v3"])
def test_arrays_are_as_scalars(name):
    layers = load_model(name).layers
    contexts = np.array([1, 127, 128, 129, 4096, 131072])
    whole = cache_bytes(layers, contexts, FORMATS["fp8"])
    alone = [cache_bytes(layers, int(n), FORMATS["fp8"]) for n in contexts]
    np.testing.assert_array_equal(whole, alone)
    assert np.all(np.diff(whole) > 0)


def test_short_contexts_take_the_full_rate():
    model = load_model("gpt-oss-120b")
    assert cache_bytes(model.layers, 128) == 128 * kv_bytes_per_token(model)
    beyond = cache_bytes(model.layers, 129) - cache_bytes(model.layers, 128)
    assert beyond == kv_bytes_per_token(model, beyond_window=True)


def test_the_format_scales_the_cache():
    model = load_model("llama-3.1-8b")
    # fp8 with one scale per tensor: half of bf16; int8 adds a 16-bit scale per token and head,
    # for keys and for values: 32 layers · 2 · 8 heads · 2 B = 1,024 B
    assert kv_bytes_per_token(model, FORMATS["fp8"]) == 65_536
    assert kv_bytes_per_token(model, FORMATS["int8"]) == 65_536 + 1_024


def test_the_indexers_keys_are_apart():
    model = load_model("deepseek-v3.2")
    assert kv_bytes_per_token(model) == 70_272
    assert indexer_bytes_per_token(model) == 8_052  # 61·(128 in fp8 + a 4-byte scale)
    assert indexer_bytes_per_token(load_model("deepseek-v3")) == 0


def test_states_of_qwen3_next():
    # 36 delta layers: 32 heads of 128×128; convolution over 2·16·128 + 32·128 = 8,192, 3 deep
    model = load_model("qwen3-next-80b-a3b")
    assert state_elements(model) == (36 * 32 * 128 * 128, 36 * 8192 * 3)
    assert state_bytes_per_sequence(model) == 2 * (18_874_368 + 884_736)


def test_the_state_may_be_wider_than_the_activations():
    # Qwen3.5-27B says mamba_ssm_dtype float32: 48 layers of 48 heads of 128×128
    model = load_model("qwen3.5-27b")
    recurrent, conv = state_elements(model)
    assert recurrent == 48 * 48 * 128 * 128
    assert state_bytes_per_sequence(model) == 4 * recurrent + 2 * conv


def test_attention_keeps_no_state():
    assert state_bytes_per_sequence(load_model("llama-3.1-8b")) == 0
