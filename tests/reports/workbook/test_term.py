"""A term's text, computed by itself, gives the term's value."""

import re

from hypothesis import given
from hypothesis import strategies as st

from reports.workbook.term import Term, largest, smallest, term

CELLS = {"A1": 3, "B2": 0.25, "C3": 7.5}
leaves = st.one_of(
    st.sampled_from(sorted(CELLS)).map(lambda name: Term(name, CELLS[name])),
    st.integers(-9, 9).map(term),
    st.floats(0.01, 100).map(term),
)


def grown(inner):
    pairs = st.tuples(inner, inner)
    return st.one_of(
        pairs.map(lambda p: p[0] + p[1]),
        pairs.map(lambda p: p[0] - p[1]),
        pairs.map(lambda p: p[0] * p[1]),
        pairs.filter(lambda p: abs(p[1].value) > 1e-3).map(lambda p: p[0] / p[1]),
        inner.filter(lambda t: abs(t.value) < 1e6).map(lambda t: t**2),
        pairs.map(lambda p: largest(*p)),
        pairs.map(lambda p: smallest(*p)),
    )


def computed(text: str) -> float:
    """A spreadsheet's formula by Python's own arithmetic."""
    python = re.sub(r"\^", "**", text).replace("MAX", "max").replace("MIN", "min")
    return eval(python, {"max": max, "min": min}, CELLS)  # noqa: S307  (our own text)


@given(st.recursive(leaves, grown, max_leaves=12))
def test_text_gives_value(made):
    assert abs(computed(made.text) - made.value) <= 1e-9 * max(1.0, abs(made.value))


def test_brackets_only_where_needed():
    m, n = Term("A1", 3), Term("C3", 7.5)
    assert (2 * m * n / (m * n)).text == "2*A1*C3/(A1*C3)"
    assert (m - (n - 1)).text == "A1-(C3-1)"
    assert ((1 - m / n) ** n).text == "(1-A1/C3)^C3"
    assert (m**2 * n).text == "A1^2*C3"
