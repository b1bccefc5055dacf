"""The rows of the Capacity sheet from a replica's load to a fleet and what its users see."""

from __future__ import annotations

from functools import partial

from perfmodel.units import KILO
from reports.workbook import inputs
from reports.workbook.cells import NONE, Column, Scalar
from reports.workbook.figure import RATE, Figure, Maker, of_fleet, of_level
from reports.workbook.sized import ALL_MET, Sized

UNMET = "service levels unmet"


def _working(s: Sized) -> Scalar:
    return NONE if s.fleet is None else s.fleet.replicas - s.case.plan.terms.spare


def _facts_rows() -> list[Figure]:
    return [
        Figure(Column("label", "Deployment", "words", strong=True), lambda s: s.facts.label),
        Figure(Column("hardware", "Hardware", "right"), lambda s: s.facts.hardware.name),
        Figure(Column("gpus_per_replica", "GPUs of a replica", "int", unit="GPUs"),
               lambda s: s.facts.choice.gpus_per_replica),
        Figure(Column("prefill_share", "Prefill's share of the steps' time", "percent"),
               lambda s: s.facts.choice.prefill_share),
        Figure(Column("front", "As planned, none is cheaper and faster", "right"),
               lambda s: "yes" if s.facts.choice.front else "no"),
        Figure(Column("planned_limit", "As planned, a larger load meets", "words"),
               lambda s: s.facts.choice.load_limit or NONE),
    ]  # fmt: skip


def _load_rows() -> list[Figure]:
    return [
        Figure(Column("usable_loads", "Loads that keep the promises", "int",
                      unit="of those simulated"),
               lambda s: 0 if s.level is None else s.facts.choice.levels.index(s.level) + 1,
               lambda at: f"SUM({at.load('usable')})"),
        Figure(Column("requests_per_s_replica", "Largest of them", "n2",
                      unit="requests/s of a replica", strong=True),
               lambda s: UNMET if s.level is None else s.level.rate,
               lambda at: at.at_level("requests_per_s", UNMET)),
        Figure(Column("batch", "Batch at it", "n1", unit="running sequences"), of_level("batch"),
               lambda at: at.at_level("batch")),
        Figure(Column("kv_utilisation", "KV cache in use at it", "percent0"),
               of_level("kv_utilisation"), lambda at: at.at_level("kv_utilisation")),
        *(
            Figure(Column(f"slowest_{name}_ms", f"{name.upper()} at it", style,
                          unit="ms, slowest class"),
                   partial(Sized.slowest, name=name),
                   partial(Maker.at_level, key=f"slowest_{name}_ms"))
            for name, style in (("ttft", "n1"), ("tpot", "n2"))
        ),
        Figure(Column("load_limit", "A larger load breaks", "words"), lambda s: s.limit,
               lambda at: f'IF({at("usable_loads")}=ROWS({at.load("usable")}),"{ALL_MET}",'
               f'INDEX({at.load("first_exceeded")},{at("usable_loads")}+1))'),
    ]  # fmt: skip


def _fleet_rows() -> list[Figure]:
    return [
        Figure(Column("working_replicas", "Replicas for the busiest hour", "int", unit="replicas"),
               _working, lambda at: at.where(RATE, inputs.working_text(at(RATE), inputs.BUSIEST))),
        Figure(Column("replicas", "Replicas, spare ones too", "int", unit="replicas"),
               of_fleet("replicas"),
               lambda at: at.where(RATE, f"{at('working_replicas')}+{inputs.SPARE}")),
        Figure(Column("gpus", "GPUs", "int", unit="GPUs", strong=True), of_fleet("gpus"),
               lambda at: at.where(RATE, f"{at('replicas')}*{at('gpus_per_replica')}")),
        Figure(Column("utilisation", "Load in the busiest hour", "percent",
                      unit="of all replicas' rate"), of_fleet("utilisation"),
               lambda at: at.where(RATE, f"{inputs.BUSIEST}/({at('replicas')}*{at(RATE)})")),
        Figure(Column("utilisation_degraded", "… with the spare ones gone", "percent",
                      unit="of the others' rate"), of_fleet("utilisation_degraded"),
               lambda at: at.where(
                   RATE, f"{inputs.BUSIEST}/({at('working_replicas')}*{at(RATE)})")),
    ]  # fmt: skip


def _busiest_rows() -> list[Figure]:
    each = "busiest_requests_per_s"

    def slow(name: str, style: str) -> Figure:
        key = f"busiest_{name}_ms"
        return Figure(
            Column(key, f"{name.upper()} in the busiest hour", style, unit="ms, slowest class"),
            partial(Sized.busiest, name=name),
            partial(Maker.between, x=each, y=f"slowest_{name}_ms"),
        )  # fmt: skip

    def speed(s: Sized) -> Scalar:
        tpot = s.busiest("tpot")
        return KILO / tpot if isinstance(tpot, float) else NONE

    return [
        Figure(Column(each, "A replica's load then", "n2", unit="requests/s"),
               lambda s: NONE if s.fleet is None else s.each(s.case.busiest),
               lambda at: at.where(RATE, f"{inputs.BUSIEST}/{at('replicas')}")),
        slow("ttft", "n1"),
        slow("tpot", "n2"),
        Figure(Column("busiest_tokens_per_s", "One user's speed then", "n1", unit="tokens/s"),
               speed, lambda at: at.where("busiest_tpot_ms", f"1000/{at('busiest_tpot_ms')}")),
    ]  # fmt: skip


def fleet_figures() -> list[Figure]:
    """Facts, the largest usable load, the fleet, and its busiest hour."""
    return [*_facts_rows(), *_load_rows(), *_fleet_rows(), *_busiest_rows()]
