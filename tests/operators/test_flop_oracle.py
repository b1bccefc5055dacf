"""FLOPs against torch's own counter, run over transformers' models on the meta device.

``FlopCounterMode`` counts what the eager implementation multiplies: every linear layer, the
experts' products, and attention as two products over the whole square of queries × keys, masked
or not. It counts no embedding, norm, softmax or rotary embedding. So matrix products must agree
to the last FLOP, and attention after our (query, key) pairs are replaced by the square.

transformers keeps the experts in one tensor and would choose between a loop over the experts
that were hit (which needs real routing) and a grouped product; ``batched_mm`` multiplies each
(token, expert) pair and works on the meta device.

Out of reach: ``chatglm`` and ``kimi_k2`` (no class in transformers; the latter has the shape of
``deepseek_v3``), ``dbrx`` (its class fails to build: the attention config lost ``rope_theta``).
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from perfmodel.operators.context import Step
from perfmodel.operators.record import Gemm, GroupedGemm, Operator
from perfmodel.operators.step import step_operators
from perfmodel.specs.architectures import build_model
from tests.operators.support import attentions, config

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
flop_counter = pytest.importorskip("torch.utils.flop_counter")

SEQUENCES, PROMPT = 2, 7

GQA = {
    "hidden_size": 96, "intermediate_size": 136, "num_hidden_layers": 2,
    "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 1000,
}  # fmt: skip
WIDE = {**GQA, "head_dim": 20}  # 6·20 = 120 ≠ 96
LATENT = {
    "hidden_size": 96, "intermediate_size": 136, "moe_intermediate_size": 40,
    "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 6,
    "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 12, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 2,
    "topk_group": 1, "first_k_dense_replace": 1, "vocab_size": 1000,
}  # fmt: skip
DELTA = {
    **WIDE, "num_hidden_layers": 4, "linear_key_head_dim": 8, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_value_head_dim": 12, "num_experts": 16,
    "moe_intermediate_size": 40, "shared_expert_intermediate_size": 56,
}  # fmt: skip
CLASSIC = {"hidden_size": 96, "num_attention_heads": 6, "vocab_size": 1000}
GPT = {"n_embd": 96, "n_layer": 2, "n_head": 6, "vocab_size": 1000}
MAMBA = {"num_heads": 8, "head_dim": 24, "n_groups": 2, "state_size": 16}
INDEXER = {"index_head_dim": 16, "index_n_heads": 4, "index_topk": 4}

# A catalogue entry and the sizes that shrink it; every other field stays as published.
WHOLE: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": WIDE,
    "mistral-7b-v0.1": {**WIDE, "sliding_window": 4},
    "qwen2-7b": GQA,
    "qwen3-8b": WIDE,
    "gemma-2b": WIDE,
    "gemma-2-9b": {**WIDE, "sliding_window": 4},
    "gemma-3-27b": {**WIDE, "sliding_window": 4},
    "phi-2": {**GQA, "num_key_value_heads": 6},
    "phi-3-mini-4k": {**GQA, "num_key_value_heads": 6},
    "phi-4-mini": GQA,
    "starcoder2-7b": GQA,
    "olmo-2-7b": {**GQA, "num_key_value_heads": 3},
    "granite-3.3-8b": GQA,
    "command-r-35b": GQA,
    "command-r-plus-104b": GQA,
    "smollm3-3b": GQA,
    "gpt-2": GPT,
    "gpt-j-6b": {**GPT, "rotary_dim": 8},
    "opt-6.7b": {**CLASSIC, "num_hidden_layers": 2, "ffn_dim": 136, "word_embed_proj_dim": 96},
    "bloom-176b": {**CLASSIC, "n_layer": 2},
    "mpt-7b": {"d_model": 96, "n_layers": 2, "n_heads": 6, "vocab_size": 1000},
    "falcon-7b": {**CLASSIC, "num_hidden_layers": 2, "num_kv_heads": 6},
    "falcon-180b": {**CLASSIC, "num_hidden_layers": 2, "num_kv_heads": 2},
}
EXPERTS: dict[str, dict[str, Any]] = {
    "mixtral-8x7b-v0.1": WIDE,
    "qwen2-57b-a14b": {
        **GQA, "moe_intermediate_size": 40, "num_experts": 16,
        "shared_expert_intermediate_size": 56,
    },
    "qwen3-30b-a3b": {**WIDE, "moe_intermediate_size": 40, "num_experts": 16},
    "phi-3.5-moe": GQA,
    "glm-4.5": {
        **WIDE, "num_hidden_layers": 4, "moe_intermediate_size": 40, "n_routed_experts": 16,
    },
    "gpt-oss-20b": {**WIDE, "sliding_window": 4},
    "minimax-m2": {**WIDE, "num_local_experts": 16, "rotary_dim": 8},
}  # fmt: skip
LATENT_FAMILIES: dict[str, dict[str, Any]] = {
    "deepseek-v3": LATENT,
    "deepseek-v2-lite": {**LATENT, "q_lora_rank": None},
}
# Their linear layers alone: torch runs the recurrence in chunks where ours counts it token by
# token, and expands the latents of an indexed attention that ours leaves absorbed.
LINEAR_ONLY: dict[str, dict[str, Any]] = {
    "mamba-codestral-7b": {
        **MAMBA, "hidden_size": 96, "num_hidden_layers": 2, "vocab_size": 1000, "expand": 2,
    },
    "jamba-v0.1": {**WIDE, "num_hidden_layers": 8, "mamba_d_state": 8, "mamba_dt_rank": 6},
    "nemotron-h-8b": {
        **WIDE, "hybrid_override_pattern": "M-*", "num_hidden_layers": 3, "mamba_num_heads": 8,
        "mamba_head_dim": 24, "n_groups": 2, "ssm_state_size": 16, "attention_head_dim": 20,
    },
    "qwen3-next-80b-a3b": DELTA,
    "qwen3.5-35b-a3b": DELTA,
    "deepseek-v3.2": {**LATENT, **INDEXER},
    "glm-5": {**LATENT, **INDEXER},
}  # fmt: skip
UNSHRUNK = ("layer_types", "quantization_config", "rope_scaling")  # lists and factors per layer
NO_TOKENS = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))  # ids beyond 1,000


def small_config(name: str, sizes: dict[str, Any]) -> dict[str, Any]:
    fields = {key: value for key, value in config(name).items() if key not in UNSHRUNK}
    return fields | sizes | NO_TOKENS


class Counted:
    """A small network on the meta device, run step by step under torch's counter.

    A plain cache keeps every key, windows or not; ``own_cache`` takes the family's own kind.
    """

    def __init__(self, fields: dict[str, Any], own_cache: bool = False) -> None:
        fields = {k: v for k, v in fields.items() if k != "architectures"}
        settings = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
        settings._experts_implementation = "batched_mm"
        with torch.device("meta"):
            self.net = transformers.AutoModelForCausalLM.from_config(
                settings, attn_implementation="eager"
            ).eval()
        self.cache: dict[str, Any] = {}
        if settings.model_type != "mamba2":  # it makes its own state
            cache = transformers.DynamicCache(**({"config": settings} if own_cache else {}))
            self.cache = {"past_key_values": cache}

    def run(self, tokens: int) -> dict[str, int]:
        """FLOPs by torch operator of ``tokens`` more tokens; the last one's logits only."""
        counter = flop_counter.FlopCounterMode(display=False)
        ids = torch.zeros(SEQUENCES, tokens, dtype=torch.long, device="meta")
        with torch.device("meta"), torch.no_grad(), warnings.catch_warnings(), counter:
            warnings.simplefilter("ignore")  # past_key_values is being renamed
            self.net(ids, logits_to_keep=1, use_cache=True, **self.cache)
        return {str(op): flops for op, flops in counter.get_flop_counts()["Global"].items()}


def linear(counts: dict[str, int]) -> int:
    return counts.get("aten.mm", 0) + counts.get("aten.addmm", 0)


def square_attention(operators: tuple[Operator, ...], queries: int, keys: int) -> int:
    """Two products over all queries × keys, whatever the mask keeps."""
    return sum(
        o.count * 2 * o.heads * (o.qk_dim + o.value_dim) * SEQUENCES * queries * keys
        for o in attentions(operators)
    )


def dense_products(operators: tuple[Operator, ...]) -> Any:
    return sum(o.count * o.flops for o in operators if isinstance(o, Gemm))


def expert_products(operators: tuple[Operator, ...]) -> Any:
    return sum(o.count * o.flops for o in operators if isinstance(o, GroupedGemm))


def assert_equal(
    counts: dict[str, int], operators: tuple[Operator, ...], new: int, old: int
) -> None:
    assert linear(counts) == dense_products(operators)
    attention = square_attention(operators, new, old + new)
    assert sum(counts.values()) == linear(counts) + expert_products(operators) + attention


needs_batched_experts = pytest.mark.skipif(
    int(transformers.__version__.split(".")[0]) < 5, reason="experts loop over real routing"
)


def check_prefill_and_decode(name: str, sizes: dict[str, Any]) -> None:
    fields = small_config(name, sizes)
    ours = build_model(fields, name, name)
    net = Counted(fields)
    prefill = step_operators(ours, Step("prefill", SEQUENCES, PROMPT, 0))
    assert_equal(net.run(PROMPT), prefill, PROMPT, 0)
    decode = step_operators(ours, Step("decode", SEQUENCES, 1, PROMPT))
    assert_equal(net.run(1), decode, 1, PROMPT)
    chunk = step_operators(ours, Step("prefill", SEQUENCES, 3, PROMPT + 1))
    assert_equal(net.run(3), chunk, 3, PROMPT + 1)


@pytest.mark.parametrize("name", WHOLE)
def test_dense_families(name):
    check_prefill_and_decode(name, WHOLE[name])


@needs_batched_experts
@pytest.mark.parametrize("name", EXPERTS)
def test_expert_families(name):
    check_prefill_and_decode(name, EXPERTS[name])


@needs_batched_experts
@pytest.mark.parametrize("name", LATENT_FAMILIES)
def test_latent_attention_is_expanded_in_prefill_with_its_cached_latents(name):
    """transformers caches the latents and expands them again at every step: our prefill chunk."""
    fields = small_config(name, LATENT_FAMILIES[name])
    ours = build_model(fields, name, name)
    net = Counted(fields)
    assert_equal(
        net.run(PROMPT), step_operators(ours, Step("prefill", SEQUENCES, PROMPT, 0)), PROMPT, 0
    )
    chunk = step_operators(ours, Step("prefill", SEQUENCES, 3, PROMPT))
    assert_equal(net.run(3), chunk, 3, PROMPT)


@needs_batched_experts
def test_llama_4_runs_every_expert_in_transformers():
    """Its class sends each token through all 16 experts; the router's one of them counts here."""
    sizes = {**WIDE, "intermediate_size_mlp": 272, "num_hidden_layers": 4}
    fields = small_config("llama-4-scout-17b-16e", sizes)
    ours = step_operators(build_model(fields, "scout", "scout"), Step("prefill", 2, PROMPT, 0))
    counts = Counted(fields).run(PROMPT)
    assert linear(counts) == dense_products(ours)
    attention = square_attention(ours, PROMPT, PROMPT)
    assert sum(counts.values()) == linear(counts) + 16 * expert_products(ours) + attention


@needs_batched_experts
@pytest.mark.parametrize("name", LINEAR_ONLY)
def test_linear_layers_of_recurrent_and_indexed_families(name):
    fields = small_config(name, LINEAR_ONLY[name])
    ours = step_operators(build_model(fields, name, name), Step("prefill", 2, PROMPT, 0))
    assert linear(Counted(fields, own_cache=True).run(PROMPT)) == dense_products(ours)
