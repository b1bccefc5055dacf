"""Derivations are evaluated as they would be on paper, against Python's own arithmetic."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.arithmetic import evaluate
from conformance.errors import ConformanceError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 · 8 KV heads · 128 · 32 layers · 2 B", 131_072),
        ("1 + 2 * 3 − 4 / 8", Fraction(13, 2)),
        ("2 · 3^2", 18),
        ("(2 · 3)^2 squared", 36),
        ("7 - 2 - 1", 4),
        ("8 / 4 / 2", 1),
        ("8 experts · (1 − (1 − 2 / 8)^4)", Fraction(175, 32)),
        ("min(4096 + 1, 1024) keys · max(8 / 16, 1)", 1024),
        ("ceil(576 / 128) · floor(3.9)", 15),
        ("0.7 + 0.49", Fraction(119, 100)),
    ],
)
def test_values(text, value):
    assert evaluate(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "", "words alone", "2 3", "2 layers (3)", "layers(3)", "(2", "2)", "2 +", "- 3", "1,024",
        "4.5e9", "2B", "1 / (3 − 3)", "2^0.5", "2^(0 − 1)", "9^99999", "min(3)", "ceil(1, 2)",
        "__import__", "2 ** 3", "2 ^ 3 ^ 4", "1; 2", "(" * 60 + "1" + ")" * 60, "1 + " * 2000 + "1",
    ],
)  # fmt: skip
def test_what_is_no_arithmetic_is_refused(text):
    with pytest.raises(ConformanceError):
        evaluate(text)


numbers = st.integers(0, 10**6).map(str)


def joined(inner):
    """Sums, differences and products of what ``inner`` draws, in brackets."""
    return st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")


@given(st.recursive(numbers, joined, max_leaves=20))
def test_whole_numbers_are_pythons(text):
    assert evaluate(text) == eval(text)  # noqa: S307  (digits, brackets and + - * alone)


@given(st.lists(st.tuples(st.integers(1, 999), st.sampled_from("+-*")), min_size=2, max_size=12))
def test_precedence_is_pythons(parts):
    plain = " ".join(f"{number} {sign}" for number, sign in parts) + " 7"
    labelled = " ".join(f"{number} of them {sign}" for number, sign in parts) + " 7 B"
    assert evaluate(plain) == evaluate(labelled) == eval(plain)  # noqa: S307
