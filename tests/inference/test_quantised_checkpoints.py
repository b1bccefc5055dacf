"""Quantised checkpoints: bytes, activations and caches by hand, from hub-style configs."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.errors import InputError
from perfmodel.inference.estimate import Estimate, estimate
from perfmodel.operators.context import Step
from perfmodel.operators.format_bytes import BASE, Formats, Product
from perfmodel.operators.record import Gemm, GroupedGemm
from perfmodel.operators.step import step_operators
from perfmodel.operators.weights import Weight, layer_weights, model_weights, mtp_weights
from perfmodel.specs.architectures import build_model
from perfmodel.specs.architectures.module_names import layer_modules
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.formats import FORMATS, grouped, number_format
from perfmodel.specs.loading import load_model, model_names
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload
from perfmodel.units import GIB
from tests.data import REASON, model_rows
from tests.operators.support import config

# Llama-3.1-8B: a layer's matrices, and what stays in 16 bits (both tables, 65 norms).
ATTENTION = 2 * 4096 * 4096 + 2 * 4096 * 1024
FFN = 3 * 4096 * 14336
LAYERS = 32 * (ATTENTION + FFN)
HEAD = 128_256 * 4096
REST = 2 * (2 * HEAD + 65 * 4096)
CHANNELS = 6144 + 4096 + 28_672 + 4096
"""Output channels of a layer's four matrices."""


def quantised(section: dict[str, Any], base: str = "llama-3.1-8b", **changes: Any) -> Model:
    """A catalogue model with another ``quantization_config``."""
    return build_model(config(base) | {"quantization_config": section} | changes, "x", "x.json")


def run(model: Model, on: str = "h100-sxm", **deployment: Any) -> Estimate:
    return estimate(model, on, Workload(batch=2, prompt=64, output=4), Deployment(**deployment))


def stored(model: Model, **deployment: Any) -> float:
    """Weight bytes; a decode step reads the same but for the input table."""
    result = run(model, "b200-sxm", **deployment)
    return float(result.memory.weights_bytes)


def compressed(weights: dict[str, Any], inputs: dict[str, Any] | None = None, **more: Any) -> Any:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    } | more


# --- A2: group sizes and zero points ------------------------------------------------------------


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


# --- A1: what is spared -------------------------------------------------------------------------


def fp8(*ignored: Any) -> dict[str, Any]:
    return {"quant_method": "fp8", "modules_to_not_convert": ["lm_head", *ignored]}


FP8 = {"num_bits": 8, "type": "float"}
ONE = 32 * 4 * 4
"""One fp32 scale for each matrix of 32 layers."""


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
    assert kinds["q_a_proj"] == kinds["absorb_q"] == "bf16"


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


def test_what_cannot_be_followed_is_said():
    model = quantised(fp8("re:*(", 7, "model.layers.99.mlp", "self_attn"))
    assert model.checkpoint is not None
    (unread, unknown) = model.checkpoint.notes
    assert unread.startswith("x.json: quantization_config.modules_to_not_convert: 're:*(', 7:")
    assert "model.layers.99.mlp" in unknown
    assert set(model.checkpoint.notes) <= set(run(model).warnings)


def test_single_experts_are_said_to_be_taken_as_the_others():
    section = fp8("model.layers.0.block_sparse_moe.experts.0.w1")
    model = quantised(section, "mixtral-8x7b-v0.1")
    assert model.checkpoint is not None
    assert "experts" in model.checkpoint.notes[0]
    names = "model.layers.0.block_sparse_moe.experts.{}.w{}"
    fourth = quantised(fp8(names.format(3, 1)), "mixtral-8x7b-v0.1").checkpoint
    assert fourth is not None
    assert "experts" in fourth.notes[0]
    every = [names.format(i, j) for i in range(8) for j in (1, 2, 3)]
    model = quantised(fp8(*every), "mixtral-8x7b-v0.1")
    assert model.checkpoint is not None
    assert not model.checkpoint.notes
    whole = stored(quantised(fp8(), "mixtral-8x7b-v0.1"))
    assert stored(model) - whole == pytest.approx(8 * 3 * 4096 * 14336 - 8 * 2 * 4)


# --- A6: activations ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "on", "inputs", "arithmetic"),
    [
        (compressed({"num_bits": 8, "type": "int"}), "h100-sxm", "bf16", "bf16"),
        (compressed({"num_bits": 8, "type": "float"}), "h100-sxm", "bf16", "bf16"),
        (compressed({"num_bits": 8, "type": "float"}, {"num_bits": 8, "type": "float"}),
         "h100-sxm", "fp8", "fp8"),
        (compressed({"num_bits": 8, "type": "int"}, {"num_bits": 8, "type": "int"}),
         "h100-sxm", "int8", "int8"),
        (compressed({"num_bits": 4, "type": "int"}, {"num_bits": 8, "type": "float"}),
         "h100-sxm", "fp8", "fp8"),  # W4A8
        (compressed({"num_bits": 4, "type": "int"}, {"num_bits": 8, "type": "float"}),
         "a100-sxm-80gb", "bf16", "bf16"),
        (compressed({"num_bits": 4, "type": "float", "group_size": 16}),
         "b200-sxm", "bf16", "bf16"),  # NVFP4A16
        (compressed({"num_bits": 4, "type": "float"}, {"num_bits": 4, "type": "float"}),
         "b200-sxm", "nvfp4", "fp4"),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "h100-sxm", "bf16", "bf16"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "h100-sxm", "fp8", "fp8"),
    ],
)  # fmt: skip
def test_activations_are_the_checkpoints(section, on, inputs, arithmetic):
    plan = run(quantised(section), on).plan
    assert plan.deployment.activations == plan.formats.inputs.name == inputs
    assert plan.formats.linear_arithmetic == arithmetic
    assert run(quantised(section), on, activations="bf16").plan.formats.inputs.name == "bf16"


# --- A7: the cache ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "section",
    [
        compressed(FP8, kv_cache_scheme=FP8),
        {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
        {"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4",
         "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}},
    ],
)  # fmt: skip
def test_the_cache_is_the_checkpoints(section):
    """131,072 B a token in 16 bits, 65,536 in fp8."""
    model = quantised(section)
    assert run(model).plan.deployment.kv_cache == "fp8"
    assert run(model).memory.kv_bytes_per_token == 65_536
    assert run(model, kv_cache="bf16").memory.kv_bytes_per_token == 131_072
    assert run(model, weights="bf16").memory.kv_bytes_per_token == 131_072


# --- A8: several groups -------------------------------------------------------------------------


def two_groups(first: list[str], second: list[str], **more: Any) -> dict[str, Any]:
    groups = {
        "group_0": {"targets": first, "weights": {"num_bits": 8, "type": "float"},
                    "input_activations": {"num_bits": 8, "type": "float"}},
        "group_1": {"targets": second,
                    "weights": {"num_bits": 4, "type": "float", "group_size": 16}},
    }  # fmt: skip
    return {
        "quant_method": "compressed-tensors",
        "config_groups": groups,
        "ignore": ["lm_head"],
    } | more


@pytest.mark.parametrize(
    "targets",
    [
        (["re:.*self_attn.*"], ["re:.*mlp.*"]),
        (["re:.*self_attn.*"], ["Linear"]),  # a name goes before a class
    ],
)
def test_each_group_has_its_own_format(targets):
    model = quantised(two_groups(*targets))
    result = run(model, "b200-sxm")
    attention = 32 * (ATTENTION + 2 * 4)
    assert result.memory.weights_bytes == attention + 32 * FFN * 4.5 / 8 + REST
    assert result.plan.deployment.weights == "fp8+nvfp4"
    again = run(model, "b200-sxm", weights="fp8+nvfp4")  # its own name is the checkpoint
    assert again.memory.weights_bytes == result.memory.weights_bytes
    operators = step_operators(model, Step("decode", 1, 1, 9), result.plan.formats)
    found = {o.name: (o.weight_format, o.arithmetic) for o in operators if isinstance(o, Gemm)}
    assert found["qkv_proj"] == found["o_proj"] == ("fp8", "fp8")
    assert found["ffn.gate_up_proj"] == found["ffn.down_proj"] == ("nvfp4", "bf16")


def test_groups_that_cannot_be_mapped_are_refused_unless_weights_are_stated():
    model = quantised(two_groups(["re:.*self_attn.*"], ["SomeBlock"]))
    with pytest.raises(
        InputError, match=r"^x\.json: quantization_config\.config_groups:.*--weights"
    ):
        run(model)
    assert stored(model, weights="fp8") == LAYERS + ONE + REST


# --- A13: the head ------------------------------------------------------------------------------


def test_a_quantised_head():
    """GPTQ with ``lm_head``: 128,256·4096 at 4.125 bits too."""
    section = {"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True}
    bits = 4 + 16 / 128
    assert stored(quantised(section)) == (LAYERS + HEAD) * bits / 8 + 2 * (HEAD + 65 * 4096)
    tied = quantised(section, tie_word_embeddings=True)
    assert stored(tied) == LAYERS * bits / 8 + 2 * (HEAD + 65 * 4096)
    listed = quantised(compressed({"num_bits": 4, "type": "int", "group_size": 128}, ignore=[]))
    assert stored(listed) == stored(quantised(section))
    assert listed.checkpoint is not None
    assert "lm_head" in listed.checkpoint.notes[0]


# --- --weights on a quantised checkpoint ----------------------------------------------------------


def test_weights_by_name_on_a_quantised_checkpoint():
    model = quantised({"quant_method": "gptq", "bits": 4, "group_size": 32,
                       "modules_to_not_convert": ["self_attn"]})  # fmt: skip
    own = 32 * (2 * ATTENTION + FFN * 4.5 / 8) + REST
    for name in ("auto", "int4_g32", "int4", "gptq"):  # a bare kind is the checkpoint's own
        assert stored(model, weights=name) == own
    assert stored(model, weights="bf16") == 2 * LAYERS + REST
    assert stored(model, weights="int4_g64") == LAYERS * 4.25 / 8 + REST
    assert run(model, weights="fp8").plan.formats.inputs.name == "fp8"  # not the checkpoint's


# --- the inventory against published sizes ------------------------------------------------------


NATIVE = {row["model"].lower(): float(row["native_checkpoint_bytes_derived"])
          for row in model_rows() if row["native_checkpoint_bytes_derived"]}  # fmt: skip


@pytest.mark.skipif(not NATIVE, reason=REASON)
@pytest.mark.parametrize("name", sorted(NATIVE))
def test_native_checkpoints_to_the_last_byte(name):
    """The main network and the MTP module with its copies of both tables, as stored.

    Two bytes more for each score correction, which files hold in 32 bits.
    """
    model = load_model(name)
    checkpoint = model.checkpoint
    assert checkpoint is not None
    roles = {r: Product(number_format(checkpoint.of_role(r).weights)) for r in ("linear", "expert")}
    formats = Formats(roles=roles)
    weights = [*model_weights(model), *mtp_weights(model)]
    copies = len(model.mtp.layers) if model.mtp else 0
    total = sum(formats.weight_bytes(weight) for weight in weights)
    total += copies * 2 * 2 * model.vocab * model.hidden
    total += sum(2 * weight.elements for weight in weights if weight.name == "router.correction")
    assert total == NATIVE[name]


@pytest.mark.parametrize("name", model_names())
def test_every_matrix_of_a_layer_has_a_name_in_checkpoints(name):
    """Both lists of modules agree, so that no exception is lost between them."""
    model = load_model(name)
    for layer in set(model.layers):
        weights = layer_weights(layer, model.hidden, model.norm)
        held = [w for w in weights if w.role in {"linear", "expert"}]
        modules = {(module, weight.role) for weight in held for module, _ in weight.modules}
        assert modules == {(module.name, module.role) for module in layer_modules(layer)}


def test_unquantised_formats_are_one():
    assert Formats().of_role("expert") is Formats().linear is BASE
