"""Tables of measured servers: reading, known settings, flags."""

import math

import pytest

from calibrate.serving_flags import flags_of, ttft_flag, version_of
from calibrate.serving_settings import Spread, settings_of, spread_of
from calibrate.serving_table import read_serving
from perfmodel.errors import InputError

HEAD = (
    "model,gpu,engine,engine_version,weights,moe_weights,tp,ep,attention_dp,concurrency,isl,osl,"
    "length_factor,bench,ttft_ms,tpot_ms"
)
PLAIN = "llama-3.1-8b,h100-sxm,vllm,,bf16,bf16,1.0,1.0,1.0,8.0,1024,128,1.0,own,100.5,8.5"


def table(tmp_path, *rows, head=HEAD):
    path = tmp_path / "table.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


def test_a_row_is_read_with_whole_numbers_written_as_floats(tmp_path):
    (row,) = read_serving(table(tmp_path, PLAIN)).rows
    assert (row.number, row.tp, row.concurrency, row.isl, row.osl) == (1, 1, 8, 1024, 128)
    assert (row.ttft_ms, row.tpot_ms, row.kv_cache) == (100.5, 8.5, None)


def test_columns_that_are_optional_have_defaults(tmp_path):
    head = "model,gpu,engine,weights,tp,concurrency,isl,osl,ttft_ms,tpot_ms,kv_cache,ttft_steps"
    path = table(tmp_path, "llama-3.1-8b,h100-sxm,vllm,,2,4,100,10,,9,fp8,3", head=head)
    (row,) = read_serving(path).rows
    assert (row.ep, row.attention_dp, row.length_factor, row.bench) == (1, 1, 1.0, "")
    assert math.isnan(row.ttft_ms)
    settings = settings_of(row)
    assert (row.kv_cache, settings.kv_cache, settings.ttft_steps) == ("fp8", "fp8", 3.0)


@pytest.mark.parametrize(
    ("old", "new", "column"),
    [
        ("8.0,1024", "0,1024", "concurrency"),
        ("8.0,1024", "8.5,1024", "concurrency"),
        ("1024,128", "many,128", "isl"),
        ("128,1.0", "128,0.5", "length_factor"),
        (",8.5", ",-8.5", "tpot_ms"),
        (",8.5", ",nan", "tpot_ms"),
    ],
)
def test_a_wrong_value_is_named_with_row_and_column(tmp_path, old, new, column):
    path = table(tmp_path, PLAIN, PLAIN.replace(old, new, 1))
    with pytest.raises(InputError, match=f"row 2: {column}"):
        read_serving(path)


def test_a_table_without_a_column_or_a_row_is_refused(tmp_path):
    with pytest.raises(InputError, match="tpot_ms"):
        read_serving(table(tmp_path, head=HEAD.replace(",tpot_ms", "")))
    with pytest.raises(InputError, match="0 rows"):
        read_serving(table(tmp_path))


def test_the_launch_scripts_settings_hold_for_their_bench_alone(tmp_path):
    x = PLAIN.replace("llama-3.1-8b", "llama-3.1-70b").replace("own", "inferencex")
    trt = x.replace("vllm", "trtllm").replace("1024,128", "1024,1024")
    wide = trt.replace("bf16,bf16,1.0", "bf16,bf16,8.0")
    rows = read_serving(table(tmp_path, PLAIN, x, trt, wide)).rows
    own, vllm, waits, none = (settings_of(row) for row in rows)
    assert (own.kv_cache, own.max_num_batched_tokens, own.ttft_steps) == (None, None, 0)
    assert (vllm.kv_cache, vllm.ttft_steps) == ("fp8", 1)
    assert (waits.ttft_steps, none.ttft_steps) == (21, 1)  # 20 steps of waiting, 1 of overlap


def test_servers_that_send_ten_tokens_at_a_time_send_the_first_at_once(tmp_path):
    x = PLAIN.replace("llama-3.1-8b,h100-sxm", "deepseek-r1,h200-sxm").replace("own", "inferencex")
    rows = read_serving(table(tmp_path, *(x.replace("vllm", e) for e in ("sglang", "trtllm")))).rows
    assert [settings_of(row).ttft_steps for row in rows] == [1, 1]  # of overlap


def test_ranks_are_those_that_share_experts(tmp_path):
    """Tensor and expert ranks, attention_dp, users: ep beyond tp spreads experts over ranks."""
    wide = PLAIN.replace("1.0,1.0,1.0,8.0", "1.0,8.0,8.0,32.0")
    assert wide != PLAIN
    bench = wide.replace("own", "inferencex")
    nodes = bench.replace("8.0,8.0,32.0", "8.0,64.0,4.0")
    narrow = wide.replace("1.0,8.0,8.0,32.0", "8.0,8.0,8.0,32.0")
    rows = read_serving(table(tmp_path, PLAIN, wide, bench, nodes, narrow)).rows
    plain, own, node, other, inside = (spread_of(row) for row in rows)
    assert (plain.users, plain.ranks) == (8, 1)
    assert (own.users, own.ranks) == (32, 8)
    assert node == other == Spread(256, 8)  # of users by rank, on one node
    assert inside.ranks == 1


def test_flags_follow_rules(tmp_path):
    deepseek = PLAIN.replace("llama-3.1-8b,h100-sxm,vllm,", "deepseek-r1,h200-sxm,trtllm,1.1.0rc2")
    rows = read_serving(
        table(
            tmp_path,
            PLAIN,
            PLAIN,
            PLAIN.replace("own", "fixed-length").replace("100.5", "99"),
            deepseek,
            deepseek.replace("1.1.0rc2", "").replace("100.5", "98"),
            PLAIN.replace("1.0,8.0", "8.0,8.0"),
        )
    ).rows
    flags = flags_of(rows)
    assert [bool(flag) for flag in flags] == [False, True, True, True, False, True]
    assert "repeats" in flags[1]
    assert ttft_flag(rows[2])
    assert not ttft_flag(rows[0])


@pytest.mark.parametrize(
    ("text", "version"),
    [("1.0.0rc3", (1, 0, 0)), ("0.5.6.post2", (0, 5, 6)), ("v2", (2,)), ("", None), ("main", None)],
)
def test_versions(text, version):
    assert version_of(text) == version
