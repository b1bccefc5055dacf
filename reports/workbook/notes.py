"""The Notes sheet: what the figures mean, where they come from, and what they leave out."""

from __future__ import annotations

from perfmodel.planning.capacity.energy import SOURCE
from perfmodel.serving.results import DEFINITIONS
from reports.workbook.case import Case
from reports.workbook.cells import Column, Content, Place, Table
from reports.workbook.page import Page

SHEET = "Notes"
COLUMNS = (Column("subject", "Subject", "wrap", 30), Column("note", "Note", "wrap", 110))
REJECTED = (
    Column("hardware", "Hardware", "wrap", 30),
    Column("label", "Deployment", "wrap", 110),
    Column("reason", "Why it isn't offered", "wrap", 60),
)
TOP = 3
SIZING: tuple[tuple[str, str], ...] = (
    ("Load", "Requests per second offered to one replica. Each load of the Loads sheet was "
     "simulated request by request; the workbook doesn't simulate again."),
    ("Usable load", "A load at which every class keeps every promise at the percentile, as do all "
     "smaller loads. The largest one is a replica's rate."),
    ("Replicas", "The busiest hour's rate over (utilisation target × a replica's rate), rounded "
     "up, at least 1; and the spare ones."),
    ("Load in the busiest hour", "The busiest hour's rate over what all replicas carry; then over "
     "what is left with the spare ones gone."),
    ("Cost of tokens", "The whole fleet's rent over the mean rate's tokens. Prompt tokens bear "
     "prefill's share of the time that steps take, output tokens the rest; the share is the "
     "simulated one of the planned load, and stays where an edit takes another load."),
    ("Busiest hour", "A replica's part of the busiest hour's rate, all replicas running. "
     "Latencies then lie on straight lines between the simulated loads; the plan itself simulates "
     "that load."),
    ("Fleet at a load (Loads)", "As if that load were a replica's rate: fewer requests on each GPU "
     "are faster and dearer."),
    ("Power and energy", "TDP × (busy share × busy power + idle share × idle power), at the mean "
     "rate spread over all replicas; busy shares between the simulated loads. As planned: "
     f"{SOURCE}."),
    ("Price", "Low and high ends of rent; the middle is their mean. Fleets are costed at it."),
)  # fmt: skip
COUNTING: tuple[tuple[str, str], ...] = (
    ("FLOPs", "A multiply-add is 2: a GEMM of m × n × k is 2mnk; attention 2 × heads × (d_qk + "
     "d_v) × pairs that the mask keeps."),
    ("Bytes", "Device-memory traffic: each operand in once, each result out once; weights with "
     "their scales, once per step."),
    ("Roof", "The larger of FLOPs over the dense peak and bytes over the memory bandwidth (and "
     "bytes sent over the link, for exchanges): no device does it faster."),
    ("Calibrated time", "The time of the kernel models fitted on measured calls, or of assumed "
     "shares of the datasheet where nothing was measured (source: assumed)."),
    ("Intervals", "About nine of ten true times lie within. Ends add up end by end over operators, "
     "since one calibration made them. Simulated latencies have none of their own."),
    ("A count instead of a formula", "Where a phase has several steps, or sizes that the formula "
     "doesn't know (skewed experts, masks beyond windows), the program's count stands as a value."),
    ("TTFT, TPOT on Latency", "One batch of equal sequences alone: no queueing, no other "
     "requests' prefills."),
)  # fmt: skip
LEFT_OUT = (
    "Hosts, networks, storage, staff, discounts and taxes; time to start or replace a replica; "
    "rates within the busiest hour beyond the simulated arrivals; hardware faults other than the "
    "spare replicas; quality of answers in other number formats."
)


def _provenance(case: Case) -> list[tuple[str, str]]:
    plan = case.plan
    rows = [
        ("Made by", f"perfmodel {case.version} plan, {case.made:%Y-%m-%d %H:%M} UTC"),
        ("Model", plan.model.name),
        ("Deployments looked at", f"{plan.considered:,}; offered: {len(plan.choices)}"),
    ]
    for facts in case.facts:
        settings = " ".join(facts.choice.settings) or "the engine's defaults"
        rows += [
            (f"Choice {facts.number}: times", facts.choice.calibration),
            (f"Choice {facts.number}: settings", settings),
        ]
        rows += [(f"Choice {facts.number}: accuracy", risk) for risk in facts.choice.risks]
        warnings = dict.fromkeys((*facts.first.warnings, *facts.typical.warnings))
        rows += [(f"Choice {facts.number}: note", f"{warning}.") for warning in warnings]
    return rows


def note_table(case: Case) -> Table:
    """Subjects and notes."""
    words = ("ttft_s", "tpot_s", "e2e_s", "kv_utilisation", "preemptions")
    names = ("TTFT", "TPOT", "End to end", "KV cache in use", "Preemptions")
    rows: list[tuple[str, str]] = [
        *_provenance(case),
        *zip(names, (f"{DEFINITIONS[w]}." for w in words), strict=True),
        *SIZING, *COUNTING, ("What the figures leave out", LEFT_OUT),
    ]  # fmt: skip
    return Table.of("notes", Place(SHEET, TOP, 0, COLUMNS), rows)


def rejected_table(case: Case, below: int) -> Table:
    """Deployments that were looked at and aren't offered."""
    rows: list[list[Content]] = [[r.hardware, r.label, r.reason] for r in case.plan.rejected]
    return Table.of("rejected", Place(SHEET, below, 0, REJECTED), rows)


def notes_page(notes: Table, rejected: Table) -> Page:
    """The sheet."""
    page = Page(SHEET)
    page.head("Notes: definitions, provenance and limits", "What every figure of this file means.")
    page.table(notes)
    if rejected.rows:
        page.section(rejected.place.top - 1, "Looked at and not offered", 3)
        page.table(rejected)
    else:
        page.tables.append(rejected)
    page.frozen = (TOP + 1, 0)
    return page
