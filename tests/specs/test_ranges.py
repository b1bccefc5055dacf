"""Lists and ranges as typed."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import InputError
from perfmodel.specs.ranges import numbers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", (7,)),
        ("1,2,4", (1, 2, 4)),
        ("1:256:x2", (1, 2, 4, 8, 16, 32, 64, 128, 256)),
        ("3:20:x2", (3, 6, 12)),  # 24 is beyond the end
        ("1k:4k:x2", (1024, 2048, 4096)),  # k is 1,024
        ("1M", (1_048_576,)),
        ("1.5k", (1536,)),
        ("2_000", (2000,)),
        ("0:1024:+256", (0, 256, 512, 768, 1024)),
        ("5:8", (5, 6, 7, 8)),
        ("4,1:4:x2", (4, 1, 2)),  # each once, where it first stands
        ("1:4:x1.5", (1, 2, 3)),  # 1, 1.5, 2.25, 3.375 rounded to 1, 2, 2, 3
    ],
)
def test_whole_numbers(text, expected):
    assert numbers(text, "batch", whole=True) == expected


def test_fractions_add_up_exactly():
    # ten times 0.1 in floating point is 0.9999999999999999
    assert numbers("0:1:+0.1", "share", whole=False)[-1] == 1.0
    assert numbers("0.5,1e-3", "share", whole=False) == (0.5, 0.001)


@pytest.mark.parametrize(
    "text",
    ["", "a", "1,,2", "1:2:3:4", "8:1:x2", "1:8:x1", "1:8:+0", "0:8:x2", "1:8:2", "1.5", "1:1e9",
     "1e999"],
)  # fmt: skip
def test_faults_name_the_axis(text):
    with pytest.raises(InputError, match=r"^batch: "):
        numbers(text, "batch", whole=True)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(2, 9))
def test_a_geometric_range_holds_every_step_up_to_its_end(a, b, factor):
    low, high = sorted((a, b))
    values = numbers(f"{low}:{high}:x{factor}", "batch", whole=True)
    assert values[0] == low
    assert all(y == factor * x for x, y in itertools.pairwise(values))
    assert values[-1] <= high < factor * values[-1]
