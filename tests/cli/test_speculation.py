"""Speculative decoding from the command line: the record, the block in JSON, refusals."""

from __future__ import annotations

import csv
import io
import json

import pytest

from perfmodel import Deployment, Speculation
from perfmodel.errors import InputError
from tests.cli.runner import perfmodel

LLAMA = ("estimate", "llama-3.1-8b", "-H", "h100-sxm", "--stack", "generic")
NGRAM = ("--speculative-method", "ngram", "--num-speculative-tokens", "3")


def refused(*arguments):
    ran = perfmodel(*arguments)
    assert ran.status == 2
    assert ran.out == ""
    assert len(ran.err.strip().splitlines()) == 1
    return ran.err


def test_the_record_holds_the_setting_and_what_it_gains():
    ran = perfmodel(*LLAMA, *NGRAM, "--acceptance", "0.9,0.5,0.1", "--json")
    assert ran.status == 0
    asked = ran.record["deployment"]["speculation"]
    assert (asked["method"], asked["tokens"], asked["acceptance"]) == ("ngram", 3, [0.9, 0.5, 0.1])
    block = ran.record["speculation"]
    assert block["expected_tokens"] == pytest.approx(1 + 0.9 + 0.45 + 0.045)
    assert block["verified_tokens"] == 4
    assert block["speedup_low"] <= block["speedup"] <= block["speedup_high"]
    assert block["speedup"] == pytest.approx(
        block["expected_tokens"] * block["plain_step_s"] / block["round_s"]
    )
    assert block["round_s"] == ran.record["decode"]["time_s"]
    assert block["best_tokens"] in range(4)
    assert block["break_even_batch"] is None or block["break_even_batch"] >= 1


def test_a_tree_with_a_draft_model_in_every_form():
    tree = ("--speculative-method", "draft", "--draft-model", "llama-3.2-1b", "--tree", "3,2,1",
            "--accepted-length", "2.4", "--draft-weights", "int4_g128")  # fmt: skip
    record = perfmodel(*LLAMA, *tree, "--json").record
    assert record["speculation"]["verified_tokens"] == 1 + 3 + 6 + 6
    assert record["speculation"]["expected_tokens"] == 2.4
    assert any(row["name"] == "draft.qkv_proj" for row in record["decode"]["operators"])
    shown = perfmodel(*LLAMA, *tree, "--explain", "operators")
    assert shown.status == 0
    assert "Speed-up over plain decoding" in shown.out
    rows = list(csv.DictReader(io.StringIO(perfmodel(*LLAMA, *tree, "--csv").out)))
    assert any(row["quantity"] == "speculation.speedup" for row in rows)


def test_without_a_method_nothing_is_said_of_it():
    record = perfmodel(*LLAMA, "--json").record
    assert record["deployment"]["speculation"] is None
    assert record["speculation"] is None


def test_deepseek_drafts_with_its_own_module():
    case = ("estimate", "deepseek-v3", "-H", "h200-sxm", "--tp", "8", "--stack", "generic",
            "--speculative-method", "mtp", "--num-speculative-tokens", "1")  # fmt: skip
    block = perfmodel(*case, "--acceptance", "0.85", "--json").record["speculation"]
    assert block["expected_tokens"] == pytest.approx(1.85)
    assert 1 < block["speedup"] < 1.85
    assert block["draft_kv_bytes_per_token"] == (512 + 64) * 2


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--acceptance", "0.8"), ("--acceptance", "--speculative-method")),
        (("--speculative-method", "magic"), ("--speculative-method",)),
        (NGRAM, ("--acceptance",)),
        ((*NGRAM, "--acceptance", "0.8", "--accepted-length", "2"), ("--acceptance",)),
        ((*NGRAM, "--acceptance", "1.2"), ("--acceptance", "1.2")),
        ((*NGRAM, "--acceptance", "nan"), ("--acceptance",)),
        ((*NGRAM, "--acceptance", "0.9,0.8"), ("--acceptance", "2 rates", "3")),
        ((*NGRAM, "--acceptance", "a,b"), ("'a'",)),
        ((*NGRAM, "--accepted-length", "4.5"), ("--accepted-length", "4.5", "4")),
        ((*NGRAM, "--accepted-length", "0.5"), ("--accepted-length",)),
        ((*NGRAM, "--acceptance", "0.8", "--draft-cost", "-1"), ("--draft-cost",)),
        ((*NGRAM, "--acceptance", "0.8", "--draft-model", "llama-3.2-1b"), ("--draft-model",)),
        ((*NGRAM, "--acceptance", "0.8", "--draft-weights", "int4"), ("--draft-weights",)),
        ((*NGRAM, "--acceptance", "0.8", "--tree", "2,1"), ("--num-speculative-tokens",)),
        ((*NGRAM, "--acceptance", "0.8", "--output", "1"), ("--output",)),
        ((*NGRAM, "--acceptance", "0.8", "--pp", "2"), ("--pp", "2")),
        (("--speculative-method", "ngram", "--tree", "2,1", "--acceptance", ".8"), ("--tree",)),
        (("--speculative-method", "eagle", "--tree", "2,0", "--acceptance", ".8"), ("--tree",)),
        (("--speculative-method", "eagle", "--tree", "99,99", "--acceptance", ".8"), ("--tree",)),
        (("--speculative-method", "lookahead", "--tree", "5,2", "--acceptance", ".8"),
         ("--tree",)),
        (("--speculative-method", "draft", "--num-speculative-tokens", "3", "--acceptance", ".8"),
         ("--draft-model",)),
        (("--speculative-method", "draft", "--num-speculative-tokens", "3", "--acceptance", ".8",
          "--draft-model", "qwen3-0.6b"), ("--draft-model", "151,936", "128,256")),
        (("--speculative-method", "eagle", "--num-speculative-tokens", "3", "--acceptance", ".8",
          "--draft-model", "llama-3.2-1b"), ("--draft-model", "2,048", "4,096")),
        (("--speculative-method", "mtp", "--num-speculative-tokens", "3", "--acceptance", ".8"),
         ("--speculative-method", "llama-3.1-8b", "MTP")),
        (("--speculative-method", "mtp", "--num-speculative-tokens", "65", "--acceptance", ".8"),
         ("--num-speculative-tokens",)),
    ],
)  # fmt: skip
def test_bad_combinations_are_one_line_that_names_the_flag(arguments, named):
    said = refused(*LLAMA, *arguments)
    for part in named:
        assert part in said


def test_an_eagle_head_of_a_model_with_experts_needs_its_config():
    said = refused("estimate", "mixtral-8x7b", "-H", "h200-sxm", "--speculative-method", "eagle",
                   "--num-speculative-tokens", "3", "--acceptance", "0.8")  # fmt: skip
    assert "--draft-model" in said


def test_a_step_of_more_tokens_than_the_engine_takes_is_said():
    few, many = (
        perfmodel(*LLAMA, *NGRAM, "--acceptance", "0.8", "--max-num-batched-tokens", "1024",
                  "--batch", batch, "--prompt", "32", "--output", "8", "--json")
        for batch in (256, 257)
    )  # fmt: skip
    assert not any("verification" in note for note in few.record["warnings"])
    assert any("verification" in note for note in many.record["warnings"])


def test_recurrent_layers_take_no_tree():
    said = refused("estimate", "nemotron-nano-9b-v2", "-H", "h200-sxm", "--speculative-method",
                   "medusa", "--tree", "2,2", "--acceptance", "0.8")  # fmt: skip
    assert "--tree" in said
    assert "--num-speculative-tokens" in said


def test_a_draft_whose_heads_do_not_divide_is_refused():
    said = refused("estimate", "qwen2.5-72b", "-H", "h200-sxm", "--tp", "8",
                   "--speculative-method", "draft", "--draft-model", "qwen2.5-0.5b",
                   "--num-speculative-tokens", "3", "--acceptance", "0.8")  # fmt: skip
    assert "--tp" in said or "vocabulary" in said


def test_the_record_survives_json_in_python_too():
    s = Speculation(method="eagle", tree=(4, 2), acceptance=(0.8, 0.6))
    dumped = json.loads(json.dumps(Deployment(speculation=s).model_dump()))["speculation"]
    again = Speculation(**{k: tuple(v) if isinstance(v, list) else v for k, v in dumped.items()})
    assert again == s


def test_python_names_the_field():
    with pytest.raises(InputError, match="acceptance"):
        Speculation(method="ngram", tokens=2, acceptance=True)
    with pytest.raises(InputError, match="tokens"):
        Speculation(method="ngram", acceptance=0.5)
