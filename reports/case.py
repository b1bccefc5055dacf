"""What a picture says of its case: the workload, the deployment, and what the times rest on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from perfmodel.inference.estimate import Estimate

CHARACTERS = 13.5
"""Characters of 8 points to the inch, with room to spare."""
HEAD, LINE = 0.32, 0.14
"""Inches of a headline, and of each line below it."""


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


def header(figure: Any, head: str, facts: str) -> None:
    """A headline over all panels of a figure, and what it holds for in smaller print."""
    width, height = figure.get_size_inches()
    tall = HEAD + LINE * (facts.count("\n") + 1) + 0.06
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - tall / height))
    left = 0.1 / width
    figure.text(left, 1 - 0.07 / height, head, va="top", fontsize=11)
    figure.text(left, 1 - HEAD / height, facts, va="top", fontsize=8, color="0.3",
                linespacing=1.2)  # fmt: skip
