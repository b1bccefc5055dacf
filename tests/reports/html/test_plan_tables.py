"""A capacity plan's tables."""

from dataclasses import replace

import perfmodel
from perfmodel import Deployment, Serving
from perfmodel.planning.capacity.answer import Choice, Energy, Nearest, Plan, Range, Rejected, Terms
from perfmodel.planning.capacity.sizing import Level, Needs, Seen, size_fleet
from perfmodel.specs.traffic import Traffic
from reports.html.page import render
from reports.html.plan_tables import plan_tables
from tests.reports.html.made import llama

H100 = perfmodel.load_hardware("h100-sxm")
LEVEL = Level(
    rate=2.0, batch=30.0, utilisation=0.8, kv_utilisation=0.4, preemptions=0,
    seen=(Seen(0.3, 0.02, 5.0), Seen(0.45, None, 0.45)),
)  # fmt: skip
# 20 requests a second with 2 a replica at 100 %: 10 replicas, and a spare one, of 2 GPUs.
FLEET = size_fleet(2.0, 2, 0.25, Needs(20.0, 1.0, 1024, 256, 1.0, 1, 3.0))
CHOICE = Choice(
    hardware=H100, deployment=Deployment(tp=2), serving=Serving(), gpus_per_replica=2,
    levels=(LEVEL,), level=LEVEL, load_limit="ttft of all 0.61 s", prefill_share=0.25, fleet=FLEET,
    usd_per_hour=Range(44.0, 110.0), usd_per_million_prompt_tokens=Range(0.1, 0.3),
    usd_per_million_output_tokens=Range(1.2, 3.1),
    energy=Energy(Range(8e3, 12e3), Range(0.1, 0.2), "TDP"), months=(), calibration="fitted",
    settings=("--tp 2",), front=True,
)  # fmt: skip
PLAN = Plan(
    model=llama().answer.model, traffic=Traffic(rate=20.0),
    terms=Terms(1.0, 1, {"h100-sxm": Range(2, 5)}, {}), choices=(CHOICE,),
    rejected=(Rejected("l40s", "tp 1, <bf16>", "memory"),), nearest=None, considered=12,
)  # fmt: skip


def cells(table):
    """The first row by heading."""
    return {h.text: c.text for h, c in zip(table.headings, table.rows[0], strict=True)}


def test_a_choice_says_what_it_takes_and_costs():
    row = cells(plan_tables(PLAN)[0])
    assert row["Hardware"] == "h100-sxm"
    assert row["Settings"] == "--tp 2"
    assert (row["GPUs"], row["Replicas"]) == ("22", "11")
    # The slowest class's; only one of them has a second token.
    assert (row["TTFT"], row["TPOT"]) == ("450 ms", "20.0 ms")
    assert row["USD/h"] == "44.0 – 110"
    assert row["kWh per million tokens"] == "0.100 – 0.200"


def test_without_price_and_power_there_is_no_figure():
    bare = replace(CHOICE, usd_per_hour=None, energy=None)
    row = cells(plan_tables(replace(PLAN, choices=(bare,)))[0])
    assert row["USD/h"] == row["kWh per million tokens"] == "–"


def test_a_plan_without_choices_says_what_comes_nearest():
    nearest = Nearest("h100-sxm", "tp 8", "ttft of all 0.9 s > 0.5 s", "--ttft 0.9")
    tables = plan_tables(replace(PLAN, choices=(), nearest=nearest))
    assert [table.name for table in tables] == ["nearest", "rejected"]
    assert "--ttft 0.9" in [cell.text for row in tables[0].rows for cell in row]


def test_a_report_shows_its_plan():
    text = render(replace(llama(), plan=PLAN))
    assert "Capacity plan" in text
    assert "tp 1, &lt;bf16&gt;" in text
    assert "Capacity plan" not in render(llama())
