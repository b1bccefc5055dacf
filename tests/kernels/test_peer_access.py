"""Exchanges measured where devices don't reach each other price such machines alone."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.kernels.calibration import load_calibration
from perfmodel.kernels.choice import choose_calibration
from perfmodel.kernels.timing import DeviceModel
from perfmodel.operators.record import Collective
from perfmodel.specs.hardware import Hardware, load_hardware
from tests.kernels.test_timing import collective

L40S = load_hardware("l40s")
MESSAGE = 64e6


def exchange(profile: Hardware, ranks: int, message: float = MESSAGE) -> Any:
    device = DeviceModel(profile, load_calibration(), "graph", choose_calibration(profile, "vllm"))
    operator: Collective = collective(message, ranks, ranks)
    return device.time(operator)


def without_peers(profile: Hardware) -> Hardware:
    assert profile.pcie is not None
    pcie = profile.pcie.model_copy(update={"peer_access": False})
    return profile.model_copy(update={"pcie": pcie})


@pytest.mark.parametrize("ranks", [4, 8])
def test_cards_that_reach_each_other_take_the_assumed_share(ranks):
    """64 MB all-reduced: 2·(n − 1)/n of it at 60 % of 32 GB/s, and 20 µs."""
    told = exchange(L40S, ranks)
    wire = 2 * (ranks - 1) / ranks * MESSAGE
    assert told.time_s == pytest.approx(wire / (0.6 * 32e9) + 20e-6, rel=0.01)
    # As measured through the host: a bus rate of 5 GB/s for 4 ranks, under 2 for 8.
    staged = exchange(without_peers(L40S), ranks)
    rate = wire / staged.time_s
    assert rate < (6e9 if ranks == 4 else 2e9)


def test_two_cards_are_as_measured_either_way():
    assert exchange(L40S, 2).time_s == exchange(without_peers(L40S), 2).time_s


def test_profiles_say_whose_driver_forbids_it():
    for name in ("rtx-4090", "rtx-5090"):
        assert not load_hardware(name).peer_access
    for name in ("l40s", "h100-sxm", "l4"):
        assert load_hardware(name).peer_access


def test_a_link_is_used_as_measured():
    profile = load_hardware("h100-sxm")
    assert exchange(profile, 8).time_s == exchange(without_peers(profile), 8).time_s
    assert "fitted" in exchange(profile, 8).source
