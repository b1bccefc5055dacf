"""Profiles: all load, say what datasheets say in SI units, and bad ones are refused in one line."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from perfmodel.errors import InputError, UnknownNameError
from perfmodel.specs.hardware import (
    ALIASES,
    ARITHMETICS,
    Hardware,
    hardware_dir,
    hardware_names,
    load_hardware,
)
from perfmodel.specs.hardware_schema import schema_table
from perfmodel.specs.yaml_file import parse_yaml
from tests.data import data_dir

SMALL = "name: x\npeaks_tflops: {bf16: 400}\nmemory: {capacity_gb: 64, bandwidth_gb_s: 2000}\n"


def parsed(text: str) -> Hardware:
    return Hardware.parse(parse_yaml(text, "x.yaml"), "x.yaml")


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parsed(text)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("x.yaml: ")
    return message


@pytest.mark.parametrize("name", hardware_names())
def test_a_shipped_profile_loads_under_its_own_name(name):
    hardware = load_hardware(name)
    assert hardware.name == name
    assert hardware.title
    assert hardware.vendor
    assert hardware.year
    assert any(hardware.peak(kind) for kind in ARITHMETICS)
    # Only a system on one chip has no way to another device, and one that was measured alone.
    alone = hardware.vendor == "Apple" or "measured" in hardware.title
    assert alone or hardware.link_bandwidth > 0


def test_the_folder_holds_what_people_have():
    assert len(hardware_names()) >= 45
    for name in ("h100-sxm", "h100-pcie", "h200-sxm", "a100-sxm-80gb", "b200-sxm", "l40s"):
        assert name in hardware_names()
    assert set(ALIASES.values()) <= set(hardware_names())
    assert not set(ALIASES) & set(hardware_names())


# Dense peaks in TFLOP/s as NVIDIA's datasheets give them (half of the 2:4-sparse figure that
# they print first), and the ridge point: peak over bandwidth, in FLOP per byte.
@pytest.mark.parametrize(
    ("name", "bf16", "fp8", "ridge"),
    [
        ("a100-sxm-80gb", 312, None, 153.0),  # 312e12 / 2.039e12
        ("a100-sxm-40gb", 312, None, 200.6),  # 312e12 / 1.555e12
        ("h100-sxm", 989, 1979, 295.3),  # 989.4e12 / 3.35e12
        ("h100-pcie", 756, 1513, 378.3),  # 756.5e12 / 2.0e12
        ("l40s", 362, 733, 419.0),  # 362e12 / 0.864e12
        ("l4", 121, 242, 403.3),  # 121e12 / 0.3e12
        ("b200-sxm", 2250, 4500, 281.3),  # 2250e12 / 8e12
        ("h200-sxm", 989, 1979, 206.1),  # 989.4e12 / 4.8e12
        ("mi300x", 1307, 2615, 246.7),  # 1307.4e12 / 5.3e12
    ],
)
def test_peaks_are_dense_and_ridge_points_follow(name, bf16, fp8, ridge):
    hardware = load_hardware(name)
    peak = hardware.peak("bf16")
    assert peak is not None
    assert peak == pytest.approx(bf16 * 1e12, rel=1e-3)
    assert hardware.peak("fp8") == (None if fp8 is None else pytest.approx(fp8 * 1e12, rel=1e-3))
    assert peak / hardware.memory_bandwidth == pytest.approx(ridge, rel=1e-3)


def test_quantities_come_out_in_si_units():
    hardware = load_hardware("h100-sxm")
    assert hardware.peak("fp32") == 67e12
    assert hardware.peak("tf32") == 494.5e12
    assert hardware.peak("fp4") is None
    assert hardware.memory_bandwidth == 3.35e12
    assert hardware.capacity_bytes == int(79.18 * 2**30)
    assert isinstance(hardware.capacity_bytes, int)
    assert hardware.l2_bytes == 50e6
    assert hardware.sm_count == 132
    assert hardware.clock_hz == 1.83e9
    assert hardware.link_bandwidth == 450e9
    assert hardware.link_pair_bandwidth == 450e9
    assert hardware.link_domain == 8
    assert hardware.network_bandwidth == 50e9
    assert hardware.pcie_bandwidth == 64e9
    assert hardware.tdp_w == 700
    low, high = hardware.price_usd_per_hour or (0, 0)
    assert 0 < low <= high


def test_what_connects_devices_differs():
    assert load_hardware("gb200").link_domain == 72
    assert load_hardware("h100-nvl").link_domain == 2
    card = load_hardware("l40s")  # without a link, PCIe is the way to another device
    assert (card.link_domain, card.link_bandwidth) == (1, 32e9)
    mesh = load_hardware("mi300x")  # seven links of 64 GB/s, one a peer
    assert (mesh.link_bandwidth, mesh.link_pair_bandwidth) == (448e9, 64e9)


def test_a_short_profile_of_ones_own_is_enough(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(SMALL)
    hardware = load_hardware(file)
    assert load_hardware(str(file)) == hardware
    assert hardware.capacity_bytes == 64_000_000_000
    for missing in ("l2_bytes", "sm_count", "clock_hz", "tdp_w", "price_usd_per_hour"):
        assert getattr(hardware, missing) is None
    assert hardware.network_bandwidth is None
    assert hardware.link_domain == 1
    with pytest.raises(InputError, match="add link or pcie"):
        _ = hardware.link_bandwidth


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("2000", "4.8e12", ("memory.bandwidth_gb_s", "text", "write 4.8e+12", "GB/s")),
        ("2000", "1e9", ("memory.bandwidth_gb_s", "text", "write 1.0e+9")),
        ("2000", "2000 GB/s", ("memory.bandwidth_gb_s", "bare number")),
        ("2000", "3.35e+12", ("memory.bandwidth_gb_s", "5 to 100,000 GB/s")),
        ("2000", "3.35", ("memory.bandwidth_gb_s", "5 to 100,000 GB/s")),
        ("2000", "-1", ("memory.bandwidth_gb_s", "-1", "5 to 100,000 GB/s")),
        ("2000", "true", ("memory.bandwidth_gb_s", "True")),
        ("2000", ".nan", ("memory.bandwidth_gb_s", "nan")),
        ("2000", ".inf", ("memory.bandwidth_gb_s", "inf")),
        ("2000", "", ("memory.bandwidth_gb_s", "empty value")),
        ("2000", "[1]", ("memory.bandwidth_gb_s", "a list")),
        ("64", "64000000000", ("memory.capacity_gb", "0.5 to 20,000 GB")),
        ("64", "9" * 90, ("memory.capacity_gb", "0.5 to 20,000 GB")),
        ("bandwidth_gb_s", "bandwith_gb_s", ("memory.bandwith_gb_s", "mean bandwidth_gb_s?")),
        (", bandwidth_gb_s: 2000", "", ("memory.bandwidth_gb_s", "missing")),
        ("400", "400e15", ("peaks_tflops.bf16", "write 400.0e+15")),
        ("{bf16: 400}", "{}", ("peaks_tflops", "at least one")),
        ("{bf16: 400}", "3", ("peaks_tflops", "keys fp64")),
        ("400", "400, recalled: [fp8]", ("peaks_tflops", "'fp8'", "isn't given")),
        ("400", "400, recalled: bf16", ("peaks_tflops.recalled", "list")),
        ("name: x\n", "", ("name", "missing")),
        ("name: x", "name: My Card", ("name", "lower case")),
        ("name: x", "name: 7", ("name",)),
        ("name: x", "name: x\nschema: 2", ("schema", "1")),
        ("name: x", "name: x\ncolour: red", ("colour", "unknown key", "known here: schema, name")),
        ("name: x", "name: x\nschema_: 1", ("schema_", "did you mean schema?")),
        ("name: x", "name: x\ncompute_capability: 9.0", ("compute_capability", "quotes")),
        ("name: x", "name: x\ncompute: {sm_count: 1.5}", ("compute.sm_count",)),
        ("name: x", "name: x\nlink: {kind: NVLink4, domain_gpus: 8}", ("link.gb_s_per_dir",)),
        ("name: x", "name: x\nyear: 1999", ("year", "2010 to 2100")),
    ],
)
def test_bad_input_names_file_field_and_remedy(old, new, words):
    message = refusal(SMALL.replace(old, new, 1))
    for word in words:
        assert word in message


def test_names_are_forgiving_and_ambiguity_is_not_guessed():
    assert load_hardware("H100-SXM").name == "h100-sxm"
    assert load_hardware("RTX 4090").name == "rtx-4090"
    assert load_hardware("a100-80gb").name == "a100-sxm-80gb"
    assert load_hardware("A100-SXM4-80GB").name == "a100-sxm-80gb"
    assert load_hardware("H100-SXM-80GB").name == "h100-sxm"
    assert load_hardware("L40S-48GB").name == "l40s"
    with pytest.raises(UnknownNameError, match="h100-sxm"):
        load_hardware("h100-sxm-96gb")  # another part than the 80 GB one
    with pytest.raises(UnknownNameError, match="h100-nvl, h100-pcie, h100-sxm"):
        load_hardware("h100")
    with pytest.raises(UnknownNameError, match="mi300x"):
        load_hardware("mi30x")
    with pytest.raises(UnknownNameError, match="hardware list"):
        load_hardware("abacus")
    with pytest.raises(InputError, match="no such file"):
        load_hardware("./h100-sxm")
    with pytest.raises(UnknownNameError, match="known: fp64, fp32"):
        load_hardware("h100-sxm").peak("fp3")


def test_the_readme_holds_the_schema():
    readme = (hardware_dir() / "README.md").read_text(encoding="utf-8")
    assert readme.endswith(schema_table(Hardware))


def test_the_example_in_the_readme_is_a_profile():
    readme = (hardware_dir() / "README.md").read_text(encoding="utf-8")
    example = readme.split("```yaml\n")[1].split("```")[0]
    assert parsed(example).peak("bf16") == 400e12


# Rows of the reference table whose names aren't ours in lower case; a part that software sees as
# two devices has half of its row.
ROWS = {
    "a100-sxm-40gb": "A100-SXM4-40GB",
    "a100-sxm-80gb": "A100-SXM4-80GB",
    "dgx-spark": "DGX-Spark-GB10",
    "epyc-9654": "EPYC-9654 (1 socket)",
    "h100-nvl": "H100-NVL-94GB",
    "h100-pcie": "H100-PCIe-80GB",
    "h100-sxm": "H100-SXM5-80GB",
    "h20": "H20-96GB",
    "h200-nvl": "H200-NVL-141GB",
    "h200-sxm": "H200-SXM5-141GB",
    "h800-sxm": "H800-SXM5-80GB",
    "rtx-pro-6000": "RTX-PRO-6000-Blackwell-WS",
    "v100-sxm-16gb": "V100-SXM2-16GB",
    "v100-sxm-32gb": "V100-SXM2-32GB",
    "xeon-8480-plus": "Xeon-8480+ (1 socket)",
}
HALVES = {"mi250x", "max-1550"}
FIGURES = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp4": "fp4", "int8": "int8_tops"}


@pytest.mark.parametrize("name", hardware_names())
def test_figures_equal_the_reference_table(name):
    folder = data_dir()
    if folder is None:
        pytest.skip("no reference data: set PERFMODEL_DATA")
    with (folder / "hardware.csv").open(encoding="utf-8") as stream:
        rows = {row["name"].lower(): row for row in csv.DictReader(stream)}
    if "measured" in (load_hardware(name).title or ""):
        pytest.skip("its figures are measured, not a datasheet's")
    row = rows[ROWS.get(name, name).lower()]
    hardware, parts = load_hardware(name), 2 if name in HALVES else 1
    for kind, column in FIGURES.items():
        expected = float(row[column]) * 1e12 / parts if row[column] else None
        assert hardware.peak(kind) == (expected and pytest.approx(expected, rel=1e-6)), kind
    bandwidth = float(row["mem_bw_gbs"]) * 1e9 / parts
    assert hardware.memory_bandwidth == pytest.approx(bandwidth, rel=1e-6)


JUNK: tuple[Any, ...] = (
    None, True, "", "12", "4.8e12", -1, 0, 1e300, float("nan"), 10**400, [], {}, [1], {"a": 1},
    "x" * 5000, "\x07\n\x00",
)  # fmt: skip


def mutated(data: dict[str, Any], chance: random.Random) -> None:
    """Spoil one place of a profile."""
    place = data
    inner = [value for value in data.values() if isinstance(value, dict) and value]
    if inner and chance.random() < 0.7:
        place = chance.choice(inner)
    key = chance.choice(list(place))
    if chance.random() < 0.3:
        del place[key]
    elif chance.random() < 0.2:
        place[chance.choice(["", "bf16 ", "x", key + "_"])] = place.pop(key)
    else:
        place[key] = chance.choice(JUNK)


def test_no_mutation_gets_past_as_another_exception():
    chance = random.Random(20)  # noqa: S311 (a reproducible fuzz, no secret)
    texts = [
        (Path(str(hardware_dir())) / f"{name}.yaml").read_text(encoding="utf-8")
        for name in ("h100-sxm", "mi300x", "rtx-4090", "m2-ultra")
    ]
    loaded = [yaml.safe_load(text) for text in texts]
    messages = []
    for turn in range(2000):
        try:
            if turn % 4:
                data = {
                    key: dict(value) if isinstance(value, dict) else value
                    for key, value in chance.choice(loaded).items()
                }
                for _ in range(chance.randint(1, 3)):
                    mutated(data, chance)
                Hardware.parse(data, "fuzz.yaml")
            else:
                text = bytearray(chance.choice(texts).encode()[:600])
                for _ in range(chance.randint(1, 8)):
                    text[chance.randrange(len(text))] = chance.randrange(256)
                parsed(text.decode("utf-8", errors="replace"))
        except InputError as error:
            messages.append(str(error))
    assert len(messages) > 500
    assert not [message for message in messages if "\n" in message or len(message) > 1000]
