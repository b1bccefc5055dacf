"""GGUF files: bytes by llama.cpp's own block sizes, tensor by tensor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.inference.plan import make_plan
from perfmodel.operators.context import Step
from perfmodel.operators.gguf import fitting, gguf_file, more_bits
from perfmodel.operators.record import Gemm
from perfmodel.operators.step import step_operators
from perfmodel.operators.stored_weights import stage_weight_bytes
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import load_hardware
from perfmodel.specs.workload import Workload
from perfmodel.units import GIB
from tests.operators.support import model
from tests.operators.support import named as one

# Bytes of a super-block of 256: 128 of codes and 16 of scales; + 32 high bits; 192 + 16 + 2.
Q4_K, Q5_K, Q6_K = 144 / 256, 176 / 256, 210 / 256
Q8_0, Q4_0 = 34 / 32, 18 / 32


def stored(name: str, kind: str) -> float:
    plan = make_plan(model(name), load_hardware("h100-sxm"), Workload(), Deployment(weights=kind))
    return stage_weight_bytes(
        plan.model, plan.model.layers, plan.formats, plan.parallel, first=True, last=True
    )


def test_llama_3_8b_in_q4_k_m_by_hand():
    """Layers 0-3, 28-31 and 6, 9, …, 27 are 16 with more bits: v and down in Q6_K."""
    rest = 2 * 4096 * 4096 + 4096 * 1024 + 2 * 4096 * 14_336  # q, o; k; gate, up
    special = 4096 * 1024 + 14_336 * 4096  # v; down
    tables = 128_256 * 4096 * (Q4_K + Q6_K)  # embedding; head
    norms = 2 * 65 * 4096
    by_hand = 32 * rest * Q4_K + 16 * special * (Q4_K + Q6_K) + tables + norms
    assert stored("llama-3-8b", "q4_k_m") == by_hand == 4_912_365_568
    assert by_hand / GIB == pytest.approx(4.58, abs=0.006)  # what llama-bench prints


def test_llama_3_70b_in_q4_k_m_by_hand():
    """10 + 10 + 20 layers (12, 15, …, 69) with more bits; the other v in Q5_K."""
    rest = 2 * 8192 * 8192 + 8192 * 1024 + 2 * 8192 * 28_672
    v, down = 8192 * 1024, 28_672 * 8192
    layers = 80 * rest * Q4_K + 40 * v * (Q6_K + Q5_K) + 40 * down * (Q6_K + Q4_K)
    by_hand = layers + 128_256 * 8192 * (Q4_K + Q6_K) + 2 * 161 * 8192
    assert stored("llama-3-70b", "q4_k_m") == by_hand == 42_509_893_632
    assert by_hand / GIB == pytest.approx(39.59, abs=0.005)


def test_whole_files_of_one_format():
    """Q8_0 keeps the head in Q8_0, Q4_0 has it in Q6_K."""
    body = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14_336)
    table, norms = 128_256 * 4096, 2 * 65 * 4096
    assert stored("llama-3-8b", "q8_0") == (body + 2 * table) * Q8_0 + norms
    assert stored("llama-3-8b", "q4_0") == (body + table) * Q4_0 + table * Q6_K + norms


def test_a_tied_table_is_stored_as_the_head():
    file = gguf_file(model("llama-3.2-1b"), "q4_k_m").checkpoint
    assert file is not None
    assert file.of_role("embedding").weights == file.of_role("head").weights == "q6_k"


def test_mixtral_gives_its_small_attention_more_bits():
    """Eight experts: k and v in Q8_0, the output in Q5_K; down of each expert by the rule."""
    layers = gguf_file(model("mixtral-8x7b"), "q4_k_m").layers
    plain = {name: scheme.weights for name, scheme in layers[4].stored}
    assert plain == {"k_proj": "q8_0", "v_proj": "q8_0", "o_proj": "q5_k"}
    assert ("experts.down_proj", "q6_k") in {(n, s.weights) for n, s in layers[6].stored}


@pytest.mark.parametrize(
    ("wanted", "rows", "got"),
    [
        ("q4_k", 4096, "q4_k"),
        ("q4_k", 896, "q5_0"),  # Qwen2.5-0.5B: 896 = 3.5 super-blocks
        ("q6_k", 896, "q8_0"),
        ("q5_k", 4544, "q5_1"),  # Falcon-7B
        ("q4_0", 80, "bf16"),
    ],
)
def test_rows_that_are_no_whole_blocks(wanted, rows, got):
    assert fitting(wanted, rows) == got


@given(st.integers(8, 200))
def test_half_of_the_layers_get_more_bits(count):
    """The first and last eighth and a third of the rest: 1/4 + 3/4/3 = 1/2."""
    chosen = sum(more_bits(i, count) for i in range(count))
    assert chosen == pytest.approx(count / 2, abs=2)


def test_a_step_reads_what_the_file_holds():
    """Batch 1: every matrix once, of the embedding table a row."""
    plan = make_plan(
        model("llama-3-8b"), load_hardware("h100-sxm"), Workload(), Deployment(weights="Q4_K_M")
    )
    operators = step_operators(plan.model, Step("decode", 1, 1, 9), plan.formats)
    read = sum(o.count * o.weight_bytes for o in operators)
    assert read == stored("llama-3-8b", "q4_k_m") - 128_256 * 4096 * Q4_K
    assert one(operators, "lm_head").weight_format == "q6_k"
    down = [o for o in operators if isinstance(o, Gemm) and "down" in o.name]
    assert {o.weight_format: o.count for o in down} == {"q6_k": 16, "q4_k": 16}
    assert all(o.arithmetic == "bf16" for o in operators if isinstance(o, Gemm))


def test_a_file_replaces_the_checkpoints_own_formats():
    plan = make_plan(
        model("gpt-oss-20b"), load_hardware("h100-sxm"), Workload(), Deployment(weights="q8_0")
    )
    assert plan.formats.expert.name == plan.formats.linear.name == plan.formats.head.name == "q8_0"
