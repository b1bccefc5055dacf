"""Grids that are halved where straight lines miss what they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.serving.refine import NARROWEST, refined

NODES = np.array([[0.0, 64.0, 512.0, 1000.0]])


def at(nodes, values, where):
    """What straight lines between the nodes give."""
    return np.interp(where, nodes, values)


def test_a_line_needs_no_more_nodes():
    nodes, values = refined(lambda x: 3 + 2 * x, NODES, np.zeros((1, 1)), 0.001)
    assert nodes.tolist() == NODES.tolist()
    assert values.tolist() == [[3.0, 131.0, 1027.0, 2003.0]]


@given(st.floats(1.0, 999.0), st.floats(1.01, 3.0))
def test_a_step_up_is_found_wherever_it_is(edge, height):
    def stair(x):
        return np.where(x > edge, height, 1.0)

    share = 0.004
    nodes, values = refined(stair, NODES, np.zeros((1, 1)), share)
    assert np.all(np.diff(nodes[0]) > 0)
    where = np.linspace(0, 1000, 4001)
    where = where[np.abs(where - edge) > NARROWEST]  # the step is drawn over an interval that wide
    assert at(nodes[0], values[0], where) == pytest.approx(stair(where), rel=2 * share)


def test_what_comes_on_top_allows_more():
    def stair(x):
        return np.where(x > 700, 1.1, 1.0)

    nodes, _ = refined(stair, NODES, np.full((1, 1), 99.0), 0.001)
    assert nodes.shape == NODES.shape  # 0.05 of 100 is less than a thousandth
    nodes, _ = refined(stair, NODES, np.zeros((1, 1)), 0.001)
    assert nodes.shape[1] > NODES.shape[1] + 5


def test_lines_are_halved_together():
    edges = np.array([[100.0], [900.0]])
    nodes, values = refined(
        lambda x: 1.0 + (x > edges), np.tile(NODES, (2, 1)), np.zeros((2, 1)), 0.01
    )
    assert nodes.shape == values.shape
    for line, edge in enumerate(edges[:, 0].tolist()):
        assert at(nodes[line], values[line], [edge - 1, edge + 1]).tolist() == [1.0, 2.0]
