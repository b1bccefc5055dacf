"""Attention with grouped queries: torch's named backends, FlashAttention and FlashInfer."""

from __future__ import annotations

from typing import Any

from calibrate.runs.base import (
    Bench,
    Family,
    Prepared,
    Shape,
    Work,
    always,
    importable,
    size,
    width,
)

SDPA = {
    "sdpa_flash": "FLASH_ATTENTION",
    "sdpa_efficient": "EFFICIENT_ATTENTION",
    "sdpa_cudnn": "CUDNN_ATTENTION",
    "sdpa_math": "MATH",
}
KERNELS = dict.fromkeys(SDPA, always) | {
    "flash_attn": importable("flash_attn"),
    "flashinfer": importable("flashinfer"),
}


def prefill_legal(shape: Shape) -> bool:
    """Whole groups of heads; a window only where the kernel has one."""
    heads, kv_heads = size(shape, "heads"), size(shape, "kv_heads")
    windowed = size(shape, "window") > 0
    return (
        kv_heads > 0
        and heads % kv_heads == 0
        and size(shape, "q_len") > 0
        and (not windowed or shape["kernel"] == "flash_attn")
        and shape["kv_dtype"] == shape["dtype"]
    )


def decode_legal(shape: Shape) -> bool:
    """As of prefill, with one query token."""
    return prefill_legal({**shape, "q_len": 1}) and size(shape, "kv_len") > 0


def pairs(queries: int, cached: int, window: int) -> int:
    """(query, key) pairs that a causal mask keeps, each query seeing at most ``window`` keys.

    >>> pairs(4, 0, 0), pairs(4, 10, 0), pairs(4, 0, 2)
    (10, 50, 7)
    """
    if not window:
        return queries * cached + queries * (queries + 1) // 2
    short = max(0, min(queries, window - cached))
    """Queries that see fewer keys than the window holds."""
    return short * cached + short * (short + 1) // 2 + (queries - short) * window


def _work(shape: Shape, queries: int, cached: int) -> Work:
    heads, kv_heads, dim = size(shape, "heads"), size(shape, "kv_heads"), size(shape, "head_dim")
    window, batch = size(shape, "window"), size(shape, "batch")
    keys = cached + queries
    if window:
        keys = min(keys, window + queries - 1)
    flops = 4 * batch * heads * dim * pairs(queries, cached, window)
    query_bytes = 2 * batch * heads * queries * dim * width(str(shape["dtype"]))
    cache_bytes = 2 * batch * kv_heads * keys * dim * width(str(shape["kv_dtype"]))
    return Work(flops, query_bytes + cache_bytes, str(shape["dtype"]))


def prefill_work(shape: Shape) -> Work:
    """Pairs that the mask keeps; Q, K, V in and the result out, no scores."""
    return _work(shape, size(shape, "q_len"), size(shape, "prefix_len"))


def decode_work(shape: Shape) -> Work:
    """One query a sequence; ``kv_len`` counts the new token."""
    return _work(shape, 1, size(shape, "kv_len") - 1)


def prefill_prepare(shape: Shape, bench: Bench) -> Prepared:
    """Random Q, K, V."""
    return _prepare(shape, bench, size(shape, "q_len"), size(shape, "prefix_len"))


def decode_prepare(shape: Shape, bench: Bench) -> Prepared:
    """Random Q, K, V with one query a sequence."""
    return _prepare(shape, bench, 1, size(shape, "kv_len") - 1)


def _prepare(shape: Shape, bench: Bench, queries: int, cached: int) -> Prepared:
    kernel, dtype = str(shape["kernel"]), str(shape["dtype"])
    batch, dim = size(shape, "batch"), size(shape, "head_dim")
    heads, kv_heads = size(shape, "heads"), size(shape, "kv_heads")
    copies, flush = bench.copies(_work(shape, queries, cached).bytes)
    # torch wants [batch, heads, tokens, dim], the others [batch, tokens, heads, dim].
    heads_first = kernel in SDPA

    def make(tokens: int, count: int) -> list[Any]:
        middle = (count, tokens) if heads_first else (tokens, count)
        return bench.random(copies, (batch, *middle, dim), dtype)

    q = make(queries, heads)
    k, v = make(cached + queries, kv_heads), make(cached + queries, kv_heads)
    if kernel == "flash_attn":
        return Prepared(_flash_attn(q, k, v, size(shape, "window")), copies, flush)
    if kernel == "flashinfer":
        return Prepared(_flashinfer(q, k, v, batch), copies, flush)
    return _sdpa(bench, (q, k, v), queries, cached, (SDPA[kernel], flush))


def _sdpa(bench: Bench, qkv: Any, queries: int, cached: int, how: tuple[str, bool]) -> Prepared:
    from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: PLC0415
    from torch.nn.attention.bias import causal_lower_right  # noqa: PLC0415

    q, k, v = qkv
    copies, (backend, flush) = len(q), how
    attend = bench.torch.nn.functional.scaled_dot_product_attention
    grouped = q[0].shape[1] != k[0].shape[1]
    causal = queries > 1 and not cached
    # torch's is_causal aligns the mask at the first key; after a prefix it belongs at the last.
    mask = causal_lower_right(queries, cached + queries) if queries > 1 and cached else None

    def call(i: int) -> Any:
        at = i % copies
        return attend(q[at], k[at], v[at], attn_mask=mask, is_causal=causal, enable_gqa=grouped)

    only = getattr(SDPBackend, backend)
    return Prepared(call, copies, flush, context=lambda: sdpa_kernel(only))


def _flash_attn(q: Any, k: Any, v: Any, window: int) -> Any:
    from flash_attn import flash_attn_func  # type: ignore[import-not-found] # noqa: PLC0415

    copies, sides = len(q), (window - 1, 0) if window else (-1, -1)

    def call(i: int) -> Any:
        at = i % copies
        return flash_attn_func(q[at], k[at], v[at], causal=True, window_size=sides)

    return call


def _flashinfer(q: Any, k: Any, v: Any, batch: int) -> Any:
    import flashinfer  # type: ignore[import-not-found] # noqa: PLC0415

    if batch != 1:
        raise NotImplementedError("FlashInfer's calls for one request are measured: batch 1")
    copies, decode = len(q), q[0].shape[1] == 1

    def call(i: int) -> Any:
        query, keys, values = (t[i % copies][0] for t in (q, k, v))
        if decode:
            return flashinfer.single_decode_with_kv_cache(query[0], keys, values)
        return flashinfer.single_prefill_with_kv_cache(query, keys, values, causal=True)

    return call


_SHARED = ("heads", "kv_heads", "head_dim", "window")
PREFILL = Family(
    "attention_prefill", ("kv_dtype", "batch", "q_len", "prefix_len", *_SHARED),
    KERNELS, prefill_legal, prefill_work, prefill_prepare,
)  # fmt: skip
DECODE = Family(
    "attention_decode", ("kv_dtype", "batch", "kv_len", *_SHARED),
    KERNELS, decode_legal, decode_work, decode_prepare,
)  # fmt: skip
