"""The KV store on the command line: what is shown, and combinations that are refused."""

import json

import pytest

from tests.cli.runner import perfmodel

OK = ("estimate", "gpt-oss-20b", "-H", "h100-sxm", "-b", "4", "-p", "1000", "-o", "24")
ALL = (
    "--cached-prefix", "500", "--prefix-share", "0.5", "--kv-manager", "hybrid",
    "--kv-offload", "0.25", "--kv-offload-to", "ssd", "--ssd-gb-s", "6", "--cpu-offload-gb", "2",
    "--offload-overlap", "0.5",
)  # fmt: skip


def test_the_flags_stand_in_the_json():
    ran = perfmodel(*OK, *ALL, "--json")
    assert ran.status == 0
    record = json.loads(ran.out)
    deployment = record["deployment"]
    assert record["workload"]["prefix_share"] == 0.5
    for name, value in {"kv_manager": "hybrid", "kv_offload": 0.25, "kv_offload_to": "ssd",
                        "ssd_gb_s": 6.0, "cpu_offload_gb": 2.0,
                        "offload_overlap": 0.5}.items():  # fmt: skip
        assert deployment[name] == value
    assert record["memory"]["kv_outside_bytes"] > 0
    names = {row["name"] for row in record["decode"]["operators"]}
    assert "offload.transfer" in names
    store = record["kv_store"]
    assert {pool["manager"] for pool in store["pools"]} == {"hybrid", "uniform"}
    assert store["swap"]["recompute_s"] > 0


def test_streaming_says_its_sinks_and_its_risk():
    ran = perfmodel(*OK, "--kv-window", "200", "--json")
    record = json.loads(ran.out)
    assert record["deployment"]["kv_sinks"] == 4
    assert any("--kv-window 200" in note for note in record["warnings"])


def test_memory_explained():
    ran = perfmodel(*OK, "--explain", "memory", "--prefill-chunk", "256")
    assert ran.status == 0
    for shown in ("ideal", "GPU KV cache size", "contiguous", "hybrid manager off",
                  "Sequence back from host", "Chunked prefill", "last chunk"):  # fmt: skip
        assert shown in ran.out


def test_what_lies_outside_is_shown():
    ran = perfmodel(*OK, *ALL, "--explain", "memory")
    assert ran.status == 0
    assert "on SSD" in ran.out
    assert "weights in host memory" in ran.out


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--kv-sinks", "4"), "--kv-window"),
        (("--kv-budget", "0"), "--kv-budget: out of range"),
        (("--kv-offload", "1.5"), "--kv-offload"),
        (("--kv-offload", "half"), "'half' is no number"),
        (("--kv-offload-to", "ssd"), "--ssd-gb-s"),
        (("--prefix-share", "0.5"), "--prefix-share"),
        (("--prefix-share", "2", "--cached-prefix", "10"), "--prefix-share"),
        (("--kv-manager", "none"), "--kv-manager"),
        (("--offload-overlap", "nan"), "--offload-overlap"),
        (("--kv-manager", "hybrid", "--kv-layout", "flat"), "--kv-layout paged"),
    ],
)
def test_bad_flags_are_one_line_and_status_2(flags, named):
    ran = perfmodel(*OK, *flags)
    assert ran.status == 2
    assert ran.out == ""
    assert len(ran.err.strip().splitlines()) == 1, ran.err
    assert named in ran.err
