"""Our counts against the transformers class of the same config, built without memory."""

import json
import logging
from importlib import resources

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfmodel.inference.estimate import estimate
from perfmodel.operators.parameters import count_parameters
from perfmodel.specs.architectures import build_model, known_types
from perfmodel.specs.architectures.registry import MULTIMODAL
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import load_hardware
from perfmodel.specs.loading import load_model, model_names
from perfmodel.specs.model import Attention
from perfmodel.specs.workload import Workload
from tests.specs.drawn import text_configs, vision_configs

pytest.importorskip("torch")
pytest.importorskip("transformers")
from tests.specs.oracle import default_config, oracle_config, oracle_parameters

logging.getLogger("transformers").setLevel(logging.ERROR)
pytestmark = pytest.mark.oracle

# Known to transformers under another name or not at all: counted in test_hand_derived,
# test_catalog_counts (chatglm, dbrx, kimi_k2).
ABSENT = {"baichuan", "chatglm", "deepseek", "internlm2", "kimi_k2", "qwen"}
BROKEN = {"dbrx"}  # transformers 5 can't build it (no rope_theta in its attn_config)
NESTED_ONLY = {"qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text"}
TEXT = [kind for kind in known_types() if kind not in {*ABSENT, *BROKEN, *NESTED_ONLY, *MULTIMODAL}]
# What a default config lacks to be a model: sizes that the class leaves open.
COMPLETED = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "dots1": {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "glm4_moe": {"head_dim": 128},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 48},
}


def total(data):
    return count_parameters(build_model(data, "x", "x.json")).total


@pytest.mark.parametrize("name", model_names())
def test_catalogue(name):
    source = resources.files("perfmodel") / "catalog" / f"{name}.json"
    data = json.loads(source.read_text(encoding="utf-8"))
    kind = data["model_type"]
    if kind == "kimi_k2":
        kind = "deepseek_v3"  # the same shape
    elif kind in ABSENT | BROKEN:
        pytest.skip(f"transformers can't build {kind}")
    assert count_parameters(load_model(name)).total == oracle_parameters(data, kind)


@pytest.mark.parametrize("kind", [*TEXT, *MULTIMODAL])
def test_the_classes_own_defaults(kind):
    data = {**default_config(kind), **COMPLETED.get(kind, {})}
    assert total(data) == oracle_parameters(data)


@pytest.mark.parametrize("kind", [*TEXT, *MULTIMODAL])
def test_every_architecture_becomes_operators(kind):
    data = {**default_config(kind), **COMPLETED.get(kind, {})}
    if kind == "glm_moe_dsa":
        data["indexer_types"] = ["full", "shared"] * 39
    model = build_model(data, "x", "x.json")
    workload = Workload(batch=2, prompt=[64, 128], output=4)
    result = estimate(model, load_hardware("b200-sxm"), workload, Deployment(weights="bf16", tp=1))
    assert np.all(np.asarray(result.tpot_s) > 0)


@pytest.mark.parametrize("kind", MULTIMODAL)
def test_an_empty_text_config_is_its_classes(kind):
    data = {
        "model_type": kind,
        "text_config": {"model_type": MULTIMODAL[kind]},
        "vision_config": default_config(kind)["vision_config"],
        "tie_word_embeddings": False,
    }
    assert total(data) == oracle_parameters(data)


WINDOW_KEYS = {"sliding_window", "attention_chunk_size"}
quick = settings(
    max_examples=14,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize("kind", TEXT)
def test_random_text_configs(kind):
    default = default_config(kind)

    @quick
    @given(text_configs(kind, default))
    def check(data):
        assert total(data) == oracle_parameters(data)

    check()


@pytest.mark.parametrize("kind", MULTIMODAL)
def test_random_multimodal_configs(kind):
    default = default_config(kind)
    text = MULTIMODAL[kind]

    @quick
    @given(text_configs(text, default_config(text)), vision_configs(default["vision_config"]))
    def check(text_config, vision_config):
        if kind == "paligemma":  # the class overrides the width of its projection
            vision_config["projection_dim"] = text_config["hidden_size"]
        if kind == "qwen2_vl":
            vision_config["hidden_size"] = 24
        data = {"model_type": kind, "text_config": text_config, "vision_config": vision_config}
        data["tie_word_embeddings"] = text_config.get("tie_word_embeddings", False)
        if "projection_dim" in default:
            data["projection_dim"] = text_config["hidden_size"]
        assert total(data) == oracle_parameters(data)

    check()


WINDOWED = [kind for kind in TEXT if default_config(kind).keys() & WINDOW_KEYS]


@pytest.mark.parametrize("kind", WINDOWED)
def test_windows_are_the_classes(kind):
    default = default_config(kind)

    @quick
    @given(text_configs(kind, default), st.just(None))
    def check(data, _):
        data["max_position_embeddings"] = 10**6
        config = oracle_config(data)
        kinds = getattr(config, "layer_types", None)
        if kinds is None:
            kinds = ["sliding_attention"] * config.num_hidden_layers
        sizes = {
            "sliding_attention": getattr(config, "sliding_window", None) or None,
            "chunked_attention": getattr(config, "attention_chunk_size", None),
        }
        ours = [
            layer.mixer.window if isinstance(layer.mixer, Attention) else None
            for layer in build_model(data, "x", "x.json").layers
        ]
        assert ours == [sizes.get(item) for item in kinds]

    check()
