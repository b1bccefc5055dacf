"""What a picture says of its case: the workload, the deployment, and what the times rest on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from perfmodel.inference.estimate import Estimate

CHARACTERS = 13.5
"""Characters of 8 points to the inch, with room to spare."""


def span(value: object) -> str:
    """A quantity as text: one number, or the ends of several."""
    numbers = np.ravel(np.asarray(value))
    low, high = numbers.min(), numbers.max()
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def case_line(result: Estimate, width: float, *, source: bool = True) -> str:
    """``batch 8 · prompt 2,048 · output 256 · weights bf16 · …`` in lines of ``width`` inches."""
    load, plan = result.workload, result.plan.deployment
    facts = [f"batch {span(load.batch)}", f"prompt {span(load.prompt)}"]
    facts += [f"output {span(load.output)}"]
    layout = {"TP": plan.tp, "PP": plan.pp, "EP": plan.ep, "DP": plan.dp}
    facts += [f"{name} {ranks}" for name, ranks in layout.items() if ranks > 1]
    facts += [f"weights {plan.weights}", f"cache {plan.kv_cache}", plan.engine]
    if source:
        facts.append(result.calibration)
    return lines_of(facts, int(width * CHARACTERS))


def lines_of(facts: Iterable[str], most: int) -> str:
    """Facts with points between them, in lines of at most ``most`` characters."""
    lines: list[str] = []
    for fact in facts:
        longer = f"{lines[-1]} · {fact}" if lines else fact
        if lines and len(longer) <= most:
            lines[-1] = longer
        else:
            lines.append(fact)
    return "\n".join(lines)


def title(axes: Any, head: str, facts: str) -> None:
    """A headline over the axes, and what it holds for in smaller print."""
    axes.set_title(head + "\n" * (facts.count("\n") + 1), loc="left", fontsize=11)
    axes.annotate(facts, (0, 1), (0, 4), xycoords="axes fraction", textcoords="offset points",
                  fontsize=8, color="0.3", annotation_clip=False)  # fmt: skip
