"""Tables of text: nothing is shifted, hidden or guessed."""

import pytest

from calibrate.csv_file import read_text
from perfmodel.errors import InputError


def written(folder, text):
    path = folder / "table.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_values_stay_under_their_columns(tmp_path):
    text = '\ufeffa, b ,\r\n1,,\r\n\r\n  \r\nnan,"x,\ny",\r\n'
    data = read_text(written(tmp_path, text))
    assert list(data) == ["a", "b"]
    assert data.to_numpy().tolist() == [["1", ""], ["nan", "x,\ny"]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        # The usual readers of such tables take the first column for row names, and shift the rest.
        ("a,b\n1,2,\n", "row 1: 3 values"),
        ("a,b\n1,2\n1\n", "row 2: 1 values"),
        ("a,b,a\n1,2,3\n", "'a' stands twice"),
        ('a,b\n1,"2\n3,4\n', "end of data"),
        (b"a,b\n1,\xff\n", "UTF-8"),
    ],
)
def test_tables_that_are_refused(tmp_path, text, told):
    path = written(tmp_path, text)
    with pytest.raises(InputError) as error:
        read_text(path)
    assert told in str(error.value)
    assert str(path) in str(error.value)


def test_what_is_no_file(tmp_path):
    for path in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(InputError, match="can't be read"):
            read_text(path)
