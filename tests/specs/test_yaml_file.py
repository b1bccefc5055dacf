"""Files become plain mappings, or errors of one line that name the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfmodel.errors import InputError
from perfmodel.specs.yaml_file import MAX_BYTES, MAX_DEPTH, parse_yaml, read_yaml


def refusal(path: str | Path) -> str:
    with pytest.raises(InputError) as caught:
        read_yaml(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path).split("\0")[0])
    return message


def test_a_mapping_is_read(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("a: 1\nb: {c: [1.5, text, null, true]}\nd: 2026-05-18\ne: 4.8e+12\n")
    # Dates stay text; a signed exponent makes a number.
    expected = {"a": 1, "b": {"c": [1.5, "text", None, True]}, "d": "2026-05-18", "e": 4.8e12}
    assert read_yaml(file) == expected


def test_a_byte_order_mark_is_no_fault(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_yaml(str(file)) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", ("line 3", "'a'", "twice")),
        ("a:\n  b: 1\n  b: 2\n", ("line 3", "'b'", "twice")),
        ("a: [1\nb: 2\n", ("line 2", "not valid YAML")),
        ("a: b: c\n", ("line 1", "not valid YAML", "colons")),
        ("a:\n\t- b\n", ("line 2", "indentation")),
        ("- 1\n- 2\n", ("top level is a list", "key: value")),
        ("just words\n", ("top level is a single value",)),
        ("", ("empty", "key: value")),
        ("# only a comment\n", ("empty",)),
        ("a: 1\n---\nb: 2\n", ("line 2", "another document")),
        ("a: &x 1\nb: *x\n", ("line 2", "aliases")),
        ("a: &x [*x]\n", ("line 1", "aliases")),
        ("a: !!python/object:os.system {}\n", ("line 1", "tags")),
        ("a: !!int x\n", ("line 1", "tags")),
        ("1: a\n", ("line 1", "key 1 isn't text")),
        ("yes: a\n", ("line 1", "key True isn't text")),
        ("[1]: a\n", ("line 1", "isn't text")),
        ("a: 0x_\n", ("number",)),
        ("a: " + "9" * 5000 + "\n", ("line 1", "5000 digits")),
        ("a: 0x" + "f" * 5000 + "\n", ("line 1", "digits")),
        ("a: 1:30\n", ("line 1", "minutes", "quotes")),
        ("a: \0\n", ("not valid YAML",)),
        ("a: " + "[" * 10_000, (f"more than {MAX_DEPTH} deep",)),
    ],
    ids=lambda value: repr(value)[:24] if isinstance(value, str) else "",
)
def test_broken_text_is_refused_in_one_line(tmp_path, text, words):
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    message = refusal(file)
    for word in words:
        assert word in message


def test_what_is_no_readable_file_is_refused(tmp_path):
    assert "no such file" in refusal(tmp_path / "none.yaml")
    assert "folder" in refusal(tmp_path)
    assert "can't be read" in refusal("a\0b.yaml")
    (tmp_path / "latin.yaml").write_bytes("a: 1\nb: é\n".encode("latin-1"))
    assert "line 2: not UTF-8" in refusal(tmp_path / "latin.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    assert "larger than" in refusal(tmp_path / "large.yaml")


def test_a_place_with_a_line_break_stays_on_one_line():
    with pytest.raises(InputError) as caught:
        parse_yaml("- 1", "bad\nname.yaml")
    assert str(caught.value).startswith("bad name.yaml: ")
