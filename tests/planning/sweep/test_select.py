"""Best rows and Pareto fronts against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.planning.sweep.columns import wanted_end
from perfmodel.planning.sweep.select import best, front
from perfmodel.planning.sweep.table import Table, Words

ROW = st.tuples(
    st.integers(0, 6), st.integers(0, 6), st.integers(0, 6), st.sampled_from(["a", "b", "c"])
)


def table(rows):
    slow, fast, other, word = (list(column) for column in zip(*rows, strict=True))
    words = tuple(dict.fromkeys(word))
    codes = np.array([words.index(each) for each in word], dtype=np.int32)
    numbers = {
        "setting": np.arange(len(rows)),
        "tpot_ms": np.array(slow, float),
        "output_tokens_per_s": np.array(fast, float),
        "ttft_ms": np.where(np.array(other) == 6, np.nan, other),
    }
    return Table({**numbers, "hardware": Words(codes, words)}, len(rows))


@given(st.lists(ROW, min_size=1, max_size=40), st.integers(1, 5), st.booleans())
def test_best_is_the_first_of_the_sorted(rows, top, grouped):
    found = best(table(rows), "ttft_ms", top, ("hardware",) if grouped else ())
    ranked = sorted((other, i) for i, (_, _, other, _) in enumerate(rows) if other != 6)
    counts, expected = {}, []
    for _, i in ranked:
        group = rows[i][3] if grouped else ""
        counts[group] = counts.get(group, 0) + 1
        if counts[group] <= top:
            expected.append(i)
    assert sorted(found.columns["setting"].tolist()) == sorted(expected)
    if not grouped:
        assert found.columns["setting"].tolist() == expected


@given(st.lists(ROW, min_size=1, max_size=40), st.booleans())
@settings(deadline=None)
def test_a_front_is_what_no_row_beats(rows, three):
    names = ["tpot_ms", "output_tokens_per_s"] + ["ttft_ms"] * three
    found = front(table(rows), names).columns["setting"].tolist()
    scores = [(slow, -fast, other if three else 0) for slow, fast, other, _ in rows]
    able = [i for i, row in enumerate(rows) if not three or row[2] != 6]
    expected = {
        i for i in able
        if not any(all(map(int.__le__, scores[j], scores[i])) and scores[j] != scores[i]
                   for j in able)
        and not any(scores[j] == scores[i] for j in able if j < i)
    }  # fmt: skip
    assert set(found) == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("name", "column", "high"),
    [
        ("tpot_ms", "tpot_ms", False),
        ("output_tokens_per_s_per_gpu", "output_tokens_per_s_per_gpu", True),
        ("tokens_per_s_per_user", "tokens_per_s_per_user", True),
        ("max_sequences", "max_sequences", True),
        ("required_bytes", "required_bytes", False),
        ("max:batch", "batch", True),
        ("min:tokens_per_s_per_user", "tokens_per_s_per_user", False),
    ],
)
def test_which_end_is_better(name, column, high):
    assert wanted_end(name) == (column, high)
