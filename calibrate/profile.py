"""A device's measured profile: the same YAML as a datasheet's, from the ceilings of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from calibrate.roof import NAMES, Roof
from calibrate.rows import read_rows, slug
from calibrate.runs.registry import CEILINGS
from perfmodel.errors import InputError
from perfmodel.specs.hardware import Hardware
from perfmodel.units import GIB, GIGA, MEGA, TERA

QUIET = 0.05
"""Share of the machine that others may use before a profile mentions them."""
LOWEST_TFLOPS = 0.01
"""What a profile can hold; a slower path isn't one that anybody computes with."""


def measured_profile(out: Path, total_bytes: int, cache_bytes: int) -> dict[str, Any]:
    """The profile of the device whose ceilings lie in ``out``, as the data of its YAML file.

    Args:
        out: folder of a run.
        total_bytes: device memory.
        cache_bytes: last-level cache.

    Raises:
        InputError: no ceiling has been measured, or none that a profile can hold.
    """
    rows = {name: read_rows(out / f"{name}.csv") for name in CEILINGS}
    good = [row for family in rows.values() for row in family if row["status"] == "ok"]
    roof = Roof.measured(rows)
    peaks = {
        NAMES[dtype]: _digits(peak / TERA)
        for dtype, peak in roof.peaks.items()
        if dtype in NAMES and peak >= LOWEST_TFLOPS * TERA
    }
    if not peaks or not roof.bandwidth:
        raise InputError(f"{out}: no ceilings measured: run families matmul_peak and bandwidth")
    return _profile(good, peaks, roof.bandwidth, (total_bytes, cache_bytes))


def _profile(
    rows: Sequence[Mapping[str, str]], peaks: dict[str, float], bandwidth: float,
    sizes: tuple[int, int],
) -> dict[str, Any]:  # fmt: skip
    row, (total, cache) = rows[-1], sizes
    source = source_of(rows)
    units = ("thread" if row["kind"] == "cpu" else "SM") + ("s" if row["threads"] != "1" else "")
    compute: dict[str, Any] = {"sm_count": int(row["threads"])}
    clocks = [float(r["clock_mhz"]) for r in rows if r["clock_mhz"]]
    if clocks:
        compute["boost_mhz"] = round(max(clocks), 1)
    data: dict[str, Any] = {
        "schema": 1,
        "name": f"{slug(row['device'])}-{row['threads']}-{units.lower()}-measured",
        "title": f"{row['device']}, {row['threads']} {units}, measured",
        "peaks_tflops": {**peaks, "source": source},
        "memory": {
            "capacity_gb": round(total / GIGA, 3),
            "usable_gib": round(total / GIB, 3),
            "bandwidth_gb_s": _digits(bandwidth / GIGA),
            "l2_mb": round(cache / MEGA, 3),
            "source": f"{source}; the best of copy, read and triad; capacities from the system",
        },
        "compute": {**compute, "source": f"{row['software']}; {row['host']}"},
        "notes": (
            "Ceilings that torch reached here, not a datasheet's: the best sample of a few large "
            f"matrix products and streams. {disturbance(rows)}"
        ),
    }
    Hardware.parse(data, "measured profile")
    return data


def source_of(rows: Sequence[Mapping[str, str]]) -> str:
    """Who measured, when, with what."""
    dates = sorted(row["date"][:10] for row in rows)
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    last = rows[-1]
    return (
        f"measured by perfmodel {last['perfmodel_version']} calibrate run, {when}, "
        f"torch {last['framework_version']}"
    )


def disturbance(rows: Sequence[Mapping[str, str]]) -> str:
    """What a reader should know of the other jobs that ran meanwhile."""
    busy = max((float(row["others_busy"]) for row in rows if row["others_busy"]), default=0.0)
    if any(row["quality"] == "disturbed" for row in rows):
        return (
            f"DISTURBED: other jobs used up to {busy:.0%} of the machine and threads waited for "
            "cores, so the rates are too low; measure again alone, or with --threads 1."
        )
    if busy < QUIET:
        return "No other job was seen meanwhile."
    return (
        f"Other jobs used up to {busy:.0%} of the machine meanwhile; waits for the core aren't "
        "counted, shared caches and memory channels are."
    )


def write_profile(data: Mapping[str, Any], path: Path) -> None:
    """Write a profile as YAML."""
    text = yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=96)
    path.write_text(text, encoding="utf-8")


def _digits(value: float) -> float:
    return float(f"{value:.4g}")
