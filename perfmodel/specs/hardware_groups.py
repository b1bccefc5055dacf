"""The groups of a hardware profile: each figure with its unit, its range and its meaning.

Keys carry their unit and are human-sized (``bandwidth_gb_s: 3350``); `Hardware` turns them into
SI. Peak rates are dense, links per direction and per device, GB are 10⁹ bytes, GiB are 2³⁰.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from perfmodel.specs.base import Spec

RATE = "TFLOP/s"


def quantity(default: Any, unit: str, low: float, high: float, meaning: str) -> Any:
    """A number of a profile; ``...`` as its default makes it mandatory."""
    return Field(default, ge=low, le=high, description=meaning, json_schema_extra={"unit": unit})


def text(default: Any, meaning: str, **limits: Any) -> Any:
    """A text of a profile, never empty."""
    return Field(default, min_length=1, max_length=2000, description=meaning, **limits)


def rate(meaning: str) -> Any:
    """A peak rate, absent when the chip has no such path."""
    return quantity(None, RATE, 0.01, 1_000_000, meaning)


class Group(Spec):
    """Figures that share a source. ``recalled`` names those that no source was read for."""

    source: str | None = text(None, "where the figures were read, for a reader to find again")
    recalled: tuple[str, ...] = Field(
        (),
        description="list of fields given from memory: verify them before relying on them",
    )

    @model_validator(mode="before")
    @classmethod
    def lists_as_tuples(cls, data: Any) -> Any:
        """YAML has lists only; strict validation wants the tuple that a frozen record holds."""
        if isinstance(data, dict) and isinstance(data.get("recalled"), list):
            return {**data, "recalled": tuple(data["recalled"])}
        return data

    @model_validator(mode="after")
    def recalled_are_figures(self) -> Self:
        """Refuse a recalled name that is no figure of the group, or one that isn't given."""
        for name in self.recalled:
            if name not in self.figures():
                given = ", ".join(self.figures()) or "none"
                raise ValueError(f"recalled names {name!r:.60}, which isn't given here: {given}")
        return self

    def figures(self) -> dict[str, Any]:
        """The facts that the group gives, by field."""
        fields = type(self).model_fields.keys() - {"source", "recalled"}
        values = {name: getattr(self, name) for name in type(self).model_fields if name in fields}
        return {name: value for name, value in values.items() if value is not None}


class Peaks(Group):
    """Dense peak rates, never the 2:4-sparse ones; a rate the chip has no path for is absent."""

    fp64: float | None = rate("FP64 on the vector units")
    fp64_matrix: float | None = rate("FP64 on the matrix units")
    fp32: float | None = rate("FP32 on the vector units")
    fp32_matrix: float | None = rate("FP32 on the matrix units")
    tf32: float | None = rate("TF32 matrix rate")
    fp16: float | None = rate("FP16 matrix rate with FP32 accumulation")
    fp16_accumulate: float | None = rate("FP16 matrix rate with FP16 accumulation, if higher")
    bf16: float | None = rate("BF16 matrix rate with FP32 accumulation")
    fp8: float | None = rate("FP8 matrix rate with FP32 accumulation")
    int8: float | None = rate("INT8 matrix rate")
    fp6: float | None = rate("FP6 matrix rate")
    fp4: float | None = rate("FP4 matrix rate (MXFP4, NVFP4)")
    int4: float | None = rate("INT4 matrix rate")

    @model_validator(mode="after")
    def at_least_one(self) -> Self:
        """Refuse a profile without any rate."""
        if not self.figures():
            raise ValueError("give at least one peak, for example bf16")
        return self


class Memory(Group):
    """Device memory and the caches before it."""

    type: str | None = text(None, "HBM3e, GDDR6, LPDDR5X, …")
    capacity_gb: float = quantity(..., "GB", 0.5, 20_000, "capacity as the vendor prints it")
    usable_gib: float | None = quantity(
        None, "GiB", 0.25, 20_000, "what a program sees in all, as PyTorch or the driver report it"
    )
    bandwidth_gb_s: float = quantity(..., "GB/s", 5, 100_000, "peak device-memory bandwidth")
    l2_mb: float | None = quantity(None, "MB", 0.01, 10_000, "last-level on-chip cache")
    l2_gb_s: float | None = quantity(
        None, "GB/s", 5, 1_000_000, "rate of reads that stay in it, as a benchmark measured it"
    )
    shared_kb_per_sm: float | None = quantity(
        None, "KB", 1, 100_000, "shared memory and L1 of one SM or CU"
    )


class Compute(Group):
    """The units behind the peaks."""

    sm_count: int | None = quantity(
        None, "units", 1, 100_000, "SMs, CUs, Xe cores, tensor cores or CPU cores"
    )
    boost_mhz: float | None = quantity(None, "MHz", 100, 10_000, "clock that the peaks hold for")
    tdp_w: float | None = quantity(None, "W", 1, 50_000, "power limit of the device")


class Link(Group):
    """The direct link between devices; a profile without one uses PCIe."""

    kind: str = text(..., "NVLink4, xGMI, ICI, …; a bridge says so")
    gb_s_per_direction: float = quantity(
        ..., "GB/s", 0.5, 20_000, "per direction and device, all its ports together"
    )
    gb_s_per_pair: float | None = quantity(
        None, "GB/s", 0.5, 20_000, "what one pair reaches where the fabric isn't switched"
    )
    domain_gpus: int = quantity(
        ..., "devices", 1, 100_000, "devices that reach each other over it: 8 HGX, 2 a bridge"
    )
    topology: str | None = text(None, "how the devices are connected")


class Pcie(Group):
    """The host interface."""

    generation: int = quantity(..., "–", 1, 8, "PCI Express generation")
    lanes: int = quantity(16, "lanes", 1, 128, "width")
    gb_s_per_direction: float = quantity(..., "GB/s", 0.1, 1_000, "per direction, before protocol")
    peer_access: bool | None = Field(
        None, description="false where devices exchange through the host's memory alone"
    )


class Network(Group):
    """The share of the network between nodes that one device has."""

    gb_s_per_gpu: float = quantity(..., "GB/s", 0.01, 2_000, "per direction; 50 is 400 Gbit/s")


class Price(Group):
    """What renting one device costs, as a range with its date."""

    usd_per_hour_low: float = quantity(..., "USD/h", 0.001, 1_000, "cheap offers")
    usd_per_hour_high: float = quantity(..., "USD/h", 0.001, 1_000, "large clouds, on demand")
    date: str | None = text(None, "when, as 2026-05", pattern=r"^\d{4}(-\d{2}){0,2}$")
