"""How a simulation is shown: on narrow and wide terminals, as rows of requests, as a picture."""

import csv
import io

import pytest
from rich.console import Console

from perfmodel.cli.request_rows import request_rows
from perfmodel.cli.simulate_tables import definition_lines, simulation_tables
from perfmodel.errors import InputError
from perfmodel.serving.arrivals import ClosedLoop, Demand
from perfmodel.serving.engine import Transfer
from perfmodel.serving.results import DEFINITIONS, LATENCIES
from perfmodel.serving.simulate import Disaggregation, simulate_engines
from reports.timeline import draw_timeline
from tests.serving.toy import REAL, engine, lengths

POOLS = {"disaggregation": Disaggregation(2, 1, Transfer(131072, 50e9))}


def shown(result, width):
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, markup=False)
    for made in simulation_tables(result, width):
        console.print(made)
    for line in definition_lines(result, width):
        console.print(line)
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("layout", [{}, POOLS, {"warmup": 10}], ids=["one", "pools", "warmup"])
@pytest.mark.parametrize("output", [1, 50])
def test_every_figure_comes_with_its_definition(width, layout, output):
    demand = Demand(ClosedLoop(8), output=lengths(output), requests=50)
    text = shown(simulate_engines(demand, engine(REAL), **layout), width)
    assert max(map(len, text.splitlines())) <= width
    words = " ".join(text.replace("…", " ").split())
    for name in LATENCIES:
        if width == 80:
            assert DEFINITIONS[name] in words
        else:  # beside its figure, over several lines perhaps
            assert all(part in words for part in DEFINITIONS[name].split())
    assert ("prefill" in words.lower() and "decode" in words) or not layout
    assert ("–" in words) == (output == 1)  # a figure that doesn't exist


def test_requests_are_written_as_they_end(tmp_path):
    path = tmp_path / "requests.csv"
    demand = Demand(ClosedLoop(8), output=lengths("uniform:1:9"), requests=50)
    with request_rows(path) as ended:
        simulate_engines(demand, engine(REAL), ended=ended)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert sorted(int(row["number"]) for row in rows) == list(range(50))
    assert all((row["tpot_s"] == "") == (row["output_tokens"] == "1") for row in rows)
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_half_written(tmp_path):
    path = tmp_path / "requests.csv"
    demand = Demand(ClosedLoop(8), lengths("exponential:500"), requests=500)
    with pytest.raises(InputError, match="never be served"), request_rows(path) as ended:
        simulate_engines(demand, engine(REAL, capacity=150), ended=ended)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there(tmp_path):
    with (
        pytest.raises(InputError, match="can't be written"),
        request_rows(tmp_path / "no" / "rows.csv"),
    ):
        pass


def test_the_same_simulation_makes_the_same_picture(tmp_path):
    demand = Demand(ClosedLoop(8), output=lengths("uniform:1:90"), requests=200)
    for name in ("a.svg", "b.svg"):
        result = simulate_engines(demand, engine(REAL), **POOLS)
        draw_timeline(result.timeline, tmp_path / name, "toy")
    first = (tmp_path / "a.svg").read_bytes()
    assert first == (tmp_path / "b.svg").read_bytes()
    assert b"waiting" in first
