"""Curves of a chart are told apart."""

from itertools import pairwise

from reports.workbook.styles import COLOURS, MARKS, look


def test_no_two_curves_look_alike():
    """Colours repeat after six; their marks then differ: 6 × 6 looks."""
    looks = [look(number) for number in range(len(COLOURS) * len(MARKS))]
    assert len(set(looks)) == 36
    assert all(before[0] != after[0] for before, after in pairwise(looks))
