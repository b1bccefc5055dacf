"""A sweep's folder: whole parts, resumed after interruptions, never mixed with another sweep's."""

import json

import numpy as np
import pandas as pd
import pyarrow.dataset
import pytest

import perfmodel
from perfmodel.errors import InputError
from perfmodel.planning.sweep.answer import Sweep
from perfmodel.specs.sweep import parse_sweep
from reports import sweep_run
from reports.sweep_run import write_selection, write_sweep

AXES = {
    "model": "llama-3.1-8b", "hardware": "h100-sxm,l40s", "stack": "generic", "batch": "1:8:x2",
    "context": "512,4k,64k", "output": "1,64,600", "where": "batch > 1", "best_by": "total_s",
    "top": 3, "pareto": "ttft_ms,output_tokens_per_s",
}  # fmt: skip
SIZE = 20
"""72 settings: 20, 20, 20 and 12."""


def sweep(**changes):
    return Sweep(parse_sweep(AXES | changes))


def table(folder):
    """What a reader of the folder sees."""
    return pyarrow.dataset.dataset(folder).to_table().to_pandas().sort_values("setting")


def assert_summary(result, whole):
    assert result.settings == whole.settings
    assert result.rows == whole.rows
    assert result.fits == whole.fits
    assert result.refused == whole.refused
    for one, other in ((result.best, whole.best), (result.pareto, whole.pareto)):
        pd.testing.assert_frame_equal(pd.DataFrame(one.records()), pd.DataFrame(other.records()))


def test_a_folder_holds_the_table(tmp_path):
    folder = tmp_path / "out"
    result = write_sweep(sweep(), folder, part_settings=SIZE)
    whole = perfmodel.sweep(AXES)
    assert_summary(result, whole)
    assert sorted(file.name for file in folder.iterdir()) == [
        "_parts", "_sweep.json", *(f"part-00000{n}.parquet" for n in range(4))
    ]  # fmt: skip
    frame = table(folder)
    expected = pd.DataFrame(whole.columns)
    assert list(frame) == list(expected)
    for name in expected:
        assert frame[name].tolist() == pytest.approx(expected[name].tolist(), nan_ok=True), name
    assert frame.tpot_ms.isna().sum() == (frame.output == 1).sum() > 0


def test_csv_holds_the_same(tmp_path):
    write_sweep(sweep(), tmp_path / "a", form="csv", part_settings=SIZE)
    frame = pd.concat(pd.read_csv(file) for file in sorted((tmp_path / "a").glob("*.csv")))
    expected = pd.DataFrame(perfmodel.sweep(AXES).columns)
    pd.testing.assert_frame_equal(
        frame.reset_index(drop=True), expected, check_dtype=False, rtol=1e-12
    )


class StopError(Exception):
    """As if the power failed."""


def interrupted(after):
    def tell(done, total):
        if done >= after:
            raise StopError

    return tell


def test_an_interrupted_sweep_is_continued(tmp_path, monkeypatch):
    folder = tmp_path / "out"
    with pytest.raises(StopError):
        write_sweep(sweep(), folder, part_settings=SIZE, progress=interrupted(2 * SIZE))
    before = {file.name: file.stat().st_mtime_ns for file in folder.glob("part-*")}
    assert len(before) == 2
    # A part that was cut short, and one whose record never came, are made again.
    cut = folder / "part-000001.parquet"
    cut.write_bytes(cut.read_bytes()[:-1])
    made, real = [], sweep_run.made_part
    monkeypatch.setattr(
        sweep_run, "made_part", lambda spec, *at: made.append(at[0]) or real(spec, *at)
    )
    told = []
    result = write_sweep(
        sweep(), folder, part_settings=SIZE, progress=lambda done, total: told.append(done)
    )
    assert made == [20, 40, 60]
    assert told == [20, 40, 60, 72]
    assert (folder / "part-000000.parquet").stat().st_mtime_ns == before["part-000000.parquet"]
    assert_summary(result, perfmodel.sweep(AXES))
    assert len(table(folder)) == result.rows
    made.clear()
    assert_summary(write_sweep(sweep(), folder, part_settings=SIZE), result)
    assert made == []


@pytest.mark.parametrize(
    ("changes", "arguments", "said"),
    [
        ({"batch": "1:4:x2"}, {}, "batch"),
        ({"where": "fits"}, {}, "where"),
        ({}, {"part_settings": SIZE + 1}, "part_settings"),
        ({}, {"form": "csv"}, "format"),
    ],
)
def test_another_sweep_is_refused_and_said(tmp_path, changes, arguments, said):
    folder = tmp_path / "out"
    write_sweep(sweep(), folder, part_settings=SIZE)
    given = {"part_settings": SIZE} | arguments
    with pytest.raises(InputError, match=said):
        write_sweep(sweep(**changes), folder, **given)
    assert len(table(folder)) == perfmodel.sweep(AXES).rows  # nothing was touched
    result = write_sweep(sweep(**changes), folder, force=True, **given)
    suffix = arguments.get("form", "parquet")
    files = list(folder.glob("part-*"))
    assert {file.suffix for file in files} == {f".{suffix}"}
    assert len(files) == -(-result.settings // given["part_settings"])


def test_a_changed_model_is_another_sweep(tmp_path):
    profile = perfmodel.load_hardware("l40s")
    shown = json.loads(profile.model_dump_json(exclude_unset=True, by_alias=True))
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps(shown | {"name": "mine"}))
    folder = tmp_path / "out"
    write_sweep(sweep(hardware=str(file)), folder)
    shown["memory"]["bandwidth_gb_s"] += 1
    file.write_text(json.dumps(shown | {"name": "mine"}))
    from perfmodel.planning.sweep.cases import hardware_named

    hardware_named.cache_clear()
    with pytest.raises(InputError, match="the hardware"):
        write_sweep(sweep(hardware=str(file)), folder)


def test_other_peoples_files_are_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    for path in (tmp_path, tmp_path / "thesis.txt", tmp_path / "no" / "where"):
        with pytest.raises(InputError):
            write_sweep(sweep(), path, force=True)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_the_selection_says_which_rows_are_which(tmp_path):
    made = sweep()
    result = made.without_rows(SIZE)
    for suffix, read in ((".csv", pd.read_csv), (".parquet", pd.read_parquet)):
        write_selection(result, made, tmp_path / f"rows{suffix}")
        frame = read(tmp_path / f"rows{suffix}")
        assert (frame.selection == "best").sum() == 3
        chosen = frame[frame.selection == "pareto"]
        assert chosen.setting.tolist() == result.pareto.columns["setting"].tolist()
        assert np.all(np.diff(chosen.ttft_ms) > 0)
