"""Shipped profiles are clean, and each planted mistake is seen by the check meant for it alone."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.specs.hardware import Hardware, hardware_dir, hardware_names, load_hardware
from perfmodel.specs.hardware_checks import CHECKS, check_hardware
from perfmodel.specs.yaml_file import read_yaml


def profile(name: str) -> dict[str, Any]:
    return read_yaml(hardware_dir() / f"{name}.yaml")


def planted(name: str, faults: dict[str, Any]) -> Hardware:
    """A copy of a shipped profile with other values; None takes a key out."""
    data = profile(name)
    for key, value in faults.items():
        group, _, field = key.rpartition(".")
        place = data[group] if group else data
        if value is None:
            del place[field]
        else:
            place[field] = value
    return Hardware.parse(data, name)


@pytest.mark.parametrize("name", hardware_names())
def test_a_shipped_profile_is_clean(name):
    assert check_hardware(load_hardware(name)) == []


@pytest.mark.parametrize("name", hardware_names())
def test_a_shipped_profile_gives_a_source_for_every_group(name):
    groups = [value for value in profile(name).values() if isinstance(value, dict)]
    assert all(group["source"] for group in groups)


FAULTS = [
    ("missing-sources", "link.source", "h100-sxm", {"link.source": None}),
    (
        # 2 × 989.4, 2 × 1979: the figures that the datasheet prints first
        "sparse-peaks", "peaks_tflops.fp16", "h100-sxm",
        {f"peaks_tflops.{kind}": rate for kind, rate in
         {"fp16": 1979, "bf16": 1979, "fp8": 3958, "int8": 3958}.items()},
    ),
    (
        # GeForce with FP16 accumulation taken for the usual rate
        "sparse-peaks", "peaks_tflops.bf16", "rtx-3090",
        {"peaks_tflops.fp16": 142.3, "peaks_tflops.bf16": 142.3},
    ),
    ("lacking-formats", "peaks_tflops.fp8", "a100-sxm-80gb", {"peaks_tflops.fp8": 624}),
    ("lacking-formats", "peaks_tflops.bf16", "v100-sxm-32gb", {"peaks_tflops.bf16": 125}),
    ("lacking-formats", "peaks_tflops.bf16", "t4", {"peaks_tflops.bf16": 65}),
    ("lacking-formats", "peaks_tflops.int4", "h200-sxm", {"peaks_tflops.int4": 3958}),
    ("lacking-formats", "peaks_tflops.fp4", "mi300x", {"peaks_tflops.fp4": 5229.8}),
    ("format-ratios", "peaks_tflops.fp8", "h100-sxm", {"peaks_tflops.fp8": 3958}),
    ("format-ratios", "peaks_tflops.int8", "l40s", {"peaks_tflops.int8": 1466}),
    ("format-ratios", "peaks_tflops.fp4", "b200-sxm", {"peaks_tflops.fp4": 18_000}),
    ("precision-order", "peaks_tflops.tf32", "a100-sxm-80gb", {"peaks_tflops.tf32": 624}),
    ("precision-order", "peaks_tflops.fp64", "h100-sxm", {"peaks_tflops.fp64": 134}),
    (
        "bidirectional-link", "link.gb_s_per_direction", "a100-sxm-80gb",
        {"link.gb_s_per_direction": 600},
    ),
    (
        "bidirectional-link", "link.gb_s_per_direction", "gb200",
        {"link.gb_s_per_direction": 1800},
    ),
    ("link-pairs", "link.gb_s_per_pair", "mi300x", {"link.gb_s_per_pair": 512}),
    ("link-pairs", "link.domain_gpus", "h100-nvl", {"link.domain_gpus": 8}),
    ("pcie-rate", "pcie.gb_s_per_direction", "l4", {"pcie.gb_s_per_direction": 64}),
    ("network-rate", "network.gb_s_per_gpu", "h100-sxm", {"network.gb_s_per_gpu": 400}),
    ("usable-memory", "memory.usable_gib", "h100-sxm", {"memory.usable_gib": 80}),
    ("usable-memory", "memory.usable_gib", "b200-sxm", {"memory.usable_gib": 192}),
    ("usable-memory", "memory.usable_gib", "l40s", {"memory.usable_gib": 4.8}),
    ("memory-type", "memory.bandwidth_gb_s", "l40s", {"memory.bandwidth_gb_s": 3350}),
    (
        "memory-type", "memory.bandwidth_gb_s", "h100-sxm",
        {"memory.bandwidth_gb_s": 800, "memory.l2_gb_s": None},
    ),
    (
        "ridge-point", "memory.bandwidth_gb_s", "h100-sxm",
        {"memory.bandwidth_gb_s": 335, "memory.type": "DRAM", "memory.l2_gb_s": None},
    ),
    ("cache-size", "memory.l2_mb", "t4", {"memory.l2_mb": 4096}),
    ("cache-rate", "memory.l2_gb_s", "a100-sxm-80gb", {"memory.l2_gb_s": 540}),
    ("price-order", "price.usd_per_hour_low", "h100-sxm", {"price.usd_per_hour_low": 9}),
    ("price-order", "price.date", "h100-sxm", {"price.date": None}),
    ("release-year", "year", "h100-sxm", {"year": 2017}),
]  # fmt: skip


@pytest.mark.parametrize(("check", "field", "name", "faults"), FAULTS)
def test_a_planted_fault_is_seen_by_its_check_alone(check, field, name, faults):
    findings = check_hardware(planted(name, faults))
    assert {finding.check for finding in findings} == {check}
    assert field in {finding.field for finding in findings}
    assert all("\n" not in finding.message for finding in findings)


def test_every_check_has_a_planted_fault():
    names = {check.__name__.replace("_", "-") for check in CHECKS}
    assert {check for check, *_ in FAULTS} == names


def test_a_short_profile_lacks_only_sources():
    data = {
        "name": "x",
        "peaks_tflops": {"bf16": 400},
        "memory": {"capacity_gb": 64, "bandwidth_gb_s": 2000},
    }
    findings = check_hardware(Hardware.parse(data, "x"))
    assert [finding.check for finding in findings] == ["missing-sources", "missing-sources"]
