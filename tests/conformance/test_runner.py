"""The command: what it counts, what it lists, how it exits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from conformance.__main__ import main
from conformance.perfmodel_adapter import PerfmodelAdapter
from conformance.run import run
from conformance.truths_file import read_truths, shipped

ROOT = Path(__file__).resolve().parents[2]
TRUTHS = read_truths()
PAIRS = [t for t in TRUTHS if t.question.kind == "causal_pairs"]


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """A file of a few of the truths: those about masks and matrices."""
    whole = yaml.safe_load(shipped().read_text(encoding="utf-8"))
    chosen = [t for t in whole["truths"] if t["question"]["kind"] in {"causal_pairs", "gemm_flops"}]
    path = tmp_path_factory.mktemp("truths") / "few.yaml"
    path.write_text(yaml.safe_dump({"truths": chosen}), encoding="utf-8")
    return str(path)


def adapter(folder, body, name="own.py"):
    path = folder / name
    path.write_text(body, encoding="utf-8")
    return path


def verdicts(ask, truths=PAIRS):
    return {outcome.verdict for outcome in run(truths, ask)}


@pytest.mark.parametrize(
    "convert", [float, int, np.float64, np.int64, np.float32, lambda n: np.asarray(n)[()]]
)
def test_any_kind_of_number_is_compared(convert):
    for truth in [t for t in PAIRS if t.answer < 2**24]:  # what float32 holds
        assert run([truth], lambda q, t=truth: convert(t.answer))[0].verdict == "passed"


@pytest.mark.parametrize("answer", [-1, 0, 1e300, float("nan"), float("inf"), "12", True, [3], 1j])
def test_wrong_answers_fail(answer):
    assert verdicts(lambda q: answer) == {"failed"}


def test_none_is_unsupported_and_what_raises_has_failed():
    assert verdicts(lambda q: None) == {"unsupported"}
    (outcome, *_) = run(PAIRS, lambda q: q["heads"])
    assert outcome.verdict == "failed"
    assert "KeyError" in outcome.problem


def test_an_exact_truth_allows_no_difference():
    (truth,) = [t for t in PAIRS if t.id == "causal_pairs/prompt_131072"]
    assert run([truth], lambda q: truth.answer)[0].verdict == "passed"
    assert run([truth], lambda q: truth.answer + 1)[0].verdict == "failed"


def test_a_tolerance_is_relative():
    truth = next(t for t in TRUTHS if t.tolerance == 5e-4)
    assert truth.allows(truth.answer * 1.0004)
    assert truth.allows(truth.answer * 0.9996)
    assert not truth.allows(truth.answer * 1.0006)


MISTAKES = {
    # a mistake that real tools have shipped, and a truth that shows it
    "deepseek-v3/kv_bytes_per_token": 4_997_120,  # expanded heads instead of the latent
    "deepseek-v3/kv_bytes_per_token/tp8": 70_272 / 8,  # the latent divided by TP
    "llama-3.1-70b/kv_bytes_per_token/tp16": 20_480,  # a KV head split
    "qwen3-32b/parameters": 30_500_000_000,  # hidden / heads for head_dim
    "qwen3-0.6b/parameters": 751_632_384,  # a tied table twice
    "falcon-7b/kv_bytes_per_token": 71 * 8_192,  # num_kv_heads as it stands
    "gpt-oss-120b/kv_bytes_per_token_beyond_window": 73_728,  # windows forgotten
    "llama-2-70b/ffn_flops_per_token": 80 * 4 * 8192 * 28_672,  # two matrices
    "bits_per_weight/nvfp4": 4,  # scales forgotten
    "bits_per_weight/q8_0": 34,  # block bytes taken as element bytes
    "expected_experts/8_2_4": 2,  # top-k at every batch
    "llama-3.1-8b/lm_head_flops/1x2048": 2048 * 2 * 4096 * 128_256,  # logits of every token
    "causal_pairs/prompt_2048": 2048**2,  # the full square
}


@pytest.mark.parametrize(("name", "wrong"), MISTAKES.items())
def test_the_usual_mistakes_are_found(name, wrong):
    (truth,) = [t for t in TRUTHS if t.id == name]
    assert not truth.allows(wrong)


class TestCommand:
    def test_the_shipped_truths_are_asked_by_kind(self, capsys):
        assert main(["perfmodel", "--only", "causal_pairs", "--only", "gemm_flops"]) == 0
        shown = capsys.readouterr().out
        assert "causal_pairs" in shown
        assert "expected_experts" not in shown

    def test_a_failure_is_listed_with_its_derivation(self, few, tmp_path, capsys):
        path = adapter(tmp_path, "def adapter(question):\n    return question['new'] ** 2\n")
        assert main([str(path), "--truths", few, "--only", "causal_pairs"]) == 1
        shown = capsys.readouterr().out
        assert "causal_pairs/prompt_2048" in shown
        assert "2048 · 2049 / 2" in shown

    def test_json_is_one_object(self, few, tmp_path, capsys):
        path = adapter(
            tmp_path,
            "class Adapter:\n"
            "    def causal_pairs(self, question):\n"
            "        return None if question['window'] else question['new'] ** 2\n"
            "    def gemm_flops(self, q):\n"
            "        return 2 * q['m'] * q['n'] * q['k']\n"
            "adapter = Adapter()\n",
        )
        assert main([str(path), "--truths", few, "--json"]) == 1
        record = json.loads(capsys.readouterr().out)
        assert record["truths"] == len(PAIRS) + 4
        assert record["passed"] + record["failed"] + record["unsupported"] == record["truths"]
        assert record["kinds"]["gemm_flops"] == {"passed": 4, "failed": 0, "unsupported": 0}
        windows = sum(t.question["window"] is not None for t in PAIRS)
        assert record["kinds"]["causal_pairs"]["unsupported"] == windows
        assert record["failed"] == len(record["failures"])
        first = record["failures"][0]
        assert first["kind"] == "causal_pairs"
        assert first["got"] != first["answer"]

    @pytest.mark.parametrize(
        "body",
        [
            "def adapter(question):\n    return None\n",
            "adapter = 3\n",
            "class adapter:\n    def __init__(self, size):\n        pass\n",
            "other = print\n",
            "import no_such_module_anywhere\n",
            "def (:\n",
            "raise SystemError('no licence')\n",
        ],
    )
    def test_an_adapter_that_is_none_is_wrong_input(self, body, few, tmp_path, capsys):
        assert main([str(adapter(tmp_path, body)), "--truths", few]) == 2
        shown = capsys.readouterr().err.strip()
        assert shown.startswith("error: ")
        assert "\n" not in shown
        assert "own.py" in shown

    @pytest.mark.parametrize("name", ["nothing", "absent.py", "no.such.module:thing", "json:thing"])
    def test_an_unknown_adapter_is_wrong_input(self, name, few, capsys):
        assert main([name, "--truths", few]) == 2
        assert name.partition(":")[0] in capsys.readouterr().err

    def test_a_wrong_file_is_wrong_input(self, tmp_path, capsys):
        path = adapter(tmp_path, "truths: [{id: mine}]\n", "mine.yaml")
        assert main(["perfmodel", "--truths", str(path)]) == 2
        assert "mine: question" in capsys.readouterr().err

    def test_an_unknown_kind_is_wrong_input(self, capsys):
        with pytest.raises(SystemExit) as exit_:
            main(["perfmodel", "--only", "beauty"])
        assert exit_.value.code == 2

    def test_a_kind_that_a_file_lacks_is_wrong_input(self, tmp_path, capsys):
        path = adapter(
            tmp_path,
            "truths: [{id: a, question: {kind: causal_pairs, new: 1}, answer: 1, unit: pairs,"
            " tolerance: 0, derivation: 0 + 1, source: itself}]\n",
            "one.yaml",
        )
        assert main(["perfmodel", "--truths", str(path)]) == 0
        assert main(["perfmodel", "--truths", str(path), "--only", "gemm_flops"]) == 2

    def test_adapters_come_as_module_class_function_or_instance(self, few, tmp_path, capsys):
        path = adapter(
            tmp_path,
            "from dataclasses import dataclass\n"
            "@dataclass\n"
            "class Built:\n"
            "    def answer(self, question):\n"
            "        return 2 * question['m'] * question['n'] * question['k']\n"
            "made = Built()\n"
            "asked = made.answer\n",
        )
        for name in ("Built", "made", "asked"):
            assert main([f"{path}:{name}", "--truths", few, "--only", "gemm_flops"]) == 0
        name = "conformance.perfmodel_adapter:PerfmodelAdapter"
        assert main([name, "--truths", few, "--only", "gemm_flops"]) == 0

    def test_it_runs_as_a_module(self):
        command = [sys.executable, "-m", "conformance", "tiny", "--only", "tokens_per_round"]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr

    def test_the_runner_loads_no_calculator(self):
        code = (
            "import sys, conformance.__main__ as c; c.main(['tiny', '--only', 'expected_experts']);"
            "assert not {'perfmodel', 'numpy', 'torch', 'transformers'} & sys.modules.keys()"
        )
        command = [sys.executable, "-c", code]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr


def test_perfmodel_leaves_other_forms_of_mla_to_others():
    (truth,) = [t for t in TRUTHS if t.id == "deepseek-v3/prefill_flops/2048"]
    from dataclasses import replace

    other = replace(truth.question, inputs={**truth.question.inputs, "mla": "absorbed"})
    assert PerfmodelAdapter().answer(other) is None
