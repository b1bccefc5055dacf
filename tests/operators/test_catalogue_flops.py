"""FLOPs of catalogue models by closed formulas over the raw fields of their config.json.

`layer_shapes` reads each family's fields itself, so a mistake in reading a config (a window, an
expert's width, the KV heads) shows here as well as one in counting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from perfmodel.operators.context import Step
from perfmodel.operators.step import body_operators, head_operators
from tests.operators.support import config, model, total

PLAIN_FFN = {"gpt2", "gptj", "opt", "bloom", "mpt", "falcon", "phi", "starcoder2"}
"""Two matrices; all others have a gate."""


@dataclass(frozen=True)
class Shape:
    """Fields of one layer; ``window`` in tokens, ``chunk`` in positions."""

    heads: int
    kv_heads: int
    head_dim: int
    dense: int = 0
    """Width of the feed-forward part that every token passes."""
    expert: int = 0
    experts: int = 0
    top_k: int = 0
    matrices: int = 3
    window: int | None = None
    chunk: int | None = None
    shared_gate: bool = False


def first(c: dict[str, Any], *names: str) -> Any:
    return next((c[n] for n in names if c.get(n) is not None), None)


def hidden_of(c: dict[str, Any]) -> Any:
    return first(c, "hidden_size", "n_embd", "d_model")


def kv_heads_of(c: dict[str, Any], heads: int) -> Any:
    kind = c["model_type"]
    if kind == "falcon":
        return c["num_kv_heads"] if c["new_decoder_architecture"] else 1
    if kind == "chatglm":
        return c["multi_query_group_num"]
    if kind == "dbrx":
        return c["attn_config"]["kv_n_heads"]
    return first(c, "num_key_value_heads") or heads


def windows_of(c: dict[str, Any], layers: int) -> list[int | None]:
    kind, window = c["model_type"], c.get("sliding_window")
    if kind in {"mistral", "phi3", "starcoder2", "phimoe"}:
        return [window] * layers
    if kind in {"gemma2", "gpt_oss"}:  # every second layer, the first one windowed
        return [window if i % 2 == 0 else None for i in range(layers)]
    if kind == "gemma3_text":  # five windowed ones, then a full one
        return [None if (i + 1) % 6 == 0 else window for i in range(layers)]
    return [None] * layers


def moe_of(c: dict[str, Any]) -> dict[str, Any] | None:
    kind = c["model_type"]
    if kind == "dbrx":
        f = c["ffn_config"]
        width, experts, top_k = f["ffn_hidden_size"], f["moe_num_experts"], f["moe_top_k"]
        return {"expert": width, "experts": experts, "top_k": top_k}
    experts = first(c, "num_local_experts", "n_routed_experts", "num_experts")
    if experts is None:
        return None
    moe = {
        "expert": first(c, "moe_intermediate_size", "intermediate_size"),
        "experts": experts,
        "top_k": c["num_experts_per_tok"],
    }
    if kind == "llama4_text":  # one shared expert of the same width
        return {**moe, "dense": c["intermediate_size"]}
    if kind == "qwen2_moe":
        return {**moe, "dense": c["shared_expert_intermediate_size"], "shared_gate": True}
    if "n_shared_experts" in c:
        return {**moe, "dense": c["n_shared_experts"] * c["moe_intermediate_size"]}
    return moe


def ffns_of(c: dict[str, Any], layers: int, d: int) -> list[dict[str, Any]]:
    width = first(c, "intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner")
    dense = {"dense": width or c.get("expansion_ratio", 4) * d}
    moe = moe_of(c)
    first_dense = layers if moe is None else c.get("first_k_dense_replace", 0)
    return [dense] * first_dense + [moe or {}] * (layers - first_dense)


def layer_shapes(c: dict[str, Any]) -> list[Shape]:
    d = hidden_of(c)
    layers = first(c, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    heads = first(c, "num_attention_heads", "n_head", "n_heads")
    head_dim = first(c, "head_dim", "kv_channels") or d // heads
    matrices = 2 if c["model_type"] in PLAIN_FFN else 3
    chunk = c.get("attention_chunk_size")
    every = c.get("no_rope_layer_interval", 1)  # Llama-4: each fourth layer sees all
    return [
        Shape(
            heads=heads,
            kv_heads=kv_heads_of(c, heads),
            head_dim=head_dim,
            matrices=matrices,
            window=window,
            chunk=chunk if chunk and (i + 1) % every else None,
            **ffn,
        )
        for i, (window, ffn) in enumerate(
            zip(windows_of(c, layers), ffns_of(c, layers, d), strict=True)
        )
    ]


def seen(position: int, s: Shape) -> int:
    """Keys that the query at a position (from 0) sees, itself included."""
    if s.chunk:
        return position % s.chunk + 1
    return min(position + 1, s.window or position + 1)


def ffn_flops(d: int, s: Shape) -> int:
    """Of one token: 2 per multiply-add of each matrix that it passes."""
    return (
        2 * s.matrices * d * s.dense
        + 2 * s.top_k * s.matrices * d * s.expert
        + 2 * d * s.experts  # router
        + 2 * d * s.shared_gate
    )


def body_flops(c: dict[str, Any], new: int, cached: int) -> int:
    """QKV, output, attention over what the mask keeps, feed-forward; one sequence."""
    d = hidden_of(c)
    result = 0
    for s in layer_shapes(c):
        width = s.head_dim * (s.heads + 2 * s.kv_heads)
        linear = 2 * d * width + 2 * s.heads * s.head_dim * d + ffn_flops(d, s)
        pairs = sum(seen(cached + i, s) for i in range(new))
        result += new * linear + 4 * s.heads * s.head_dim * pairs
    return result


SOFTMAX = [
    "bloom-176b", "chatglm3-6b", "command-r-35b", "command-r-plus-104b", "dbrx", "falcon-180b",
    "falcon-7b", "gemma-2-27b", "gemma-2-9b", "gemma-2b", "gemma-3-1b", "gemma-3-27b",
    "gemma-3-4b", "glm-4-9b", "glm-4.5", "gpt-2", "gpt-2-xl", "gpt-j-6b", "gpt-oss-120b",
    "gpt-oss-20b", "granite-3.3-8b", "llama-1-7b", "llama-2-70b", "llama-3.1-405b",
    "llama-3.1-8b", "llama-3.2-1b", "llama-4-scout-17b-16e", "minimax-m2", "mistral-7b-v0.1",
    "mistral-7b-v0.3", "mistral-nemo-12b-2407", "mixtral-8x22b-v0.1", "mixtral-8x7b-v0.1",
    "mpt-7b", "olmo-2-13b", "olmo-2-7b", "opt-13b", "opt-6.7b", "phi-2", "phi-3-mini-4k",
    "phi-3.5-moe", "phi-4-mini", "qwen2-57b-a14b", "qwen2-72b", "qwen2.5-0.5b",
    "qwen3-0.6b", "qwen3-235b-a22b", "qwen3-30b-a3b", "qwen3-32b", "smollm3-3b",
    "starcoder2-7b", "tinyllama-1.1b", "yi-34b",
]  # fmt: skip


@pytest.mark.parametrize("name", SOFTMAX)
def test_body_flops(name):
    """A short prompt, a decode step beyond most windows, and a chunk that crosses them."""
    c = config(name)
    steps: tuple[tuple[Any, int, int], ...] = (
        ("prefill", 100, 0),
        ("decode", 1, 9_999),
        ("prefill", 300, 3_900),
        ("prefill", 300, 8_000),
    )
    for phase, new, cached in steps:
        counted = total(body_operators(model(name), Step(phase, 1, new, cached)))
        assert counted == pytest.approx(body_flops(c, new, cached), rel=1e-13)


@pytest.mark.parametrize("name", SOFTMAX)
def test_head_flops(name):
    """2·d·vocabulary per row of logits."""
    c = config(name)
    vocab = first(c, "vocab_size", "padded_vocab_size")
    head = head_operators(model(name), Step("prefill", 3, 100, 0))
    assert total(head) == 3 * 2 * hidden_of(c) * vocab


def latent_layer(c: dict[str, Any]) -> Any:
    """FLOPs per token of MLA's down-projections and its output; queries too."""
    d, h = hidden_of(c), c["num_attention_heads"]
    qk = c["qk_nope_head_dim"] + c["qk_rope_head_dim"]
    rank = c.get("q_lora_rank")
    query = 2 * d * h * qk if rank is None else 2 * d * rank + 2 * rank * h * qk
    latent = 2 * d * (c["kv_lora_rank"] + c["qk_rope_head_dim"])
    return query + latent + 2 * h * c["v_head_dim"] * d


LATENT = ["deepseek-v3", "deepseek-r1", "deepseek-v2", "deepseek-v2-lite", "kimi-k2-instruct"]


@pytest.mark.parametrize("name", LATENT)
def test_mla_prefill_expands_and_decode_absorbs(name):
    """Prefill: kv_b of every key, then heads of (nope + rope) and v. Decode: two products per head
    with the latent (nope × rank, rank × v), attention over rank + rope and rank.
    """
    c = config(name)
    d, h, layers = hidden_of(c), c["num_attention_heads"], c["num_hidden_layers"]
    nope, rope, v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    rank = c["kv_lora_rank"]
    ffns = [Shape(h, h, v, **f) for f in ffns_of(c, layers, d)]
    rest = sum(latent_layer(c) + ffn_flops(d, f) for f in ffns)

    new, cached = 100, 50
    pairs = new * cached + new * (new + 1) // 2
    expansion = 2 * rank * h * (nope + v) * (new + cached)
    expanded = expansion + 2 * h * (nope + rope + v) * pairs
    prefill = total(body_operators(model(name), Step("prefill", 1, new, cached)))
    assert prefill == pytest.approx(new * rest + layers * expanded, rel=1e-13)

    absorbed = 2 * h * (nope * rank + rank * v) + 2 * h * (2 * rank + rope) * (cached + 1)
    decode = total(body_operators(model(name), Step("decode", 1, 1, cached)))
    assert decode == pytest.approx(rest + layers * absorbed, rel=1e-13)


def test_indexed_attention_reads_and_computes_its_top_keys():
    """DeepSeek-V3.2: scores over all keys by 64 heads of 128, then 2,048 keys by 128 heads."""
    c = config("deepseek-v3.2")
    step = Step("decode", 1, 1, 9_999)
    by_name = {o.name: o for o in body_operators(model("deepseek-v3.2"), step)}
    scores, attention = by_name["indexer.scores"], by_name["attention"]
    assert scores.flops == 2 * c["index_n_heads"] * c["index_head_dim"] * 10_000
    assert attention.flops == 2 * 128 * (512 + 64 + 512) * c["index_topk"]
    assert attention.cache_bytes == 2 * (512 + 64) * 2_048
    # Below the limit every key is read.
    short = {o.name: o for o in body_operators(model("deepseek-v3.2"), Step("decode", 1, 1, 99))}
    assert short["attention"].cache_bytes == 2 * (512 + 64) * 100


def test_recurrent_layers_compute_and_keep_the_same_at_any_length():
    """Qwen3-Next: 36 of 48 layers; 32 value heads × 128 × 128 of state, 7 FLOPs an element, and a
    convolution of 4 over 2·16·128 + 32·128 = 8,192 channels.
    """
    for cached in (0, 10_000):
        by_name = {
            o.name: o
            for o in body_operators(model("qwen3-next-80b-a3b"), Step("decode", 1, 1, cached))
        }
        scan = by_name["recurrence"]
        assert scan.count == 36
        assert scan.flops == 7 * 32 * 128 * 128 + 2 * 4 * 8_192
        assert by_name["attention"].count == 12


def test_state_space_layers_of_codestral_mamba():
    """64 layers, 128 heads × 64 × 128 of state, 5 FLOPs each; convolution of 4 over 10,240."""
    scan = next(
        o
        for o in body_operators(model("mamba-codestral-7b"), Step("prefill", 2, 100, 0))
        if o.name == "recurrence"
    )
    assert scan.count == 64
    assert scan.flops == 200 * (5 * 128 * 64 * 128 + 2 * 4 * (8_192 + 2 * 8 * 128))
