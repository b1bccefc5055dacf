"""Columns: each text once, and back again."""

from hypothesis import given
from hypothesis import strategies as st

from reports.html.columns import interned

COLUMNS = st.dictionaries(st.text(min_size=1), st.lists(st.text(), min_size=3, max_size=3))


@given(COLUMNS)
def test_interned_columns_give_their_texts_back(columns):
    packed = interned(columns)
    strings = packed["strings"]
    back = {n: [strings[at] for at in column] for n, column in packed["columns"].items()}
    assert back == columns
    assert len(set(strings)) == len(strings)
