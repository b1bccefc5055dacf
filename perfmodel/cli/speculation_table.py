"""Speculative decoding in the answer of `perfmodel estimate`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from perfmodel.cli.output import table
from perfmodel.cli.text import binary, digits, percent, seconds, whole
from perfmodel.inference.speculation.answer import Speculated
from perfmodel.specs.speculation import Speculation

if TYPE_CHECKING:
    from rich.table import Table


def speculation_fact(s: Speculation) -> str:
    """The setting in a few words."""
    by = f" by {s.draft_model}" if s.draft_model else ""
    size = f"{s.depth} tokens" if s.tree is None else f"tree {_tree(s.tree)}"
    return f"{s.method}{by}, {size}"


def _tree(tree: tuple[int, ...]) -> str:
    return ",".join(map(str, tree)) or "none"


def speculation_table(answer: Speculated) -> Table:
    """Tokens per round, what a round is made of, the speed-up, and what would be better."""
    s = answer.draft.speculation
    made = table(None, [("Speculative decoding", "left"), ("", "right")])
    low, high = answer.speedup_interval
    made.add_row("Tokens of a round, per sequence", digits(answer.expected_tokens))
    made.add_row("Tokens verified, the last accepted one counted", whole(s.nodes + 1))
    made.add_row("Round", seconds(answer.round_s))
    made.add_row("  of it the draft", seconds(answer.draft_s))
    made.add_row("Plain decode step", seconds(answer.plain.time_s))
    cost = answer.draft_cost
    if cost is not None:
        made.add_row("A drafted token adds, of a plain step", percent(float(cost)))
    gain = f"{digits(float(answer.speedup))}× ({digits(float(low))} – {digits(float(high))})"
    made.add_row("Speed-up over plain decoding", gain)
    made.add_row("Best here", _best(answer))
    made.add_row("Stops paying at a batch of", _break_even(answer))
    made.add_row("Weights of the draft, per GPU", binary(answer.draft.weights_bytes))
    return made


def _best(answer: Speculated) -> str:
    best = answer.best
    size = "plain decoding" if not best.tokens else f"{whole(float(best.tokens))} tokens"
    if best.tree and isinstance(best.tree, tuple):
        size = f"tree {_tree(best.tree)}"
    return f"{size} ({digits(float(best.speedup))}×)"


def _break_even(answer: Speculated) -> str:
    batch = answer.break_even_batch
    if batch is None:
        return "– (the draft's cost is stated)"
    return "none that fits" if math.isnan(float(batch)) else whole(float(batch))
