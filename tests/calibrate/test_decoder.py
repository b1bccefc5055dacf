"""The measured decoder computes what a Llama computes, and its steps can be timed."""

import pytest

from calibrate.decoder import Config, Decoder, Phase, measure_steps
from calibrate.device import open_device
from calibrate.timing import Settings
from perfmodel.errors import CapacityError, InputError

SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 5000.0,
}  # fmt: skip
CONFIG = Config.of(SIZES)


@pytest.fixture(scope="module")
def device():
    return open_device("cpu", threads=1)


def test_parameters_by_hand():
    # head 8: q and out 32·32 each, k and v 32·16 each; three of 32·48; two norms; both tables
    layer = 2 * 1024 + 2 * 512 + 3 * 1536 + 64
    assert CONFIG.parameters == 2 * layer + 2 * 64 * 32 + 32


def test_steps_with_the_cache_equal_the_prompt_at_once(device):
    import torch

    with torch.inference_mode():
        decoder = Decoder(CONFIG, device, "float32", batch=2, context=7)
        tokens = decoder.tokens(2, 7)
        whole = decoder.step(tokens, 0)
        decoder.step(tokens[:, :3], 0)
        decoder.step(tokens[:, 3:6], 3)  # a chunk after a prefix
        last = decoder.step(tokens[:, 6:], 6)
    torch.testing.assert_close(whole, last, rtol=1e-4, atol=1e-5)


@pytest.mark.oracle
def test_logits_equal_transformers_llama(device):
    import torch

    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        **{k: v for k, v in SIZES.items() if k != "rope_theta"},
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0}, rms_norm_eps=1e-5,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.inference_mode():
        decoder = Decoder(CONFIG, device, "float32", batch=2, context=6)
        own = {"embed_tokens.weight": decoder.embedding, "norm.weight": decoder.norm}
        for i, layer in enumerate(decoder.layers):
            q, k, v = layer["qkv"].split((32, 16, 16))
            gate, up = layer["gate_up"].chunk(2)
            own |= {
                f"layers.{i}.self_attn.q_proj.weight": q, f"layers.{i}.self_attn.k_proj.weight": k,
                f"layers.{i}.self_attn.v_proj.weight": v,
                f"layers.{i}.self_attn.o_proj.weight": layer["out"],
                f"layers.{i}.mlp.gate_proj.weight": gate, f"layers.{i}.mlp.up_proj.weight": up,
                f"layers.{i}.mlp.down_proj.weight": layer["down"],
                f"layers.{i}.input_layernorm.weight": layer["norm_1"],
                f"layers.{i}.post_attention_layernorm.weight": layer["norm_2"],
            }  # fmt: skip
        state = {f"model.{name}": value for name, value in own.items()}
        model.load_state_dict({**state, "lm_head.weight": decoder.head})
        tokens = decoder.tokens(2, 6)
        expected = model(tokens).logits[:, -1]
        torch.testing.assert_close(decoder.step(tokens, 0), expected, rtol=1e-4, atol=1e-5)


def test_a_grid_of_steps_is_timed(device):
    settings = Settings(budget_s=0.02, warmup_s=0.0, sample_s=1e-4)
    grid = [(1, 4), (2, 8)]
    phases: list[tuple[Phase, list[int]]] = [("prefill", [4, 8]), ("decode", [0, 0])]
    for phase, prompts in phases:
        rows = list(measure_steps(CONFIG, device, grid, phase, dtype="float32", settings=settings))
        assert [(row.batch, row.context) for row in rows] == grid
        assert [row.prompt for row in rows] == prompts
        assert all(row.seconds >= row.fastest_s > 0 for row in rows)


def test_what_cant_be_built_is_one_line(device):
    with pytest.raises(InputError, match="lacks vocab_size"):
        Config.of({k: v for k, v in SIZES.items() if k != "vocab_size"})
    with pytest.raises(InputError, match="don't share 3"):
        Config.of({**SIZES, "num_key_value_heads": 3})
    with pytest.raises(CapacityError, match="free bytes"):
        Decoder(CONFIG, device, "float32", batch=10**9, context=10**6)
