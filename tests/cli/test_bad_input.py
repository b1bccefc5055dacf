"""Every mistake of a user is one line on stderr that names it, and exit status 2."""

import json
from pathlib import Path

import pytest

from tests.cli.runner import perfmodel

OK = ("estimate", "llama-3.1-8b", "-H", "h100-sxm")
ROOT = Path(__file__).resolve().parents[2]
PROFILE, README = str(ROOT / "hardware" / "h100-sxm.yaml"), str(ROOT / "README.md")
SHIPPED = str(ROOT / "hardware" / "calibrations" / "h100-sxm.vllm.yaml")
WRONG = {
    "no such command": (("estimat",), "estimate"),
    "no hardware": (("estimate", "llama-3.1-8b"), "--hardware"),
    "no model": (("estimate", "-H", "h100-sxm"), "model"),
    "unknown model": (("estimate", "lama-3.1-8b", "-H", "h100-sxm"), "llama-3.1-8b"),
    "missing file": (("estimate", "./none/config.json", "-H", "h100-sxm"), "none/config.json"),
    "unknown hardware": (("estimate", "llama-3.1-8b", "-H", "h1000-sxm"), "h100-sxm"),
    "missing profile": (("estimate", "llama-3.1-8b", "-H", "./none.yaml"), "none.yaml"),
    "text for a number": ((*OK, "--batch", "many"), "'many'"),
    "a fraction": ((*OK, "--batch", "1.5"), "'1.5'"),
    "zero": ((*OK, "--batch", "0"), "--batch: out of range"),
    "negative": ((*OK, "--prompt", "-5"), "--prompt: out of range"),
    "absurd": ((*OK, "--prompt", "999999999999"), "--prompt: out of range"),
    "huge digits": ((*OK, "--prompt", "9" * 5000), "out of range"),
    "prefix as long as the prompt": (
        (*OK, "--prompt", "10", "--cached-prefix", "10"), "--cached-prefix: must be shorter"
    ),
    "tp that doesn't divide": ((*OK, "--tp", "3"), "--tp"),
    "tp zero": ((*OK, "--tp", "0"), "--tp: out of range"),
    "tp of a large model": (
        ("estimate", "deepseek-v3", "-H", "h100-sxm", "--tp", "3"), "1, 2, 4, 8, 16, 32, 64, 128"
    ),
    "too many stages": ((*OK, "--pp", "33"), "--pp"),
    "experts in a dense model": ((*OK, "--ep", "2", "--tp", "2"), "--ep"),
    "ep that doesn't divide": (
        ("estimate", "mixtral-8x7b", "-H", "h100-sxm", "--tp", "2", "--ep", "3"), "--ep may be 1, 2"
    ),
    "unknown weights": ((*OK, "--weights", "fp7"), "unknown number format 'fp7'; known: auto, "),
    "unknown cache": ((*OK, "--kv-cache-dtype", "fp7"), "--kv-cache-dtype"),
    "activations narrower than weights": ((*OK, "--activations", "fp8"), "--activations"),
    "unknown engine": ((*OK, "--engine", "vlm"), "--engine"),
    "engine file that is none": ((*OK, "--engine", PROFILE), "but a hardware profile"),
    "engine file of prose": ((*OK, "--engine", README), "this is no engine file"),
    "unknown choice": ((*OK, "--execution", "lazy"), "--execution': 'lazy' is not one of"),
    "more threads than cores": (
        ("calibrate", "run", "--device", "cpu", "--threads", "100000", "--out", "none"),
        "100000 threads",
    ),
    "a GPU checked on the CPU": (
        ("calibrate", "check", "--calibration", SHIPPED, "-H", PROFILE), "the profile of h100-sxm"
    ),
    "a stack that is a path": (
        ("calibrate", "fit", README, "-H", "h100-sxm", "--stack", "../x"), "--stack '../x'"
    ),
    "the stack of no calibration": (
        ("calibrate", "fit", README, "-H", "h100-sxm", "--stack", "generic"), "'generic' means"
    ),
    "text for a share": ((*OK, "--gpu-memory-utilization", "x"), "'x' is no number"),
    "json and explain": ((*OK, "--json", "--explain", "memory"), "--explain memory"),
    "roofline of one device twice": (
        ("roofline", "qwen2.5-0.5b", "-H", "l4", "-H", "l4"), "l4 is given twice",
    ),
    "empty model": (("estimate", "", "-H", "h100-sxm"), "the name is empty"),
    "empty hardware": (("estimate", "llama-3.1-8b", "-H", ""), "the name is empty"),
    "folder for hardware": (("estimate", "llama-3.1-8b", "-H", str(ROOT)), "is a folder"),
    "utilisation above one": ((*OK, "--gpu-memory-utilization", "1.5"), "out of range"),
    "fewer sequences than the batch": ((*OK, "-b", "64", "--max-num-seqs", "8"), "--max-num-seqs"),
    "a reserved length too short": (
        (*OK, "--kv-layout", "contiguous", "--max-model-len", "100"), "--max-model-len"
    ),
    "more replicas than sequences": ((*OK, "--dp", "2"), "--dp"),
    "micro-batches for one stage": ((*OK, "--pp-microbatches", "2"), "--pp-microbatches"),
    "more than all hidden": ((*OK, "--comm-overlap", "1.5"), "--comm-overlap"),
    "a shared cache without copies": ((*OK, "--tp", "8", "--dcp", "2"), "--dcp"),
    "json and csv": ((*OK, "--json", "--csv"), "--json"),
    "nodes without a network": (
        ("estimate", "llama-3.1-8b", "-H", "m2-ultra", "--tp", "2"), "m2-ultra"
    ),
    "a model's own list": (("models", "show", "nothing-like-this"), "nothing-like-this"),
    "a profile's own list": (("hardware", "show", "nothing"), "nothing"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_one_line_and_status_2(name):
    arguments, named = WRONG[name]
    ran = perfmodel(*arguments)
    assert ran.status == 2
    assert ran.out == ""
    assert len(ran.err.strip().splitlines()) == 1, ran.err
    assert named in ran.err
    assert len(ran.err) < 400


BROKEN_CONFIGS = {
    "broken JSON": '{"model_type": "llama", ',
    "not an object": "[1, 2]",
    "no model type": '{"hidden_size": 64}',
    "unknown architecture": '{"model_type": "gru"}',
    "text for a number": json.dumps({"model_type": "llama", "hidden_size": "64"}),
    "negative": json.dumps({"model_type": "llama", "hidden_size": -64}),
}


@pytest.mark.parametrize("name", BROKEN_CONFIGS)
def test_a_broken_config_is_named(tmp_path, name):
    file = tmp_path / "config.json"
    file.write_text(BROKEN_CONFIGS[name])
    ran = perfmodel("estimate", tmp_path, "-H", "h100-sxm")
    assert ran.status == 2
    assert ran.out == ""
    assert len(ran.err.strip().splitlines()) == 1
    assert "config.json" in ran.err


BROKEN_PROFILES = {
    "broken YAML": "name: [",
    "unknown key": "name: x\npeaks_tflops: {bf16: 1}\n"
    "memory: {capacity_gb: 1, bandwidth_gb_s: 1, bandwith: 2}\n",
    "bytes for GB": "name: x\npeaks_tflops: {bf16: 1}\n"
    "memory: {capacity_gb: 80000000000, bandwidth_gb_s: 1000}\n",
    "text for a number": "name: x\npeaks_tflops: {bf16: 1e3}\n"
    "memory: {capacity_gb: 80, bandwidth_gb_s: 1000}\n",
    "no memory": "name: x\npeaks_tflops: {bf16: 1}\n",
}


@pytest.mark.parametrize("name", BROKEN_PROFILES)
def test_a_broken_profile_is_named(tmp_path, name):
    file = tmp_path / "gpu.yaml"
    file.write_text(BROKEN_PROFILES[name])
    ran = perfmodel("estimate", "llama-3.1-8b", "-H", file)
    assert ran.status == 2
    assert ran.out == ""
    assert len(ran.err.strip().splitlines()) == 1
    assert "gpu.yaml" in ran.err


def test_hardware_files_of_any_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "name: mine\npeaks_tflops: {bf16: 1}\nmemory: {capacity_gb: 1, bandwidth_gb_s: 9}\n"
    (tmp_path / "h.txt").write_text(text)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    assert perfmodel("hardware", "show", "h.txt").status == 0
    for name, said in (
        ("dangling", "a symbolic link that leads nowhere"),
        ("loop", "a symbolic link that leads back to itself"),
        ("folder", "is a folder"),
    ):
        ran = perfmodel("hardware", "show", name)
        assert ran.status == 2
        assert f"{name}: " in ran.err
        assert said in ran.err


REMEDIES = {
    "not even one": (("-p", "10000000"), ("one sequence of 10,000,256 tokens fits", "--tp")),
    "a smaller batch": (("-b", "500"), ("at most --batch 329", "tokens (prompt + output)")),
    "a tiny share": (("--gpu-memory-utilization", "0.1"), ("raise --gpu-memory-utilization",)),
    "a small share": (
        ("-b", "500", "--gpu-memory-utilization", "0.3"), ("--gpu-memory-utilization above 0.3",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REMEDIES)
def test_what_does_not_fit_gets_a_remedy(name):
    arguments, said = REMEDIES[name]
    ran = perfmodel(*OK, *arguments)
    assert ran.status == 2
    assert len(ran.err.splitlines()) == 1
    for part in said:
        assert part in ran.err
    assert "--batch 0" not in ran.err


def test_a_format_may_be_said_in_any_case():
    assert perfmodel(*OK, "--weights", "AUTO", "--kv-cache-dtype", "FP8").status == 0
