"""Sizes of caches and states: hand-derived, and alike for scalars and arrays."""

import numpy as np
import pytest

from perfmodel.operators.cache import (
    indexer_bytes_per_token,
    kv_bytes,
    kv_bytes_per_token,
    kv_tokens,
    state_bytes_per_sequence,
    state_elements,
)
from perfmodel.specs.loading import load_model


def test_a_window_caps_the_tokens():
    assert kv_tokens(128, 100) == 100
    assert kv_tokens(128, 1000) == 128
    assert kv_tokens(None, 1000) == 1000
    np.testing.assert_array_equal(kv_tokens(128, np.array([1, 128, 129])), [1, 128, 128])


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-120b", "gemma-3-27b", "deepseek-v3"])
def test_arrays_are_as_scalars(name):
    model = load_model(name)
    contexts = np.array([1, 127, 128, 129, 4096, 131072])
    whole = kv_bytes(model, contexts, 1.0)
    np.testing.assert_array_equal(whole, [kv_bytes(model, int(n), 1.0) for n in contexts])
    assert np.all(np.diff(whole) > 0)


def test_short_contexts_take_the_full_rate():
    model = load_model("gpt-oss-120b")
    assert kv_bytes(model, 128) == 128 * kv_bytes_per_token(model)
    beyond = kv_bytes(model, 129) - kv_bytes(model, 128)
    assert beyond == kv_bytes_per_token(model, beyond_window=True)


def test_width_scales_the_cache():
    model = load_model("llama-3.1-8b")
    np.testing.assert_array_equal(
        kv_bytes_per_token(model, np.array([2.0, 1.0])), [131_072, 65_536]
    )


def test_the_indexers_keys_are_apart():
    model = load_model("deepseek-v3.2")
    assert kv_bytes_per_token(model) == 70_272
    assert indexer_bytes_per_token(model) == 15_616  # 61·128·2
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
