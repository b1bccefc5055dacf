"""FLOPs and bytes of each family's cases, by hand."""

import pytest

from calibrate.plan import complete
from calibrate.runs.registry import FAMILIES

HEADS = {"heads": 4, "kv_heads": 2, "head_dim": 8, "window": 0}
EXPECTED = [
    # 2·2·3·4; (2·4 + 3·4 + 2·3) × 2 bytes
    ("gemm", {"dtype": "bfloat16", "m": 2, "n": 3, "k": 4}, 48, 52),
    ("gemm", {"dtype": "float32", "m": 2, "n": 3, "k": 4}, 48, 104),
    # A and B one byte each, two fp32 scales, the result in 16 bits
    ("gemm", {"dtype": "fp8", "m": 16, "n": 32, "k": 64}, 65536,
     16 * 64 + 32 * 64 + 8 + 2 * 16 * 32),
    # the result in int32
    ("gemm", {"dtype": "int8", "m": 32, "n": 8, "k": 8}, 4096, 32 * 8 + 64 + 4 * 32 * 8),
    # half a byte a weight, a 16-bit scale and zero per 128 of k
    ("gemm", {"dtype": "int4_wo", "m": 1, "n": 64, "k": 256}, 32768,
     2 * 256 + 64 * 128 + 64 * 2 * 4 + 2 * 64),
    ("bandwidth", {"dtype": "float32", "op": "copy", "array_bytes": 1000}, 0, 2000),
    ("bandwidth", {"dtype": "float32", "op": "read", "array_bytes": 1000}, 0, 1000),
    ("bandwidth", {"dtype": "float32", "op": "triad", "array_bytes": 1000}, 0, 3000),
    # 3 queries: 6 pairs; 4·batch 2·4 heads·8·6; Q and out 2·2·4·3·8, K and V 2·2·2·3·8, 2 bytes
    ("attention_prefill", {"dtype": "bfloat16", "batch": 2, "q_len": 3, "prefix_len": 0, **HEADS},
     1536, (384 + 192) * 2),
    # after 5 cached: 15 + 6 pairs, 8 keys
    ("attention_prefill", {"dtype": "bfloat16", "batch": 1, "q_len": 3, "prefix_len": 5, **HEADS},
     4 * 4 * 8 * 21, (2 * 4 * 3 * 8 + 2 * 2 * 8 * 8) * 2),
    # a window of 2: 1 + 2 + 2 pairs
    ("attention_prefill",
     {"kernel": "flash_attn", "dtype": "bfloat16", "batch": 1, "q_len": 3, "prefix_len": 0,
      **HEADS, "window": 2}, 4 * 4 * 8 * 5, (2 * 4 * 3 * 8 + 2 * 2 * 3 * 8) * 2),
    # 10 keys, the new token's included
    ("attention_decode", {"dtype": "float32", "batch": 3, "kv_len": 10, **HEADS},
     4 * 3 * 4 * 8 * 10, (2 * 3 * 4 * 8 + 2 * 3 * 2 * 10 * 8) * 4),
    # 6 rows on 4 experts: all active
    ("grouped_gemm",
     {"dtype": "bfloat16", "rows": 6, "experts": 4, "n": 16, "k": 8, "distribution": "balanced"},
     2 * 6 * 16 * 8, (4 * 16 * 8 + 6 * 24) * 2),
    # 2 rows touch 2 of 4 experts; up 2·16 × 8, down 8 × 16, activation 3·2·16
    ("moe",
     {"dtype": "bfloat16", "tokens": 2, "hidden": 8, "inter": 16, "topk": 1, "experts": 4,
      "moe_tp": 1, "moe_ep": 1, "distribution": "balanced"},
     2 * 2 * 32 * 8 + 2 * 2 * 8 * 16,
     (2 * 32 * 8 + 2 * 40 + 2 * 8 * 16 + 2 * 24 + 3 * 2 * 16) * 2),
    ("elementwise", {"dtype": "bfloat16", "op": "rms_norm", "tokens": 3, "width": 128}, 0,
     (2 * 3 * 128 + 128) * 2),
    ("elementwise", {"dtype": "bfloat16", "op": "silu_mul", "tokens": 3, "width": 128}, 0, 2304),
    ("elementwise", {"dtype": "bfloat16", "op": "rotary", "tokens": 3, "width": 256}, 0,
     (2 * 3 * 256 + 3 * 128) * 2),
    ("launch", {"dtype": "float32", "op": "eager"}, 0, 8),
    ("host_copy", {"dtype": "int8", "op": "host_to_device", "pinned": "yes", "message_bytes": 99},
     0, 99),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape", "flops", "moved"), EXPECTED)
def test_flops_and_bytes(name, shape, flops, moved):
    whole = complete(name, shape)
    assert FAMILIES[name].legal(whole)
    work = FAMILIES[name].work(whole)
    assert (work.flops, work.bytes) == (flops, moved)


def test_every_family_is_covered():
    assert {name for name, *_ in EXPECTED} | {"matmul_peak"} == set(FAMILIES)
