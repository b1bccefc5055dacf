"""Exchanges over two levels: which ranks share a node, what crosses which wire."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import InputError
from perfmodel.kernels.network import phases
from perfmodel.kernels.timing import DeviceModel
from perfmodel.operators.record import Collective
from perfmodel.specs.hardware import load_hardware
from tests.kernels.test_timing import WIRED, calibration, hardware, link

KINDS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]


def exchange(kind: Any, message: Any, ranks: int, near: int = 0, **more: Any) -> Collective:
    """Of neighbours, unless ``more`` gives a span."""
    fields = {"span": ranks, "near": near or ranks} | more
    return Collective(name=kind, kind=kind, message_bytes=message, ranks=ranks, **fields)


@pytest.mark.parametrize(
    ("ranks", "near", "span", "inside"),
    [
        (16, 16, 16, 8),  # tensor parallelism over two nodes
        (12, 12, 12, 6),  # two nodes of six, not eight and four
        (11, 11, 11, 1),  # can't be spread evenly
        (4, 1, 16, 2),  # context parallelism beside tp 4: every fourth GPU
        (4, 1, 32, 1),  # beside tp 8: one in each node
        (32, 8, 64, 8),  # experts of replicas of eight, another stage's eight between them
        (16, 4, 32, 4),  # replicas of four with two stages each: one replica's four in a node
        (2, 2, 2, 2),
    ],
)
def test_ranks_that_share_a_node_of_eight(ranks, near, span, inside):
    assert exchange("all_to_all", 1.0, ranks, near, span=span).ranks_inside(8) == inside


def test_a_hierarchical_all_reduce_by_hand():
    """16 MB over 16 ranks, four in a node at 100 GB/s, 10 GB/s between nodes: reduce-scatter 3/4 of
    16 MB = 120 µs, all-reduce of 4 MB between four nodes 2·3/4·4 MB = 600 µs, all-gather 120 µs.
    """
    operator = exchange("all_reduce", 16e6, 16)
    time = DeviceModel(hardware(**WIRED), None).time(operator)
    assert time.time_s == pytest.approx(840e-6)
    assert time.roof_s == pytest.approx(600e-6)  # pipelined phases hide behind the slower wire
    shares = DeviceModel(hardware(**WIRED), calibration(0.8, 0.5, 1.0, 2.0)).time(operator)
    assert shares.time_s == pytest.approx(
        2 * (120e-6 / 0.8 + 10e-6) + 600e-6 / 0.5 + 30e-6 + 2e-6  # one launch
    )


def test_an_all_to_all_goes_by_the_share_of_destinations():
    """16 ranks, four in a node: of what a rank sends 3/16 stays inside, 12/16 leaves."""
    time = DeviceModel(hardware(**WIRED), None).time(exchange("all_to_all", 16e6, 16))
    assert time.time_s == pytest.approx(3e6 / 100e9 + 12e6 / 10e9)


@given(st.sampled_from(KINDS), st.floats(1, 1e9), st.integers(2, 8), st.integers(2, 8))
def test_phases_send_what_a_flat_ring_sends(kind, message, inside, nodes):
    """2(n − 1)/n of an all-reduce's message, (n − 1)/n of the others', whatever the levels."""
    n = inside * nodes
    parts = phases(exchange(kind, message, n), inside, inside)
    passes = 2 if kind == "all_reduce" else 1
    assert sum(p.wire_bytes for p in parts) == pytest.approx(passes * (n - 1) / n * message)
    assert exchange(kind, message, n).wire_bytes == passes * (n - 1) / n * message


@settings(deadline=None)
@given(
    st.sampled_from(KINDS), st.floats(1e3, 1e9), st.sampled_from([2, 4, 8]), st.integers(2, 6),
    st.floats(1, 100),
)  # fmt: skip
def test_two_levels_lie_between_the_link_and_the_network(kind, message, node, nodes, network):
    """Also where both are equally fast: then the levels change nothing."""
    groups = {"link": link(100.0, 1000), "network": {"gb_s_per_gpu": network}}
    ranks = node * nodes

    def seconds(gpus_per_node: int) -> Any:
        device = DeviceModel(hardware(**groups), None, gpus_per_node=gpus_per_node)
        return device.time(exchange(kind, message, ranks)).time_s

    whole, levels, alone = seconds(ranks), seconds(node), seconds(1)
    assert whole * (1 - 1e-12) <= levels <= alone * (1 + 1e-12)
    if network == 100:
        assert whole == pytest.approx(alone)


def test_hand_overs_leave_the_node_where_stages_do():
    """Four stages of four GPUs, eight to a node: one of three hand-overs crosses. 1 MB at 100 GB/s
    inside and 10 GB/s between.
    """
    groups = WIRED | {"link": link(100.0, 8)}

    def seconds(size: int, stages: int) -> Any:
        operator = exchange("send_recv", 1e6, 2, near=1, span=size * stages, stages=stages)
        return DeviceModel(hardware(**groups), None).time(operator).time_s

    assert seconds(4, 2) == pytest.approx(10e-6)
    assert seconds(4, 4) == pytest.approx((2 * 10e-6 + 100e-6) / 3)
    assert seconds(8, 2) == pytest.approx(100e-6)


def test_gpus_per_node_override_the_profile():
    h100 = load_hardware("h100-sxm")
    assert DeviceModel(h100, None).wire_rate(8) == (450e9, True)
    assert DeviceModel(h100, None, gpus_per_node=4).wire_rate(8) == (50e9, False)
    assert DeviceModel(load_hardware("gb200"), None).wire_rate(72)[1]
    with pytest.raises(InputError, match="made-up"):
        DeviceModel(hardware(link=link(100.0, 8)), None).time(exchange("all_reduce", 1e6, 16))
