"""Conditions: what they mean, what they refuse; nothing is executed."""

import numpy as np
import pytest

from perfmodel.errors import InputError
from perfmodel.planning.sweep.table import Segment
from perfmodel.planning.sweep.where import Condition

COLUMNS = {
    "fits": "flag", "tpot_ms": "number", "ttft_ms": "number", "batch": "whole",
    "hardware": "text", "required_bytes": "whole", "block_size": "number",
}  # fmt: skip
ROWS = Segment(
    {"hardware": "h100-sxm", "block_size": None},
    {
        "fits": np.array([True, True, False, True]),
        "tpot_ms": np.array([10.0, 50.0, 5.0, np.nan]),
        "ttft_ms": np.array([100.0, 900.0, 50.0, 20.0]),
        "batch": np.array([1, 8, 64, 2]),
        "required_bytes": np.array([2**30, 2**31, 2**32, 2**33]),
    },
    4,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fits and tpot_ms < 40", [1, 0, 0, 0]),
        ("not fits or batch == 8", [0, 1, 1, 0]),
        ("5 <= tpot_ms <= 10", [1, 0, 1, 0]),
        ("tpot_s < 0.02", [1, 0, 1, 0]),  # a column in another unit
        ("required_gib >= 2", [0, 1, 1, 1]),
        ("batch in (1, 2)", [1, 0, 0, 1]),
        ("batch not in [1, 2]", [0, 1, 1, 0]),
        ("hardware == 'h100-sxm' and batch > 1", [0, 1, 1, 1]),
        ("hardware in ('l40s',) or batch % 8 == 1", [1, 0, 0, 0]),
        ("ttft_ms + 10*tpot_ms < 2**8", [1, 0, 1, 0]),
        ("-batch < -2", [0, 1, 1, 0]),
        ("fits == True", [1, 1, 0, 1]),
        ("tpot_ms != tpot_ms", [0, 0, 0, 1]),  # no number
        ("block_size > 0", [0, 0, 0, 0]),  # none
        ("hardware != 'h100-sxm'", [0, 0, 0, 0]),
        (" fits\n and batch/0 > 1 ", [1, 1, 0, 1]),
    ],
)
def test_meaning(text, expected):
    holds = Condition(text, COLUMNS).holds(ROWS)
    assert np.broadcast_to(holds, 4).tolist() == [bool(each) for each in expected]
    assert ROWS.taken(holds).rows == sum(expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tpot_m < 40", "did you mean tpot_ms"),
        ("tpot_ms", "is no condition"),
        ("fits and batch", "needed"),
        ("fits < 3", "compared"),
        ("hardware < 'z'", "no order"),
        ("hardware == 3", "compared"),
        ("fits +", "isn't a condition"),
        ("fits; fits", "isn't a condition"),
        ("", "isn't a condition"),
        ("__import__('os').system('true')", "isn't understood"),
        ("batch.real > 1", "isn't understood"),
        ("[x for x in batch]", "isn't understood"),
        ("(lambda: fits)()", "isn't understood"),
        ("batch if fits else 1", "isn't understood"),
        ("batch[0] > 1", "isn't understood"),
        ("batch is 1", "isn't understood"),
        ("batch & 1", "isn't understood"),
        ("batch in batch", "no list"),
        ("f'{batch}' == 'a'", "isn't understood"),
        ("batch > None", "isn't understood"),
        ("fits" + " and fits" * 400, "longer"),
        ("(" * 300 + "fits" + ")" * 300, "isn't a condition"),
    ],
)
def test_faults(text, said):
    with pytest.raises(InputError, match=said) as caught:
        Condition(text, COLUMNS)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("where: ")
