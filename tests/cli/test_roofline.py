import json
import xml.etree.ElementTree as ET

import pytest

from tests.cli.runner import perfmodel

CASE = ("roofline", "llama-3.2-1b", "--hardware", "h100-sxm", "--prompt", "256")


def test_the_table_holds_roofs_ridge_and_operators():
    ran = perfmodel(*CASE)
    assert (ran.status, ran.err) == (0, "")
    for text in ("989 TFLOP/s", "3.35 TB/s", "295 FLOP/B", "ffn.gate_up_proj", "lm_head"):
        assert text in ran.out


def test_json_holds_every_operator_of_every_setting():
    ran = perfmodel(*CASE, "--batch", "1,8", "-H", "l40s", "--json")
    assert ran.status == 0
    record = ran.record
    assert (record["path"], record["settings"]) == ("batch", [1, 8])
    assert [device["hardware"] for device in record["devices"]] == ["h100-sxm", "l40s"]
    for device in record["devices"]:
        cases = {(o["phase"], o["setting"]) for o in device["operators"]}
        assert cases == {(phase, n) for phase in ("prefill", "decode") for n in (0, 1)}
    last = {o["name"]: o for o in record["devices"][0]["operators"] if o["setting"] == 1}
    qkv = last["qkv_proj"]
    assert qkv["arithmetic_intensity"] == pytest.approx(qkv["flops"] / qkv["bytes"])


def test_own_calls_are_in_the_record_and_the_shipped_ones_too(tmp_path):
    table = tmp_path / "gemm.csv"
    table.write_text(
        "dtype,status,quality,latency_us,flops,bytes\nbfloat16,ok,clean,50,4e6,2e6\n"
        "float32,ok,clean,50,4e6,2e6\n"
    )
    ran = perfmodel(*CASE, "--measured", table, "--json")
    assert [c["flops_per_s"] for c in ran.record["measured"]] == [pytest.approx(80e9)]
    shipped = perfmodel("roofline", "smollm2-135m", "-H", "epyc-zen5-1-thread", "--json")
    assert len(shipped.record["measured"]) > 50


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_a_picture_is_whole_and_kept(tmp_path, suffix):
    path = tmp_path / f"roof.{suffix}"
    ran = perfmodel(*CASE, "--out", path)
    assert (ran.status, ran.out) == (0, "")
    begins = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[suffix]
    first = path.read_bytes()
    assert first.startswith(begins)
    refused = perfmodel(*CASE, "--out", path)
    assert refused.status == 2
    assert "--force" in refused.err
    assert perfmodel(*CASE, "--out", path, "--force").status == 0
    assert path.read_bytes() == first  # the same numbers make the same file
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_text_of_an_svg_stays_text(tmp_path):
    path = tmp_path / "roof.svg"
    assert perfmodel(*CASE, "--out", path).status == 0
    words = "".join(ET.parse(path).getroot().itertext())  # noqa: S314  (our own file)
    assert "ffn.gate_up_proj" in words
    assert "989 TFLOP/s" in words


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "roof.gif"], ".svg"),
        (["--out", "nowhere/roof.svg"], "no folder"),
        (["--size", "9"], "WIDTHxHEIGHT"),
        (["--size", "900x6"], "WIDTHxHEIGHT"),
        (["--batch", "1,two"], "two"),
        (["--batch", "1,2", "--prompt", "64,128"], "path"),
        (["--measured", "nowhere"], "calibrate run"),
        (["-H", "l40s", "--measured", "nowhere"], "one --hardware"),
    ],
)
def test_faults_are_one_line(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = perfmodel(*CASE, *arguments)
    assert ran.status == 2
    assert said in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_what_doesnt_fit_is_shown_and_said():
    ran = perfmodel("roofline", "llama-3.1-70b", "-H", "h100-sxm", "--json")
    assert ran.status == 2
    assert "--tp" in ran.err
    assert json.loads(ran.out)["devices"]


def test_one_setting_of_a_path_that_doesnt_fit_is_named():
    ran = perfmodel(*CASE, "--prompt", "8192", "--batch", "1,100000", "--json")
    assert ran.status == 2
    assert "--batch 100000" in ran.err
