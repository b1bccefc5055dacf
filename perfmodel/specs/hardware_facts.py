"""A hardware profile fact by fact, each with its unit and its source, for people to read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perfmodel.specs.hardware import Hardware
from perfmodel.specs.hardware_schema import unit, walk

UNIT_SUFFIX = re.compile(r"_(usd_per_hour|tflops|gb_s|gb|gib|mb|kb|mhz|w)(?=_|$)")
"""The unit in a key, which stands beside the figure instead."""
ABOUT = ("vendor", "architecture", "compute_capability", "year")
"""Facts that stand outside the groups."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure of a profile, in the unit of its key."""

    group: str
    """The group's key; empty for what stands outside the groups."""
    label: str
    """``memory.bandwidth_gb_s`` in words, its unit left out."""
    value: Any
    unit: str
    """Empty for what has none."""
    recalled: bool
    """Whether it was given from memory."""

    @property
    def shown(self) -> str:
        """The figure as it was written, thousands separated, with its unit."""
        if not isinstance(self.value, int | float) or not self.group:
            return str(self.value)
        return f"{self.value:,.10g} {self.unit}".rstrip()


def label_of(group: str, name: str = "") -> str:
    """A group's key, or a field's with it, in words.

    >>> label_of("peaks_tflops"), label_of("memory", "l2_mb"), label_of("memory", "l2_gb_s")
    ('peaks', 'memory l2', 'memory l2 bandwidth')
    """
    if name.endswith("_gb_s") and not name.startswith("bandwidth"):
        name = f"{name}_bandwidth"  # a size may have the same name
    return " ".join(UNIT_SUFFIX.sub("", f"{group}_{name}").replace("_", " ").split())


def hardware_facts(hardware: Hardware) -> Iterator[Fact]:
    """Every fact of a profile, in the order of its schema."""
    units = {key: unit(field) for key, field in walk(Hardware)}
    profile = hardware.model_dump(mode="json", by_alias=True, exclude_none=True)
    for name in ABOUT:
        if name in profile:
            recalled = name in hardware.recalled
            yield Fact("", name.replace("_", " "), profile[name], "", recalled)
    for group, fields in profile.items():
        if not isinstance(fields, dict):
            continue
        for name, value in fields.items():
            if name not in {"source", "recalled"}:
                own = units.get(f"{group}.{name}", "").replace("–", "")
                recalled = name in fields.get("recalled", [])
                yield Fact(group, label_of(group, name), value, own, recalled)
