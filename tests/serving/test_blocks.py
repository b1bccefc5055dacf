"""Counted blocks against blocks counted one sequence at a time."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perfmodel.serving.blocks import Blocks
from perfmodel.serving.sequence import Sequence


def growing(blocks: Blocks, contexts: list[int], tokens: int) -> list[Sequence]:
    sequences = []
    for number, context in enumerate(contexts):
        sequence = Sequence(number, 0.0, context, 10)
        sequence.generated = 1
        sequence.born = context - tokens
        sequence.held = blocks.of(context)
        blocks.held += sequence.held
        sequences.append(sequence)
    blocks.grow(sequences)
    return sequences


@given(
    st.integers(1, 20), st.lists(st.integers(1, 99), max_size=6), st.integers(0, 99),
    st.integers(0, 200), st.integers(0, 300),
)  # fmt: skip
def test_growth_is_counted_as_one_by_one(
    block: int, contexts: list[int], start: int, more: int, capacity: int
):
    blocks = Blocks(capacity, block)
    sequences = growing(blocks, contexts, start)

    def one_by_one(tokens: int) -> int:
        return sum(-(-(context + tokens) // block) for context in contexts)

    assert blocks.held == 0
    assert blocks.grown(start + more) == one_by_one(more)
    assert blocks.fits_after(start + more) == (one_by_one(more) <= capacity)
    if one_by_one(0) <= capacity:
        fit = blocks.tokens_that_fit(start, more)
        assert one_by_one(fit) <= capacity
        assert fit == more or one_by_one(fit + 1) > capacity
    blocks.stop(sequences)
    assert blocks.grown(start + more) == 0


@given(st.integers(1, 9), st.integers(0, 40), st.lists(st.integers(0, 5), max_size=6))
def test_the_longest_sequence_is_the_last_that_fits(block: int, capacity: int, more: list[int]):
    table: Any = tuple(float(sum(more[: i + 1])) for i in range(len(more)))
    blocks = Blocks(capacity, block, table)
    longest = blocks.longest()
    assert longest == 0 or blocks.of(longest) + blocks.fixed_of(longest) <= capacity
    assert blocks.of(longest + 1) + blocks.fixed_of(longest + 1) > capacity


def test_where_nothing_grows_a_sequence_takes_what_is_fixed():
    blocks = Blocks(2.5, 1, (1.0,), grows=False, max_model_len=100)
    assert blocks.of(77) == 0
    assert blocks.fixed_of(77) == 1
    assert blocks.longest() == 100
