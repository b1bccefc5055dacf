"""Tables are read as they stand, or refused on one line with file, row and column."""

import numpy as np
import pandas as pd
import pytest

from calibrate.schema import SCHEMAS, family_of
from calibrate.tables import read_table
from perfmodel.errors import InputError
from tests.calibrate.tables import DEVICE, decode_shapes, gemm_shapes, timed
from tests.data import REASON, data_dir


def gemm():
    return timed("gemm", gemm_shapes())


def written(tmp_path, frame, name="table.csv"):
    path = tmp_path / name
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "parquet_without_suffix"])
def test_both_kinds_of_file_give_the_same_rows(tmp_path, name):
    frame = gemm()
    table = read_table(written(tmp_path, frame, name))
    assert table.family == "gemm"
    assert table.layout == "shared"
    assert list(table.numbers) == list(range(1, len(frame) + 1))
    assert list(table.rows.columns) == list(frame.columns)
    for column in ("m", "n", "k"):
        assert (table.rows[column] == frame[column]).all()
    np.testing.assert_allclose(table.rows["latency_us"], frame["latency_us"])


@pytest.mark.parametrize("family", SCHEMAS)
def test_a_family_is_known_by_its_columns_in_any_order_and_by_what_is_missing(family):
    columns = [*SCHEMAS[family].required, "latency_us", "gpu", "comment"]
    assert family_of(reversed(columns), "t") == family
    for missing in SCHEMAS[family].required:
        rest = [name for name in columns if name != missing]
        if family.startswith("attention") or len(SCHEMAS[family].required) > 3:
            with pytest.raises(InputError, match=f"{family} lacks {missing}$"):
                family_of(rest, "t")
    with pytest.raises(InputError, match="lacks latency_us"):
        family_of([name for name in columns if name != "latency_us"], "t")


def test_columns_beside_the_schema_stay_and_provenance_may_be_missing(tmp_path):
    frame = gemm().drop(columns=["framework", "framework_version", "kernel"])
    table = read_table(written(tmp_path, frame.assign(clock_mhz=1980)))
    assert (table.rows["clock_mhz"] == "1980").all()
    assert (table.rows["kernel"] == "").all()


BAD = {
    "text": ("m", 3, "many", "row 4, m: 'many' isn't a number"),
    "text in the time": ("latency_us", 3, "12 us", "row 4, latency_us: '12 us' isn't a number"),
    "a hole": ("k", 0, "", "row 1, k: an empty cell isn't a number"),
    "not a number": ("latency_us", 5, "nan", "row 6, latency_us: an empty cell isn't a number"),
    "infinite": ("latency_us", 5, "inf", "row 6, latency_us: 'inf' isn't a number"),
    "zero": ("latency_us", 2, "0", "row 3, latency_us: '0' isn't above zero"),
    "negative": ("latency_us", 2, "-4.5", "row 3, latency_us: '-4.5' isn't above zero"),
    "a fraction": ("n", 7, "512.5", "row 8, n: '512.5' isn't a whole number"),
    "a size of zero": ("m", 7, "0", "row 8, m: '0' is below 1"),
    "a negative size": ("m", 7, "-16", "row 8, m: '-16' is below 1"),
    "an absurd size": ("m", 7, "1e300", "row 8, m: '1e300' is absurd"),
    "no format": ("dtype", 1, " ", "row 2, dtype: '' is empty"),
    "one row in another unit": ("latency_us", 23, "0.4", "row 24, latency_us: 0.4 looks like ms"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_cell_is_named(tmp_path, name):
    column, row, value, message = BAD[name]
    frame = gemm().astype(str)
    frame.loc[row, column] = value
    path = written(tmp_path, frame)
    with pytest.raises(InputError) as caught:
        read_table(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_values_in_parquet_are_named_too(tmp_path):
    frame = gemm()
    frame.loc[4, "latency_us"] = np.nan
    with pytest.raises(InputError, match="row 5, latency_us"):
        read_table(written(tmp_path, frame, "t.parquet"))
    frame = gemm().astype({"m": object}).astype({"m": str})
    frame.loc[2, "m"] = "x"
    with pytest.raises(InputError, match="row 3, m: 'x'"):
        read_table(written(tmp_path, frame, "t.parquet"))


def test_more_kv_heads_than_heads_are_refused(tmp_path):
    frame = timed("attention_decode", decode_shapes())
    frame.loc[1, "kv_heads"] = 64
    with pytest.raises(InputError, match="row 2, kv_heads: '64' is above heads"):
        read_table(written(tmp_path, frame))


@pytest.mark.parametrize(("factor", "unit"), [(1e-3, "ms"), (1e-6, "s"), (1e3, "ns")])
@pytest.mark.parametrize("gpu", ["h100-sxm", "some box"])
def test_times_in_another_unit_are_refused(tmp_path, factor, unit, gpu):
    frame = gemm().assign(gpu=gpu)
    frame["latency_us"] *= factor
    with pytest.raises(InputError, match=rf"row \d+, latency_us: \S+ looks like {unit}, not µs"):
        read_table(written(tmp_path, frame), DEVICE)


FILES = {
    "empty file": (b"", "is empty"),
    "header alone": (b"m,n,k,dtype,latency_us\n", "no rows"),
    "other columns": (b"a,b\n1,2\n", "no known family"),
    "a short row": (b"m,n,k,dtype,latency_us\n1,2,3,bfloat16,5\n1,2\n", "row 2: 2 values under 5"),
    "a long row": (b"m,n,k,dtype,latency_us\n1,2,3,bfloat16,5,6\n", "row 1: 6 values under 5"),
    "a column twice": (b"m,n,m,dtype,latency_us\n1,2,3,bfloat16,5\n", "'m' stands twice"),
    "not text": (b"\xff\xfe\x00\x01\n\x00", "can't be read"),
    "torn parquet": (b"PAR1 and no more", "can't be read"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_is_named(tmp_path, name):
    content, message = FILES[name]
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["none.csv", "."])
def test_what_is_no_file_is_named(tmp_path, name):
    with pytest.raises(InputError, match="can't be read"):
        read_table(tmp_path / name)


def test_shapes_that_failed_when_measured_are_counted(tmp_path):
    frame = gemm().assign(status="ok")
    frame.loc[[3, 5], ["status", "latency_us"]] = ["failed", 0.0]
    table = read_table(written(tmp_path, frame))
    assert len(table.rows) == len(frame) - 2
    assert table.left_out == {"failed when measured": 2}
    assert 4 not in table.numbers
    assert 24 in table.numbers


def test_byte_order_mark_and_blank_lines_are_no_fault(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("\ufeffm,n,k,dtype,latency_us\n1,512,512,bfloat16,5\n\n", encoding="utf-8")
    assert len(read_table(path).rows) == 1


@pytest.mark.skipif(data_dir() is None, reason=REASON)
@pytest.mark.parametrize("family", [f for f in SCHEMAS if f != "moe"])
def test_the_shared_tables_are_read(family):
    path = data_dir() / "measurements" / f"{family}.parquet"
    table = read_table(path)
    assert table.family == family
    assert len(table.rows) == len(pd.read_parquet(path, columns=["latency_us"]))
