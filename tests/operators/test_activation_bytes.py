"""Activations that a step reads and writes, operator by operator, 2 B an element."""

from __future__ import annotations

from perfmodel.operators.context import Step
from perfmodel.operators.step import step_operators
from tests.operators.support import model, recurrences

D, D_FF, VOCAB = 4096, 14_336, 128_256


def test_every_operator_of_a_llama_step():
    """Three sequences of Llama-3.1-8B: elements in and out per row, and the rows."""
    expected = {
        "embedding": 3 * (D + D),  # a row of the table in, the hidden state out
        "norm_residual": 3 * (2 * D + 2 * D),  # state and residual in; sum and norm out
        "qkv_proj": 3 * (D + 6144),
        "rotary": 3 * 2 * (32 + 8) * 128,
        "kv_write": 3 * 2 * 2 * 8 * 128,  # keys and values in, the cache out
        "attention": 3 * 2 * 32 * 128,  # queries in, outputs out; keys and values are cache
        "o_proj": 3 * (D + D),
        "ffn.gate_up_proj": 3 * (D + 2 * D_FF),
        "ffn.activation": 3 * (2 * D_FF + D_FF),
        "ffn.down_proj": 3 * (D_FF + D),
        "final_norm": 3 * (2 * D + D),
        "lm_head": 3 * (D + VOCAB),
        "sampling": 3 * (VOCAB + 2),  # logits in, a 4-byte token id out
    }
    operators = step_operators(model("llama-3.1-8b"), Step("decode", 3, 1, 100))
    assert {o.name: o.activation_bytes / 2 for o in operators} == expected


def test_every_operator_of_mixtrals_experts():
    """Five tokens, two experts each: ten rows of 4096 → 2·14,336 → 4096; 8 scores a token."""
    expected = {
        "router": 5 * (D + 8),
        "router.top_k": 5 * (8 + 2 * 4),  # scores in; a 4-byte index and weight per expert out
        "experts.gate_up_proj": 10 * (D + 2 * D_FF),
        "experts.activation": 10 * (2 * D_FF + D_FF),
        "experts.down_proj": 10 * (D_FF + D),
        "experts.sum": 5 * (2 * D + D),
    }
    operators = step_operators(model("mixtral-8x7b"), Step("decode", 5, 1, 100))
    found = {o.name: o.activation_bytes / 2 for o in operators}
    assert {name: found[name] for name in expected} == expected
    assert not any(name.startswith("ffn.") for name in found)


def test_a_recurrent_layer_moves_its_inputs_through_the_convolution():
    """Qwen3-Next: q and k of 16·128, v and y of 32·128, two gates of 32 in or out; and the 8,192
    channels of the convolution in and out.
    """
    (scan,) = recurrences(step_operators(model("qwen3-next-80b-a3b"), Step("prefill", 2, 7, 0)))
    elements = 2 * 16 * 128 + 2 * 32 * 128 + 2 * 32 + 2 * 8_192
    assert scan.activation_bytes == 2 * 14 * elements
