"""`perfmodel simulate` from the command line: names, files, exit statuses, determinism."""

import csv
import json

import pytest

import perfmodel as api
from tests.cli.runner import perfmodel

CASE = ("simulate", "llama-3.1-8b", "--hardware", "h100-sxm")
USERS = (*CASE, "--concurrency", 8, "--requests", 60, "-p", "uniform:50:900", "-o", "uniform:1:90")
LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s")


@pytest.fixture(scope="module")
def users():
    return perfmodel(*USERS, "--json").record


def test_json_has_the_names_that_scripts_rely_on(users):
    for name in LATENCIES:
        assert set(users[name]) == {"mean", "p50", "p90", "p99"}
        assert 0 <= users[name]["p50"] <= users[name]["p90"] <= users[name]["p99"]
    for name in (
        "requests_per_s", "output_tokens_per_s", "total_tokens_per_s", "preemptions",
        "kv_utilisation", "requests", "simulated_s", "wall_s", "calibration",
    ):  # fmt: skip
        assert name in users
    assert users["requests"] == 60
    assert users["model"] == "llama-3.1-8b"
    assert users["demand"]["prompt"] == "uniform:50:900"
    assert users["deployment"]["engine"] == "vllm"
    assert users["serving"]["scheduler"] == "chunked_mixed"
    assert 0 < users["assumed_share"]["decode"] < 1
    assert set(users["definitions"]) >= {*LATENCIES, "requests_per_s", "preemptions"}


def timeless(record):
    return {name: value for name, value in record.items() if name != "wall_s"}


def test_a_seed_decides_everything(users):
    assert timeless(perfmodel(*USERS, "--json", "--seed", 0).record) == timeless(users)
    other = perfmodel(*USERS, "--json", "--seed", 1).record
    assert other["prompt_tokens"] != users["prompt_tokens"]


def test_python_gives_the_same(users):
    demand = api.Demand(
        api.ClosedLoop(8), prompt="uniform:50:900", output="uniform:1:90", requests=60
    )
    result = api.simulate("llama-3.1-8b", "h100-sxm", demand, api.Deployment(), api.Serving())
    assert timeless(api.simulation_record(result)).items() <= timeless(users).items()


def test_rows_are_the_requests(tmp_path, users):
    path = tmp_path / "requests.csv"
    ran = perfmodel(*USERS, "--csv", path)
    assert ran.status == 0
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == 60
    assert sum(int(row["prompt_tokens"]) for row in rows) == users["prompt_tokens"]
    assert sum(int(row["output_tokens"]) for row in rows) == users["output_tokens"]
    ttft = sum(float(row["ttft_s"]) for row in rows) / 60
    assert ttft == pytest.approx(users["ttft_s"]["mean"])
    again = perfmodel(*USERS, "--csv", path)
    assert again.status == 2
    assert "--force" in again.err
    assert perfmodel(*USERS, "--csv", path, "--force").status == 0


def test_a_timeline_is_drawn(tmp_path):
    path = tmp_path / "line.svg"
    assert perfmodel(*USERS, "--timeline", path, "--json").status == 0
    assert b"llama-3.1-8b" in path.read_bytes()


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize(
    "more",
    [
        ("--concurrency", 8),
        ("--rate", 30, "--burstiness", 0.5, "--disaggregate", "2:1"),
        ("--rate", "inf", "--dp", 2, "--router", "least_loaded", "--warmup", 5),
        ("--concurrency", 4, "--prefix-tokens", 200, "--prefix-count", 3),
        ("--concurrency", 4, "--pp", 2, "--scheduler", "static"),
    ],
    ids=["users", "pools", "replicas", "prefixes", "stages"],
)
def test_tables_fit_and_say_what_they_mean(more, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    ran = perfmodel(*CASE, *more, "--requests", 40, "-p", "300", "-o", "20")
    assert ran.status == 0, ran.err
    assert max(map(len, ran.out.splitlines())) <= width
    words = " ".join(ran.out.split())
    assert "without the first token" in words
    assert "scheduler" in words
    assert ("stages in turn" in words) == ("--pp" in more)


ROWS = "arrival_s,prompt_tokens,output_tokens\n"


def traced(tmp_path, text):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return (*CASE, "--trace", path)


def test_a_trace(tmp_path):
    text = "arrival_s,prompt_tokens,output_tokens,prefix_id,prefix_tokens\n"
    text += "0,500,20,a,400\n2,500,10,a,400\n2.5,90,1,,\n"
    record = perfmodel(*traced(tmp_path, text), "--json").record
    assert (record["requests"], record["prompt_tokens"], record["output_tokens"]) == (3, 1090, 31)
    assert record["serving"]["prefix_caching"]
    # whole blocks of 16 of the second prompt's 400 shared tokens
    assert record["pools"][0]["prefill_tokens"] == 1090 - 400
    assert record["demand"]["prompt"] is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{ROWS}-1,5,5\n", ("line 2", "arrival_s", "-1")),
        (f"{ROWS}1,5,5\n0.5,5,5\n", ("line 3", "sort")),
        ("arrival_s,prompt_tokens\n1,5\n", ("output_tokens",)),
        (f"{ROWS}1,5,5\n2,1000000,5\n", ("line 3", "1000000")),
    ],
)
def test_a_trace_that_is_wrong_leaves_nothing_behind(tmp_path, text, said):
    files = ("--csv", tmp_path / "rows.csv", "--timeline", tmp_path / "line.svg")
    ran = perfmodel(*traced(tmp_path, text), *files, "--json")
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert all(part in ran.err for part in said)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.csv"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "--concurrency"),
        (("--concurrency", 4, "--rate", 2), "one of them"),
        (("--concurrency", 4, "--burstiness", 2), "--burstiness"),
        (("--concurrency", 0), "--concurrency"),
        (("--rate", "nan"), "--rate"),
        (("--trace", "none.csv", "--prompt", "5"), "--prompt"),
        (("--trace", "none.csv"), "none.csv"),
        (("--concurrency", 4, "--prompt", "zipf:3"), "--prompt"),
        (("--concurrency", 4, "--prompt", 1_000_000), "--prompt"),
        (("--concurrency", 4, "--prompt", "exponential:90000"), "can never be served"),
        (("--concurrency", 4, "--prefix-count", 2), "--prefix-tokens"),
        (("--concurrency", 4, "--prefix-tokens", 0), "--prefix-tokens"),
        (("--concurrency", 4, "--prefix-tokens", 2000), "longer than any prompt (1024)"),
        (("--rate", "inf", "--burstiness", 2), "--burstiness: at --rate inf"),
        (("--trace", "none.csv", "--seed", 3), "nothing of a --trace is drawn"),
        (("--concurrency", 4, "--prompt", "uniform:5"), "has 1 value;"),
        (("--concurrency", 4, "--prompt", "1k"), "--prompt: '1k' is no whole number"),
        (("--concurrency", 4, "--scheduler", "lottery"), "--scheduler"),
        (("--concurrency", 4, "--router", "lottery"), "--router"),
        (("--concurrency", 4, "--disaggregate", "2"), "--disaggregate"),
        (("--concurrency", 4, "--disaggregate", "0:1"), "--disaggregate"),
        (("--concurrency", 4, "--disaggregate", "1:1", "--dp", 2), "--dp"),
        (("--concurrency", 4, "--warmup", 1000), "--warmup"),
        (("--concurrency", 4, "--warmup", "-1"), "--warmup"),
        (("--concurrency", 4, "--kv-offload", 0.5), "--kv-offload"),
        (("--concurrency", 4, "--cpu-offload-gb", 1), "--cpu-offload-gb"),
        (("--concurrency", 4, "--pp", 2, "--pp-microbatches", 2), "--pp-microbatches"),
        (("--concurrency", 4, "--csv", "no/rows.csv"), "no/rows.csv"),
        (("--concurrency", 4, "--timeline", "line.gif"), ".svg"),
    ],
)
def test_what_is_refused(flags, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = perfmodel(*CASE, *flags, "--json")
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert said in ran.err
    assert not list(tmp_path.iterdir())


def test_a_model_that_does_not_fit():
    ran = perfmodel("simulate", "llama-3.1-70b", "-H", "h100-sxm", "--concurrency", 4)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "llama-3.1-70b" in ran.err


def test_requests_without_a_number_are_ten_for_each_user():
    short = ("-p", "10", "-o", "1", "--json")
    assert perfmodel(*CASE, "--concurrency", 150, *short).record["requests"] == 1500
    assert perfmodel(*CASE, "--rate", "inf", *short).record["requests"] == 1000


def test_json_is_one_object():
    out = perfmodel(*CASE, "--rate", "inf", "--requests", 1, "-o", "1", "--json").out
    record = json.loads(out, parse_constant=pytest.fail)
    assert record["tpot_s"]["mean"] is None
    assert record["demand"]["rate"] == "inf"


@pytest.mark.parametrize("way", ["trace", "unbounded"])
def test_requests_longer_than_the_model_was_made_for_are_noted(way, tmp_path):
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,9,9\n1,140000,1072\n2,9,9\n")
    flags = ("--trace", trace)
    if way == "unbounded":  # of 131,072 positions
        flags = ("--concurrency", 1, "--requests", 60, "-p", "exponential:40000", "-o", 1)
    rows = tmp_path / "rows.csv"
    record = perfmodel(*CASE, *flags, "--csv", rows, "--json").record
    with rows.open(newline="") as file:
        tokens = [int(r["prompt_tokens"]) + int(r["output_tokens"]) for r in csv.DictReader(file)]
    assert record["longest_tokens"] == max(tokens) > 131_072
    said = f"{max(tokens):,} tokens"
    assert sum(said in warning for warning in record["warnings"]) == 1
    assert said in " ".join(perfmodel(*CASE, *flags).out.split())


def test_requests_within_the_model_are_not_noted(users):
    assert users["longest_tokens"] <= 990
    assert not any("was made for" in warning for warning in users["warnings"])
