"""`engines list`, `show` and `copy`: a preset is seen, copied, changed, and followed."""

import pytest
import yaml

from perfmodel.specs.engine import Engine, engine_names, engine_path, load_engine
from tests.cli.runner import perfmodel

ESTIMATE = ("estimate", "llama-3.1-8b", "--hardware", "h100-sxm", "--json")


def test_list_names_every_preset():
    engines = perfmodel("engines", "list", "--json").record["engines"]
    assert [engine["name"] for engine in engines] == engine_names()
    assert {"vllm", "trtllm", "trtllm-2025", "sglang", "lmdeploy", "mlc"} <= set(engine_names())
    text = perfmodel("engines", "list").out
    assert all(name in text for name in engine_names())


@pytest.mark.parametrize("name", engine_names())
def test_every_preset_states_a_source_for_each_group(name):
    record = perfmodel("engines", "show", name, "--json").record
    assert record["source"]
    for group in ("scheduler", "graph", "host", "kernels"):
        assert record[group]["source"].strip(), group
    if "static_reserve" in record:
        assert record["static_reserve"]["source"]
    shown = perfmodel("engines", "show", name)
    assert shown.status == 0
    assert record["scheduler"]["policy"] in shown.out
    assert max(len(line) for line in shown.out.splitlines()) <= 80


def test_sources_of_groups_within_groups_are_shown_once():
    shown = perfmodel("engines", "show", "trtllm-2025").out
    table, sources = shown.split("Sources:")
    assert "SGLang pull request 2904" not in table
    for path in ("host:", "kernels:", "kernels.all_reduce:", "scheduler:"):
        assert sources.count(f"  {path} ") == 1, path
    assert sources.count("SGLang pull request 2904") == 1


@pytest.mark.parametrize("name", engine_names())
def test_the_json_is_a_preset_again(name):
    record = perfmodel("engines", "show", name, "--json").record
    text = yaml.safe_load(yaml.safe_dump(record))
    assert Engine.parse(text, "again") == load_engine(name)


def test_yaml_is_the_file_itself():
    out = perfmodel("engines", "show", "sglang", "--yaml").out
    assert out == engine_path("sglang").read_text(encoding="utf-8")
    assert yaml.safe_load(out)["name"] == "sglang"


def test_a_copy_changed_in_one_field_is_followed(tmp_path):
    mine = tmp_path / "mine.yaml"
    assert perfmodel("engines", "copy", "vllm", mine).status == 0
    assert load_engine(str(mine)).name == "mine"
    before, same = perfmodel(*ESTIMATE).record, perfmodel(*ESTIMATE, "--engine", mine).record
    assert same["tpot_s"] == before["tpot_s"]
    changed = tmp_path / "changed.yaml"
    text = mine.read_text(encoding="utf-8").replace("step_us: 300", "step_us: 1300")
    changed.write_text(text.replace("block_size: 16", "block_size: 32"), encoding="utf-8")
    after = perfmodel(*ESTIMATE, "--engine", changed).record
    assert after["tpot_s"] - before["tpot_s"] == pytest.approx(1e-3)
    assert after["deployment"]["block_size"] == 32


def test_a_copy_never_overwrites_unasked(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("mine", encoding="utf-8")
    refused = perfmodel("engines", "copy", "vllm", mine)
    assert refused.status == 2
    assert "--force" in refused.err
    assert mine.read_text(encoding="utf-8") == "mine"
    assert perfmodel("engines", "copy", "vllm", mine, "--force").status == 0
    assert load_engine(str(mine)).block_size == 16


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("engines", "show", "vlm"), "unknown engine"),
        (("engines", "copy", "vlm", "x.yaml"), "unknown engine"),
        (("engines", "copy", "vllm", "x.txt"), ".yaml"),
        (("engines", "copy", "vllm", "/nowhere/at/all/x.yaml"), "no folder"),
        (("engines", "show", "vllm", "--json", "--yaml"), "one of them"),
        ((*ESTIMATE, "--attention", "flash3", "--hardware", "a100-sxm-80gb"), "Hopper"),
        ((*ESTIMATE, "--attention", "flash4"), "flash4"),
        ((*ESTIMATE, "--fusion", "some"), "some"),
        ((*ESTIMATE, "--engine", "lmdeploy", "--execution", "graph"), "captures no graphs"),
    ],
)
def test_what_cant_be_is_one_line(arguments, says):
    ran = perfmodel(*arguments)
    assert ran.status == 2
    assert says in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert not ran.out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"memory_rule": "most"}, "memory_rule"),
        ({"scheduler": {"policy": "fast"}}, "scheduler."),
        ({"graph": {"counted": True, "decode_batch": 0, "source": "x"}}, "graph.decode_batch"),
        ({"graph": {"prefil": True}}, "graph.prefil"),
        ({"tiers": [{"from_gib": -1}]}, "tiers"),
        ({"gpu_memory_utilization": None}, "gpu_memory_utilization"),
    ],
)
def test_a_wrong_field_is_named(tmp_path, change, says):
    data = yaml.safe_load(engine_path("vllm").read_text(encoding="utf-8"))
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({**data, **change}), encoding="utf-8")
    ran = perfmodel(*ESTIMATE, "--engine", file)
    assert ran.status == 2
    assert says in ran.err
    assert len(ran.err.strip().splitlines()) == 1
