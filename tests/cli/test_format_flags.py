"""Formats on the command line: the head line, the JSON, and refusals."""

import pytest

from tests.cli.runner import perfmodel

CASE = ("estimate", "llama-3.1-8b", "-H", "h100-sxm", "-p", "128", "-o", "4")


def head(*flags):
    ran = perfmodel(*CASE, *flags)
    assert ran.status == 0
    return " ".join(ran.out.split("\n\n")[0].split())


def test_the_head_line_says_each_format():
    full = head(
        "--weights", "fp8", "--kv-cache-dtype", "kivi4", "--comm-dtype", "int8", "--tp", "2"
    )
    assert "weights fp8 · activations fp8 · cache kivi4 · communication int8 · vllm" in full
    plain = head()
    assert "weights bf16 · cache bf16 · vllm" in plain
    assert "activations" not in plain
    assert "communication" not in plain
    assert "activations" not in head("--weights", "int4")  # weight-only


def test_json_says_what_was_understood():
    ran = perfmodel(*CASE, "--weights", "W8A16", "--comm-dtype", "auto", "--json")
    deployment = ran.record["deployment"]
    assert (deployment["weights"], deployment["activations"]) == ("int8_wo", "bf16")
    assert deployment["communication"] == "bf16"
    again = perfmodel(*CASE, "--kv-cache-dtype", "q8_0/q4_0", "--json").record
    assert again["deployment"]["kv_cache"] == "q8_0/q4_0"
    assert again["memory"]["kv_bytes_per_token"] == 53_248  # 32,768 · (8.5 + 4.5) / 8


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--comm-dtype", "fp7"), "--comm-dtype: "),
        (("--comm-dtype", "q4_k_m"), "--comm-dtype: "),
        (("--kv-cache-dtype", "exl2_4.0"), "--kv-cache-dtype: "),
        (("--weights", "int8_token"), "--weights: "),
    ],
)
def test_bad_formats_are_one_line(flags, named):
    ran = perfmodel(*CASE, *flags)
    assert ran.status == 2
    assert ran.out == ""
    assert named in ran.err
    assert ran.err.strip().count("\n") == 0
