"""Quantised checkpoints: bytes, activations and caches by hand, from hub-style configs."""

from __future__ import annotations

import pytest

from perfmodel.errors import InputError
from perfmodel.operators.context import Step
from perfmodel.operators.format_bytes import Formats, Product
from perfmodel.operators.record import Gemm, GroupedGemm
from perfmodel.operators.step import step_operators
from perfmodel.operators.weights import Weight
from perfmodel.specs.architectures import build_model
from perfmodel.specs.formats import FORMATS, grouped, number_format
from perfmodel.units import GIB
from tests.inference.checkpoint_case import (
    ATTENTION,
    FFN,
    HEAD,
    LAYERS,
    ONE,
    REST,
    compressed,
    fp8,
    quantised,
    run,
    stored,
)
from tests.operators.support import config

CHANNELS = 6144 + 4096 + 28_672 + 4096
"""Output channels of a layer's four matrices."""


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("int4_g32", 4 + 16 / 32),
        ("int4_g64", 4 + 16 / 64),
        ("int4_g128", 4 + 16 / 128),
        ("int4", 4 + 16 / 128 + 4 / 128),
        ("int4_g128_z4", 4 + 16 / 128 + 4 / 128),
        ("int4_g32_z16", 4 + 32 / 32),  # gpt-fast: a 16-bit zero point
        ("int8_g128", 8 + 16 / 128),
        ("int8_g128_z8", 8 + 24 / 128),
        ("nf4", 4.5),
        ("nf4_double", 4 + 8 / 64 + 32 / (64 * 256)),
    ],
)
def test_bits_of_a_group(name, bits):
    product = Product(number_format(name))
    weights = Formats(roles={"linear": product})
    matrix = Weight("qkv_proj", "linear", 4096, 6144)
    assert weights.weight_bytes(matrix) == pytest.approx(4096 * 6144 * bits / 8)


def test_no_listed_format_is_spelled_as_a_group():
    """`int4_g32` means symmetric groups of 32 wherever it is written."""
    for name in FORMATS:
        assert number_format(name) == FORMATS[name]
    assert grouped(4, 128, 4) is FORMATS["int4"]
    assert number_format("int4_channel").grouping == "channel"
    for wrong in ("int4_g0", "int3_g32", "int4_g", "int4_g32_z5", "int4_g9999999"):
        with pytest.raises(InputError, match="unknown number format"):
            number_format(wrong)


@pytest.mark.parametrize(
    ("section", "name", "per_layer_bytes"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "int4",
         (ATTENTION + FFN) * (4 + 20 / 128) / 8),
        ({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": False}, "int4_g64",
         (ATTENTION + FFN) * (4 + 16 / 64) / 8),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "int4_g32",
         (ATTENTION + FFN) * (4 + 16 / 32) / 8),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False}, "int4_g32_z4",
         (ATTENTION + FFN) * (4 + 20 / 32) / 8),
        ({"quant_method": "gptq", "bits": 4, "group_size": 1024, "sym": True}, "int4_g1024",
         (ATTENTION + FFN) * (4 + 16 / 1024) / 8),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1, "sym": True}, "int4_channel",
         (ATTENTION + FFN) / 2 + 2 * CHANNELS),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True}, "int8",
         (ATTENTION + FFN) + 2 * CHANNELS),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, "int4_g128",
         (ATTENTION + FFN) * (4 + 16 / 128) / 8),
        (compressed({"num_bits": 4, "type": "int", "group_size": 32, "symmetric": True}),
         "int4_g32", (ATTENTION + FFN) * (4 + 16 / 32) / 8),
        (compressed({"num_bits": 4, "type": "int", "group_size": 64, "symmetric": False}),
         "int4_g64_z4", (ATTENTION + FFN) * (4 + 20 / 64) / 8),
        (compressed({"num_bits": 4, "type": "int", "strategy": "channel"}), "int4_channel",
         (ATTENTION + FFN) / 2 + 2 * CHANNELS),
        (compressed({"num_bits": 8, "type": "float", "strategy": "channel"}), "fp8_channel",
         (ATTENTION + FFN) + 4 * CHANNELS),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
         "nf4_double", (ATTENTION + FFN) * (4 + 8.125 / 64) / 8),
    ],
)  # fmt: skip
def test_every_group_size_weighs_its_own(section, name, per_layer_bytes):
    model = quantised(section)
    assert model.checkpoint is not None
    assert model.checkpoint.weights == name
    assert stored(model) == pytest.approx(32 * per_layer_bytes + REST, rel=1e-12)


@pytest.mark.parametrize(
    ("ignored", "in_16_bits", "scales"),
    [
        ([], 0, ONE),
        (["self_attn"], 32 * ATTENTION, ONE - 32 * 2 * 4),
        (["re:.*self_attn.*"], 32 * ATTENTION, ONE - 32 * 2 * 4),
        (["model.layers.*.self_attn"], 32 * ATTENTION, ONE - 32 * 2 * 4),
        (["*self_attn*"], 32 * ATTENTION, ONE - 32 * 2 * 4),
        (["re:.*o_proj"], 32 * 4096 * 4096, ONE - 32 * 4),
        (["model.layers.0.mlp"], FFN, ONE - 2 * 4),
        (["model.layers.0.mlp.*"], FFN, ONE - 2 * 4),
        (["language_model.model.layers.3.mlp"], FFN, ONE - 2 * 4),
        (["re:model\\.layers\\.(0|31)\\.mlp\\..*"], 2 * FFN, ONE - 2 * 2 * 4),
        (["model.layers.1*"], 11 * (ATTENTION + FFN), ONE - 11 * 4 * 4),  # 1, 10 … 19
        (["model.layers.7"], ATTENTION + FFN, ONE - 4 * 4),
        (["model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj",
          "model.layers.0.self_attn.v_proj"], 4096 * 6144, ONE - 4),
        # a fused matrix that is spared in part: as many products, one scale for the rest
        (["model.layers.0.self_attn.q_proj"], 4096 * 4096, ONE),
        (["model.layers.0.mlp.up_proj"], 4096 * 14336, ONE),
        # towers and routers are none of the text model's matrices
        (["vision_model.model.layers.0.self_attn.q_proj", "visual", "mlp.gate"], 0, ONE),
    ],
    ids=str,
)  # fmt: skip
def test_spared_modules_stay_in_16_bits(ignored, in_16_bits, scales):
    model = quantised(fp8(*ignored))
    expected = 2 * in_16_bits + (LAYERS - in_16_bits) + scales + REST
    assert stored(model) == pytest.approx(expected, rel=1e-12)
    read = run(model, "b200-sxm").decode.cost.total.weight_bytes
    assert read == pytest.approx(expected - 2 * HEAD, rel=1e-12)  # all but the input table
    assert not run(model).plan.notes


def test_arithmetic_follows_each_weight():
    """Llama-3.1-8B in fp8, the attention of layer 0 and half of an MLP in 16 bits."""
    model = quantised(fp8("model.layers.0.self_attn", "model.layers.1.mlp.up_proj"))
    plan = run(model).plan
    rows = [
        (o.name, o.count, o.arithmetic, o.weight_format, o.input_bytes_per_element, o.n)
        for o in step_operators(model, Step("decode", 1, 1, 10), plan.formats)
        if isinstance(o, Gemm) and o.name != "lm_head"
    ]
    assert sorted(rows) == sorted(
        [
            ("qkv_proj", 1, "bf16", "bf16", 2.0, 6144),
            ("qkv_proj", 31, "fp8", "fp8", 1.0, 6144),
            ("o_proj", 1, "bf16", "bf16", 2.0, 4096),
            ("o_proj", 31, "fp8", "fp8", 1.0, 4096),
            ("ffn.gate_up_proj", 31, "fp8", "fp8", 1.0, 28_672),
            ("ffn.gate_up_proj.fp8", 1, "fp8", "fp8", 1.0, 14_336),
            ("ffn.gate_up_proj.bf16", 1, "bf16", "bf16", 2.0, 14_336),
            ("ffn.down_proj", 31, "fp8", "fp8", 1.0, 4096),
            ("ffn.down_proj", 1, "fp8", "fp8", 1.0, 4096),
        ]
    )


def test_llama_405b_in_fp8_by_hand():
    """The hub's FP8 version spares attention everywhere and the MLPs of layers 0 and 125.

    Per GPU at TP 8: attention 2·16384² + 2·16384·1024 in 16 bits in 126 layers, 3·16384·53248 in
    16 bits in two layers and in fp8 in 124, with an fp32 scale per output channel: 2·53248/8 of
    gate and up, 16384 of down (whole on each rank).
    """
    names = [f"model.layers.{i}.self_attn.{p}_proj" for i in range(126) for p in "qkvo"]
    names += [f"model.layers.{i}.mlp.{p}_proj" for i in (0, 125) for p in ("gate", "up", "down")]
    section = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0,
               "modules_to_not_convert": ["lm_head", *names]}  # fmt: skip
    model = quantised(section, "llama-3.1-405b")
    attention, ffn = 2 * 16384**2 + 2 * 16384 * 1024, 3 * 16384 * 53248
    scales = 4 * (2 * 53248 / 8 + 16384)
    tables = 2 * 2 * 128_256 / 8 * 16384 + 2 * 253 * 16384
    expected = 126 * 2 * attention / 8 + 2 * 2 * ffn / 8 + 124 * (ffn / 8 + scales) + tables
    result = run(model, tp=8)
    assert result.memory.weights_bytes == pytest.approx(expected, rel=1e-12)
    assert result.memory.weights_bytes / GIB == pytest.approx(56.73, abs=0.01)
    assert (result.plan.deployment.weights, result.plan.deployment.activations) == (
        "fp8_channel",
        "fp8",
    )


KIMI_THINKING = compressed(
    {"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group", "symmetric": True},
    ignore=["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
            r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"],
)  # fmt: skip


def test_kimi_k2_thinking_by_hand():
    """Experts 60·384·3·7168·2048 at 4.5 bits: 66.44 GiB at TP 8; all the rest in 16 bits."""
    model = quantised(KIMI_THINKING, "kimi-k2-instruct")
    plain = build_model(config("kimi-k2-instruct") | {"quantization_config": None}, "x", "x.json")
    experts = 60 * 384 * 3 * 7168 * 2048 / 8
    assert experts * 4.5 / 8 / GIB == pytest.approx(66.44, abs=0.01)
    found = run(model, tp=8)
    whole = run(plain, tp=8).memory.weights_bytes
    rest = whole - 2 * experts
    assert found.memory.weights_bytes == pytest.approx(experts * 4.5 / 8 + rest, rel=1e-12)
    assert rest / GIB == pytest.approx(4.51, abs=0.01)
    assert not any("ignore" in note for note in found.plan.notes)
    operators = step_operators(model, Step("decode", 1, 1, 9), found.plan.formats)
    kinds = {o.name: o.weight_format for o in operators if isinstance(o, Gemm | GroupedGemm)}
    assert kinds["experts.down_proj"] == "int4_g32"
    assert kinds["shared_expert.down_proj"] == kinds["ffn.down_proj"] == "bf16"
    assert kinds["qkv_a_proj"] == kinds["absorb_q"] == "bf16"


def test_shared_experts_and_dense_layers_of_llama_4_stay_quantised():
    """Scout: only attention (48·(2·5120² + 2·5120·1024)) of the layers is in 16 bits."""
    weights = {"num_bits": 8, "type": "float", "strategy": "tensor"}
    ignored = ["language_model.lm_head", "re:.*self_attn", "re:.*router", "re:.*vision_model",
               "re:.*multi_modal_projector"]  # fmt: skip
    inputs = {"num_bits": 8, "type": "float", "dynamic": True}
    section = compressed(weights, inputs, ignore=ignored)
    data = {**config("llama-4-scout-17b-16e"), "model_type": "llama4_text"}
    model = build_model(data | {"quantization_config": section}, "x", "x.json")
    plain = build_model(data | {"quantization_config": None}, "x", "x.json")
    halved = 48 * (16 + 1) * 3 * 5120 * 8192  # routed and shared experts
    scales = 48 * (16 + 1) * 2 * 4
    whole = run(plain, tp=8).memory.weights_bytes
    found = run(model, tp=8)
    assert found.memory.weights_bytes == pytest.approx(whole - halved / 8 + scales, rel=1e-12)
    assert found.plan.formats.inputs.name == "fp8"
    assert not found.plan.notes
