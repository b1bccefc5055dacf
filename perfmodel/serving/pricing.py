"""What the parts of a serving step take, priced by the operators and kernels of an estimate.

The operators of a step fall into groups that add up:

* what runs once over all tokens (linear layers, norms, exchanges): by the number of tokens; where
  ranks share experts, a rank's own part of it by its tokens, and the experts by those of all ranks;
* final norm, LM head and sampling: by the rows whose logits are needed;
* attention and recurrences of the decoding sequences: by their number and mean context, and what
  a draft does for them;
* the same of the prompts' chunks: by their number, mean length and mean cached tokens.

`inference.mixed` prices the same step as a whole; the parts agree with it (tested) but for its
rule that a product over all rows is no faster than over some of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import InputError
from perfmodel.inference.execution import ahead_of_device, beyond_graphs
from perfmodel.inference.host import HostTime
from perfmodel.inference.overlap import hidden_s
from perfmodel.inference.phase import Launches
from perfmodel.inference.plan import Plan
from perfmodel.inference.speculation.acceptance import round_tokens
from perfmodel.inference.speculation.rounds import Rounds, verify_step
from perfmodel.inference.step_sets import body_of, group_s, head_of, made_step
from perfmodel.operators.context import Step
from perfmodel.operators.quantity import Quantity
from perfmodel.operators.record import Elementwise, GroupedGemm, Operator
from perfmodel.specs.engine_timing import Host
from perfmodel.specs.model import Model

Array = NDArray[np.float64]


def of_experts(operator: Operator) -> bool:
    """Whether ranks that share experts do it for the tokens of all of them.

    Exchanges aren't among it: a rank sends its own tokens and gets them back, so that the fullest
    one's link is the busiest.
    """
    passes = isinstance(operator, Elementwise) and operator.part_of == "experts"
    return passes or isinstance(operator, GroupedGemm)


@dataclass(frozen=True, slots=True)
class Pricer:
    """Seconds of the groups of a deployment's operators; numbers or arrays.

    Raises:
        InputError: a deployment whose steps aren't sums of such groups.
    """

    model: Model
    plan: Plan
    device: Launches
    host: Host | None

    def __post_init__(self) -> None:
        if self.plan.offload.active:
            flag = "--kv-offload" if self.plan.offload.kv_share else "--cpu-offload-gb"
            raise InputError(f"{flag}: steps under load aren't priced with it; leave it out")
        if self.plan.deployment.pp_microbatches > 1:
            raise InputError(
                "--pp-microbatches: under load one batch passes the stages in turn; leave it out"
            )
        if self.plan.parallel.cp > 1:
            raise InputError(
                f"--cp: {self.plan.parallel.cp} ranks split each prompt, which steps under load "
                "aren't priced with; use --tp, or leave it out"
            )

    @property
    def width(self) -> int:
        """Tokens that a decoding sequence puts into a step: one, and its drafts."""
        return 1 + (0 if self.stated_draft is not None else self.plan.drafted)

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a decoding sequence gains in a step, on average."""
        draft = self.plan.draft
        return 1.0 if draft is None else max(1.0, float(round_tokens(draft.speculation)))

    @property
    def stated_draft(self) -> float | None:
        """What drafting adds to a plain decode step, as its share, where the user says it."""
        draft = self.plan.draft
        if draft is None or draft.speculation.draft_cost is None:
            return None
        return draft.speculation.draft_cost * draft.speculation.nodes

    def _device(self, decoding: Quantity) -> Launches:
        """The device of a decode step of so many sequences, launching beyond the graphs."""
        alone = beyond_graphs(self.plan, decoding)
        return self.device.launched(alone) if np.any(np.asarray(alone) > 0) else self.device

    def _decode(self, sequences: Quantity, cached: Quantity) -> Step:
        """A decode step, or the one that verifies drafts."""
        if self.plan.draft is None or self.stated_draft is not None:
            return made_step(self.plan, "decode", sequences, 1, cached)
        step = verify_step(self.plan.draft, sequences, cached)
        return replace(step, kept=self.plan.kept_tokens("decode"))

    def _body(self, step: Step, *, per_part: bool) -> Iterable[Operator]:
        operators = body_of(self.model, step, self.plan)
        return (o for o in operators if o.per_part == per_part)

    @property
    def ranks(self) -> int:
        """Attention replicas that step together."""
        return self.plan.parallel.dp

    def shared(self, tokens: Quantity, decoding: Quantity = 0) -> tuple[Quantity, Quantity]:
        """What runs once over ``tokens``, and the part of it that is exchanges.

        ``decoding``: the sequences of a step that only decodes; 0 for steps with prompts. Ranks
        that share experts are taken to have as many tokens each.
        """
        step = Step("decode", tokens, 1, 1)
        return group_s(self._body(step, per_part=False), self._device(decoding))

    def own(self, tokens: Quantity, decoding: Quantity = 0) -> tuple[Quantity, Quantity]:
        """`shared` without the experts: what a rank with ``tokens`` does for them alone."""
        body = self._body(Step("decode", tokens, 1, 1), per_part=False)
        return group_s((o for o in body if not of_experts(o)), self._device(decoding))

    def experts(self, everywhere: Quantity, decoding: Quantity = 0) -> Quantity:
        """The experts' part of `shared`, for ``everywhere`` tokens on all ranks together."""
        body = self._body(Step("decode", everywhere / self.ranks, 1, 1), per_part=False)
        return group_s((o for o in body if of_experts(o)), self._device(decoding))[0]

    def exposed(self, whole: Quantity, exchanges: Quantity) -> Quantity:
        """Shared work without the exchanges that other kernels hide (`inference.overlap`)."""
        overlap = self.plan.deployment.comm_overlap
        if not overlap:
            return whole
        return whole - hidden_s(overlap, exchanges, whole - exchanges)

    def head(self, rows: Quantity, decoding: Quantity = 0) -> Quantity:
        """Final norm, head and sampling of ``rows`` tokens."""
        return self.head_parts(rows, decoding)[0]

    def head_parts(self, rows: Quantity, decoding: Quantity = 0) -> tuple[Quantity, Quantity]:
        """`head`, and the part of it that is exchanges."""
        operators = head_of(self.model, Step("decode", rows, 1, 1), self.plan)
        return group_s(operators, self._device(decoding))

    def fixed(self, sequences: Quantity, everywhere: Quantity | None = None) -> Quantity:
        """A decode step of ``sequences``, the host's time too, but for what their contexts add.

        ``everywhere``: the sequences of all ranks; None: each has as many.
        """
        tokens = sequences * self.width
        if everywhere is None:
            whole, exchanges = self.shared(tokens, sequences)
        else:
            whole, exchanges = self.own(tokens, sequences)
            whole = whole + self.experts(everywhere * self.width, sequences)
        return self.exposed(whole, exchanges) + self.apart(sequences)

    def apart(self, sequences: Quantity) -> Quantity:
        """The part of `fixed` that isn't the layers' shared work."""
        head = self.head(sequences * self.width, sequences)
        return self._launching(sequences) + head + self.serial_s(sequences)

    def _launching(self, sequences: Quantity) -> Quantity:
        """What launches one by one add to `decoding` where a decode step outgrows the graphs."""
        device = self._device(sequences)
        if device is self.device:
            return 0.0
        operators = list(self._body(self._decode(sequences, 1), per_part=True))
        return group_s(operators, device)[0] - group_s(operators, self.device)[0]

    def decoding(self, sequences: Quantity, cached: Quantity) -> Quantity:
        """Attention and recurrences of ``sequences`` with ``cached`` tokens each, and drafting.

        As in a graph, or behind a chunk whose kernels cover the launches.
        """
        step = self._decode(sequences, cached)
        seconds, _ = group_s(self._body(step, per_part=True), self.device)
        draft = self.plan.draft
        if draft is None or self.stated_draft is not None:
            return seconds
        rounds = Rounds(self.model, self.plan, draft, self.device, self.host)
        return seconds + rounds.drafting(sequences, cached).total.time_s

    def prompts(self, sequences: Quantity, new: Quantity, cached: Quantity) -> Quantity:
        """Attention and recurrences of chunks of ``new`` tokens after ``cached`` ones."""
        step = made_step(self.plan, "prefill", sequences, new, cached)
        return group_s(self._body(step, per_part=True), self.device)[0]

    def serial_s(self, sequences: Quantity) -> Quantity:
        """What the host adds to a step and no kernel overlaps."""
        return 0.0 if self.host is None else self._host(sequences).serial_s

    @property
    def floor_s(self) -> float:
        """The shortest step of the host."""
        return 0.0 if self.host is None else self._host(1).floor_s

    def _host(self, sequences: Quantity) -> HostTime:
        assert self.host is not None  # noqa: S101  (callers looked)
        return HostTime(self.host, self.plan.engine.name, len(self.model.layers), sequences)

    def issued_ahead(self) -> tuple[float, float, float]:
        """Tokens beyond which a step with prompts is issued kernel by kernel, and its least time.

        Such a step takes at least as long as a host ahead of the device needs to launch it: of
        prompts alone, and beside decoding sequences.
        """
        graph = self.plan.engine.graph
        if self.host is None or not ahead_of_device(self.plan, graph.prefill_tokens + 1):
            return inf, 0.0, 0.0
        alone = made_step(self.plan, "prefill", 1, 16, 0)
        beside = replace(made_step(self.plan, "decode", 1, 1, 1), beside=(alone,))
        each = self.device.issue_s("eager")
        return graph.prefill_tokens, each * self._launches(alone), each * self._launches(beside)

    def _launches(self, step: Step) -> int:
        operators = [*body_of(self.model, step, self.plan), *head_of(self.model, step, self.plan)]
        return sum(o.count * int(np.max(self.device.time(o).launches)) for o in operators)
