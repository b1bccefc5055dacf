"""The answer of a report in words, and what its times rest on."""

from __future__ import annotations

from perfmodel.inference.estimate import Estimate
from perfmodel.text import percent, whole
from reports.html.columns import NONE, Columns
from reports.html.provenance import CalibrationUse
from reports.html.record import Report


def headline(columns: Columns, asked: int, answer: Estimate, remedy: str) -> str:
    """The answer in a sentence or two; ``remedy`` says already what would fit, or nothing."""
    now = {name: column[asked] for name, column in columns.items()}
    capacity = f"{answer.memory.capacity_bytes / 2**30:,.2f} GiB"
    if now["fits"] == "no":
        head = f"It doesn’t fit: {now['required']} are needed per GPU, of {capacity}."
        if remedy:
            return head
        most, longest = now["max_sequences"], now["max_context"]
        if most == "0":
            return f"{head} At this length not even one sequence fits."
        return f"{head} At this length {most} sequences fit, at this batch a context of {longest}."
    first = f"It fits. The first token comes after {now['ttft_s']}"
    if now["tpot_s"] == NONE:
        return f"{first}; {now['prefill_limit']} limits it."
    return (
        f"{first}, then one every {now['tpot_s']}. Prefill is limited by "
        f"{now['prefill_limit']}, decode by {now['decode_limit']}."
    )


def case_facts(answer: Estimate) -> list[str]:
    """The case in a few words."""
    load, plan = answer.workload, answer.plan.deployment
    facts = [f"batch {whole(load.batch)}", f"prompt {whole(load.prompt)}"]
    if load.cached_prefix:
        facts.append(f"{whole(load.cached_prefix)} of them cached")
    if load.prefill_chunk:
        facts.append(f"chunks of {whole(load.prefill_chunk)}")
    facts.append(f"output {whole(load.output)}")
    layout = ("tp", "pp", "ep", "dp", "cp", "dcp")
    facts += [f"{name} {getattr(plan, name)}" for name in layout if getattr(plan, name) > 1]
    facts += [f"weights {plan.weights}", f"cache {plan.kv_cache}", plan.engine]
    if plan.speculation is not None:
        facts.append(f"speculation by {plan.speculation.method}")
    return facts


def times_rest_on(report: Report) -> str:
    """What turned work into time."""
    answer, used = report.answer, report.provenance.calibration
    if answer.calibration == "datasheet roof":
        return "Times are the datasheet’s roof, which no real kernel reaches."
    if used is None:
        return (
            "Times are assumed shares of the datasheet’s rates: nothing was measured on this "
            "device or one of its kind."
        )
    prefill, decode = (
        percent(float(phase.cost.assumed_share)) for phase in (answer.prefill, answer.decode)
    )
    return (
        f"{_fitted(answer, used)} Assumed shares of the datasheet’s rates price what it didn’t "
        f"measure: {prefill} of prefill’s time and {decode} of decode’s."
    )


def _fitted(answer: Estimate, used: CalibrationUse) -> str:
    what = f"kernels measured on {used.hardware} ({used.release}; fitted {used.date})"
    if used.hardware == answer.hardware.name:
        return f"Times come from {what}."
    return f"Times are carried over from {what}, a relative of this device, with wider intervals."
