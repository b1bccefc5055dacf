"""A round: the draft's passes and the step that verifies what they drafted, priced.

With γ = 0 a round is a plain decode step, to the last operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from perfmodel.inference.host import HostTime
from perfmodel.inference.phase import (
    Cost,
    Device,
    OperatorCost,
    PhaseCost,
    join,
    phase_cost,
)
from perfmodel.inference.plan import Plan
from perfmodel.inference.speculation.acceptance import round_tokens
from perfmodel.inference.speculation.draft import Draft
from perfmodel.inference.step_sets import StepSet, operators_of, price
from perfmodel.inference.steps import decode_slabs, mean_context, prefill
from perfmodel.operators.context import Step
from perfmodel.operators.quantity import Array, Quantity, as_quantity, maximum, minimum
from perfmodel.specs.engine_timing import Host
from perfmodel.specs.model import Model
from perfmodel.specs.workload import Workload

PREFIX = "draft."
"""How the names of a draft's operators begin in a phase."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """What prices rounds: the target under its plan, the draft, a device and the host."""

    model: Model
    plan: Plan
    draft: Draft
    device: Device
    host: Host | None

    def plain(self, sequences: Quantity, cached: Quantity, mask: Array | None = None) -> PhaseCost:
        """A decode step without speculation."""
        return self._target(Step("decode", sequences, 1, cached), mask)

    def verify(
        self,
        sequences: Quantity,
        cached: Quantity,
        mask: Array | None = None,
        tokens: Quantity | None = None,
    ) -> PhaseCost:
        """The target over the root and all drafted tokens, the logits of each.

        ``tokens``: those of a chain, instead of the stated chain or tree.
        """
        return self._target(verify_step(self.draft, sequences, cached, tokens), mask)

    def _target(self, step: Step, mask: Array | None) -> PhaseCost:
        plan = self.plan
        step = replace(step, kept=plan.kept_tokens("decode"))
        operators = operators_of(self.model, step, plan)
        steps = StepSet(operators, step.sequences, mask, verified=step.new)
        return price(steps, self.model, plan, self.device, self.host)

    def drafting(
        self,
        sequences: Quantity,
        cached: Quantity,
        mask: Array | None = None,
        tokens: Quantity | None = None,
    ) -> PhaseCost:
        """All passes of the draft in one round."""
        total = PhaseCost((), Cost())
        kept = self.plan.kept_tokens("decode")
        for whole, passes in draft_passes(self.draft, sequences, cached, tokens):
            step = replace(whole, kept=kept)
            operators = self.draft.operators(step, self.plan.deployment)
            overlap = self.plan.deployment.comm_overlap
            one = phase_cost(operators, self.device, mask, self._draft_host(sequences), overlap)
            total = join(total, scaled(one, passes))
        return total

    def _draft_host(self, sequences: Quantity) -> HostTime | None:
        """The host's time per layer; a pass is inside the engine's step."""
        net = self.draft.per_pass
        if self.host is None or net is None:
            return None
        return HostTime(in_step(self.host), self.plan.engine.name, len(net.layers), sequences)

    def cost(
        self,
        sequences: Quantity,
        cached: Quantity,
        mask: Array | None = None,
        tokens: Quantity | None = None,
    ) -> PhaseCost:
        """A round, the draft's rows first; a stated cost of the draft replaces the operators'."""
        stated = self.draft.speculation.draft_cost
        if stated is None:
            drafted = self.drafting(sequences, cached, mask, tokens)
            return join(drafted, self.verify(sequences, cached, mask, tokens))
        plain = self.plain(sequences, cached, mask)
        nodes = self.draft.speculation.nodes if tokens is None else tokens
        return join(_stated_row(plain, nodes * stated), plain)


def in_step(host: Host) -> Host:
    """The host's times for a draft's pass, which is inside the engine's step: per layer alone."""
    return host.model_copy(update={"step_us": 0.0, "sequence_us": 0.0, "floor_us": 0.0})


def verify_step(
    draft: Draft, sequences: Quantity, cached: Quantity, tokens: Quantity | None = None
) -> Step:
    """The step that verifies a round's tokens after ``cached`` ones."""
    levels = draft.speculation.levels
    if tokens is None and max(levels) > 1:
        branches = tuple((nodes, depth) for depth, nodes in enumerate(levels))
        whole = sum(levels)
        return Step("decode", sequences, whole, cached, logits=whole, branches=branches)
    new = 1 + (draft.speculation.nodes if tokens is None else tokens)
    return Step("decode", sequences, new, cached, logits=new)


def draft_passes(
    draft: Draft, sequences: Quantity, cached: Quantity, tokens: Quantity | None = None
) -> Iterator[tuple[Step, Quantity]]:
    """Steps of the draft in one round, and how often each runs.

    The first pass takes the tokens of the last round, as many as could have been accepted (vLLM
    pads to them); each further one the tokens of the depth before. Those of a chain differ by
    one cached token from each other, and stand in the list once, at their mean context.
    """
    s = draft.speculation
    depth: Quantity = s.depth if tokens is None else tokens
    if s.method == "medusa":
        yield Step("decode", sequences, 1, cached), depth
        return
    if draft.net is None:
        return
    yield Step("decode", sequences, depth + 1, maximum(cached - depth, 0)), minimum(depth, 1)
    if tokens is not None or max(s.levels) == 1:
        yield Step("decode", sequences, 1, cached + depth / 2), maximum(depth - 1, 0)
        return
    held = 0
    for before, nodes in enumerate(s.levels[1:-1]):
        branches = ((nodes, before - held),)
        found = Step("decode", sequences, nodes, cached + 1 + held, nodes, branches=branches)
        yield found, 1
        held += nodes


def scaled(cost: PhaseCost, passes: Quantity) -> PhaseCost:
    """``passes`` executions of a draft's pass; its rows are named as such."""
    whole = isinstance(passes, int)
    rows = tuple(
        replace(
            row,
            name=PREFIX + row.name.removeprefix(PREFIX),
            count=row.count * int(passes) if whole else row.count,
            cost=_times(row.cost, passes),
        )
        for row in cost.operators
    )
    return PhaseCost(() if whole and not passes else rows, _times(cost.total, passes))


def _times(cost: Cost, factor: Quantity) -> Cost:
    return Cost(**{f.name: getattr(cost, f.name) * factor for f in fields(Cost)})


def _stated_row(plain: PhaseCost, share: Quantity) -> PhaseCost:
    """Drafting and the growth of verification as a stated share of a plain step's time."""
    time = _times(plain.total, share)
    counts = ("flops", "weight_bytes", "cache_bytes", "activation_bytes", "wire_bytes")
    cost = replace(time, **dict.fromkeys(counts, 0))
    row = OperatorCost(f"{PREFIX}stated", 1, {}, "none", "stated", cost)
    return PhaseCost((row,), cost)


def mean_round(rounds: Rounds, workload: Workload) -> PhaseCost:
    """A round of the whole batch at the mean context of the decode steps."""
    sequences, cached = mean_context(workload, rounds.plan)
    return rounds.cost(sequences, cached)


def all_rounds(rounds: Rounds, workload: Workload) -> Cost:
    """The rounds that give all tokens after the first, each at its own context.

    There are (output − 1)/E of them; the last counts by the part that is needed.
    """
    total = Cost()
    tokens = round_tokens(rounds.draft.speculation)
    for sequences, cached, mask in decode_slabs(workload, rounds.plan, tokens):
        total = total + rounds.cost(sequences, cached, mask).total
    return total


def draft_prefill(rounds: Rounds, workload: Workload) -> PhaseCost:
    """The draft's own pass over the prompt: its cache must hold what the target's holds."""
    draft = rounds.draft
    if draft.net is None or not draft.speculation.depth:
        return PhaseCost((), Cost())
    host = None if rounds.host is None else in_step(rounds.host)
    plan = replace(rounds.plan, formats=draft.formats, parallel=draft.parallel)
    whole = prefill(draft.net, workload, plan, rounds.device, host)
    sequences = plan.replica_sequences(workload)
    new = as_quantity(workload.new_tokens)
    step = Step("prefill", sequences, new, workload.cached_prefix)
    return scaled(join(phase_cost(draft.join(step), rounds.device), whole), 1)
