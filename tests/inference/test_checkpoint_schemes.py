"""What checkpoints say of activations, caches, groups and heads, and what can't be followed."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.errors import InputError
from perfmodel.operators.context import Step
from perfmodel.operators.format_bytes import BASE, Formats, Product
from perfmodel.operators.record import Gemm
from perfmodel.operators.step import step_operators
from perfmodel.operators.weights import layer_weights, model_weights, mtp_weights
from perfmodel.specs.architectures.module_names import layer_modules
from perfmodel.specs.formats import number_format
from perfmodel.specs.loading import load_model, model_names
from tests.data import REASON, model_rows
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

FP8 = {"num_bits": 8, "type": "float"}


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


def test_weights_by_name_on_a_quantised_checkpoint():
    model = quantised({"quant_method": "gptq", "bits": 4, "group_size": 32,
                       "modules_to_not_convert": ["self_attn"]})  # fmt: skip
    own = 32 * (2 * ATTENTION + FFN * 4.5 / 8) + REST
    for name in ("auto", "int4_g32", "int4", "gptq"):  # a bare kind is the checkpoint's own
        assert stored(model, weights=name) == own
    assert stored(model, weights="bf16") == 2 * LAYERS + REST
    assert stored(model, weights="int4_g64") == LAYERS * 4.25 / 8 + REST
    assert run(model, weights="fp8").plan.formats.inputs.name == "fp8"  # not the checkpoint's


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
