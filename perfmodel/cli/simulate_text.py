"""What stands above and below the tables of `perfmodel simulate`: the case, and what to know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perfmodel.cli.estimate import format_facts, times_line
from perfmodel.cli.memory_tables import parallel_sizes
from perfmodel.cli.output import bold
from perfmodel.cli.simulate_demand import demand_facts
from perfmodel.cli.speculation_table import speculation_fact
from perfmodel.cli.text import si, whole
from perfmodel.inference.estimate import Estimate, estimate
from perfmodel.serving.arrivals import Demand
from perfmodel.serving.results import Simulation
from perfmodel.serving.serve import Served, Serving, transfer_of
from perfmodel.specs.workload import Workload


def layout_facts(case: Served, serving: Serving) -> list[str]:
    """Parallel sizes, and instances where there are several."""
    facts = [f"{name} {ranks}" for name, ranks in parallel_sizes(case.plan)]
    if case.replicas > 1:
        facts.append(f"{whole(case.replicas)} replicas, {serving.router}")
    if serving.disaggregate:
        prefill, decode = map(whole, serving.disaggregate)
        facts.append(f"{prefill} for prefill, {decode} for decode")
    return facts


def title(case: Served, result: Simulation) -> str:
    """Model and hardware on one line without style, for a figure."""
    return f"{case.model.name} on {whole(result.gpus)} × {case.hardware.name}"


def print_head(
    out: Any, case: Served, demand: Demand, serving: Serving, result: Simulation
) -> None:
    """Model, hardware and the case."""
    layout = layout_facts(case, serving)
    out.print(
        bold(case.model.name), f"on {whole(result.gpus)} ×", bold(case.hardware.name),
        *([f"({', '.join(layout)})"] if layout else []),
    )  # fmt: skip
    facts = [*demand_facts(demand, result.requests), *format_facts(case.plan)]
    facts += [case.plan.engine.name, case.engine.policy.name]
    if case.engine.prefixes is not None:
        facts.append("prefix caching")
    if case.plan.deployment.speculation is not None:
        facts.append(speculation_fact(case.plan.deployment.speculation))
    out.print(" · ".join(facts))


def typical(case: Served, result: Simulation) -> Estimate:
    """An estimate of the batch that ran on average: it says what its times rest on."""
    ended, output = result.requests_per_s, result.output_tokens_per_s
    prompt = (result.total_tokens_per_s - output) / ended
    batch = max(1, round(result.mean_running / result.instances))
    workload = Workload(
        batch=-(-batch // case.plan.parallel.dp) * case.plan.parallel.dp,
        prompt=max(1, round(prompt)),
        output=max(1, round(output / ended)),
    )
    return estimate(case.model, case.hardware, workload, case.plan.deployment)


def notes(case: Served, serving: Serving, longest: int) -> Iterator[str]:
    """What the simulation takes for granted here; ``longest``: tokens of the longest request."""
    plan = case.plan
    yield f"scheduler {case.engine.policy.name}: {case.engine.policy.meaning.rstrip('.')}"
    yield from plan.notes
    if plan.parallel.pp > 1:
        yield (
            f"one batch passes the {plan.parallel.pp} pipeline stages in turn, the others idle "
            "meanwhile; engines that keep a batch in each stage serve more"
        )
    if plan.parallel.dp > 1:
        yield f"the {plan.parallel.dp} attention replicas share experts and step together"
    if plan.draft is not None:
        yield "each sequence gains the mean number of accepted tokens in every round"
    if serving.disaggregate:
        bandwidth = si(transfer_of(case).bandwidth, "B/s")
        yield (
            f"a prompt's cache goes over the network of its instance's GPUs, {bandwidth}, after "
            "its first token: that wait counts in TPOT and ITL"
        )
    made_for = case.model.max_positions
    if made_for is not None and longest > made_for:
        yield (
            f"the longest request has {longest:,} tokens, more than the {made_for:,} that "
            f"{case.model.name} was made for: engines refuse or cut it"
        )


def print_notes(out: Any, typically: Estimate, lines: Iterator[str]) -> None:
    """What the times rest on, and what else there is to know."""
    out.print(times_line(typically))
    for line in lines:
        out.print(f"Note: {line}.")
