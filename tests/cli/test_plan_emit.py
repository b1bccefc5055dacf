"""`perfmodel plan --emit`: the chosen plan as a command of its engine."""

import shlex

import pytest

from tests.cli.runner import perfmodel

PLAN = ("plan", "qwen2.5-0.5b", "-H", "l4", "--rate", 2, "--prompt", 128, "--output", 16, "--ttft",
        "1s", "--confirm", 1, "--aggregated", "--weights", "bf16", "--kv-cache-dtype", "bf16",
        "--max-num-seqs", 48, "--tp", 1)  # fmt: skip


def test_the_command_is_all_that_is_printed():
    answer = perfmodel(*PLAN, "--emit", "vllm")
    assert answer.status == 0, answer.err
    lines = answer.out.splitlines()
    assert lines[0].startswith("#")
    words = shlex.split(answer.out, comments=True)
    assert words[:2] == ["vllm", "serve"]
    assert words[words.index("--max-num-seqs") + 1] == "48"
    assert words[words.index("--max-model-len") + 1] == "144"  # 128 of the prompt, 16 of the answer
    assert not any("prefix-caching" in word for word in words)  # as vLLM does by itself


def test_what_was_asked_is_said():
    answer = perfmodel(*PLAN, "--emit", "vllm", "--no-prefix-caching")
    assert "--no-enable-prefix-caching" in shlex.split(answer.out, comments=True)


def test_with_json_it_is_a_part_of_the_answer():
    answer = perfmodel(*PLAN, "--engine", "sglang", "--emit", "sglang", "--json").record
    assert answer["choices"]
    (server,) = answer["launch"]["servers"]
    assert "sglang.launch_server" in server["command"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [(("--emit", "sglang"), "--engine sglang"), (("--emit", "tgi"), "known: vllm")],
)
def test_other_engines_are_refused_before_the_work(flags, says):
    answer = perfmodel(*PLAN, *flags)
    assert (answer.status, answer.out) == (2, "")
    assert says in answer.err
    assert answer.err.count("\n") == 1
