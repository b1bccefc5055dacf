"""Files appear whole or not at all, with the permissions that they should have."""

import os
import stat

import pytest

from perfmodel import whole_file
from perfmodel.errors import InputError
from perfmodel.whole_file import check_free, part_of, write_text


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("fault", [KeyboardInterrupt, ValueError, InputError])
def test_a_block_that_fails_leaves_nothing(tmp_path, fault):
    path = tmp_path / "x.csv"
    path.write_text("before")

    def fail():
        with part_of(path) as part:
            part.write_text("half")
            raise fault("no")

    with pytest.raises(fault):
        fail()
    assert [file.name for file in tmp_path.iterdir()] == ["x.csv"]
    assert path.read_text() == "before"


def test_permissions_are_those_of_the_user_or_of_the_file_before(tmp_path):
    path = tmp_path / "x.txt"
    before = os.umask(0o077)
    try:
        write_text(path, "private")
        assert mode(path) == 0o600
        path.chmod(0o640)
        write_text(path, "again")
        assert (mode(path), path.read_text()) == (0o640, "again")
    finally:
        os.umask(before)


def test_a_name_as_long_as_names_may_be(tmp_path):
    path = tmp_path / ("x" * 251 + ".csv")
    write_text(path, "whole")
    assert path.read_text() == "whole"


def test_a_link_is_a_file_that_is_there(tmp_path):
    link = tmp_path / "x.csv"
    link.symlink_to("nowhere.csv")
    with pytest.raises(InputError, match="--force"):
        check_free(link, (".csv",), force=False)


def test_a_folder_that_refuses_is_found_before_the_work(tmp_path, monkeypatch):
    check_free(tmp_path / "x.csv", (".csv",), force=False)
    monkeypatch.setattr(whole_file.os, "access", lambda path, kind: path != tmp_path)
    with pytest.raises(InputError, match="can't be written to"):
        check_free(tmp_path / "x.csv", (".csv",), force=False)
