import pytest

from tests.cli.runner import perfmodel

MODEL = ("llama-3.2-1b", "--hardware", "h100-sxm")


@pytest.mark.parametrize("kind", ["breakdown", "batch", "memory"])
def test_a_picture_is_whole_and_kept(tmp_path, kind):
    path = tmp_path / "it.svg"
    ran = perfmodel("plot", kind, *MODEL, "--out", path)
    assert (ran.status, ran.out, ran.err) == (0, "", "")
    first = path.read_bytes()
    refused = perfmodel("plot", kind, *MODEL, "--out", path)
    assert refused.status == 2
    assert "--force" in refused.err
    assert perfmodel("plot", kind, *MODEL, "--out", path, "--force").status == 0
    assert path.read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_breakdown_goes_up_to_what_fits(tmp_path):
    path = tmp_path / "it.svg"
    ran = perfmodel("plot", "breakdown", *MODEL, "--prompt", "32768", "--json", "--out", path)
    (estimate,) = ran.record["estimates"]
    batches = estimate["workload"]["batch"]
    assert batches[:4] == [1, 2, 4, 8]
    assert batches[-1] == estimate["memory"]["max_sequences"]
    assert all(estimate["memory"]["fits"])


def test_the_batch_that_keeps_the_promise_is_drawn_exactly(tmp_path):
    path = tmp_path / "it.svg"
    ran = perfmodel(
        "plot", "batch", *MODEL, "--prompt", "2048", "--tpot-limit", "6ms", "--json", "--out", path
    )
    (estimate,) = ran.record["estimates"]
    pairs = list(zip(estimate["workload"]["batch"], estimate["tpot_s"], strict=True))
    kept = max(batch for batch, tpot in pairs if tpot <= 0.006)
    # One more would break it.
    more = perfmodel("estimate", *MODEL, "--prompt", "2048", "--batch", int(kept) + 1, "--json")
    assert more.record["tpot_s"] > 0.006
    assert f"batch {kept:,.0f} keeps it" in path.read_text()


def test_memory_is_drawn_beyond_where_it_is_full(tmp_path):
    path = tmp_path / "it.svg"
    ran = perfmodel("plot", "memory", *MODEL, "--batch", "64,256", "--json", "--out", path)
    (estimate,) = ran.record["estimates"]
    fits = estimate["memory"]["fits"]
    assert [row[0] for row in fits] == [True, True]
    assert fits[1][-1] is False
    for row in estimate["memory"]["max_context"]:
        longest = row[0] if isinstance(row, list) else row
        if longest < 131_072:
            assert f"{longest:,.0f} tokens" in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["batch", *MODEL, "--output", "1"], "--output"),
        (["batch", *MODEL, "--tpot-limit", "soon"], "soon"),
        (["breakdown", *MODEL, "--batch", "1,2", "--prompt", "64,128"], "path"),
        (["breakdown", *MODEL, "--batch", "100000"], "--batch"),
        (["breakdown", "llama-3.1-70b", "--hardware", "h100-sxm"], "--tp"),
        (["memory", *MODEL, "--size", "1x1"], "WIDTHxHEIGHT"),
    ],
)
def test_faults_are_one_line_and_leave_no_file(arguments, said, tmp_path):
    ran = perfmodel("plot", *arguments, "--out", tmp_path / "it.svg")
    assert ran.status == 2
    assert said in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
