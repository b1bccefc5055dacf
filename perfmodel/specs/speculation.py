"""Speculative decoding: who drafts, how many tokens, and how many of them are accepted."""

from __future__ import annotations

from itertools import accumulate
from operator import mul
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, model_validator
from pydantic_core import PydanticCustomError

from perfmodel.errors import UnknownNameError
from perfmodel.specs.base import Case, whole_number
from perfmodel.specs.formats import number_format

MOST_TOKENS = 64
"""Depth of a chain or tree: engines draft at most a dozen."""
MOST_NODES = 1024
"""Tokens of a tree that one step verifies."""

Method = Literal["draft", "medusa", "eagle", "mtp", "ngram", "lookahead"]
CHAINS = ("mtp", "ngram")
"""Methods that draft a chain alone."""
NETLESS = ("ngram", "lookahead")
"""Methods without weights of their own."""
WITH_MODEL = ("draft", "eagle")
"""Methods that take a model to draft with."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rates(value: Any) -> Any:
    """A rate from 0 to 1, or a tuple of one per depth."""
    if value is None:
        return None
    several = isinstance(value, list | tuple)
    rates = tuple(value) if several else (value,)
    if not rates or not all(_is_number(rate) for rate in rates):
        raise PydanticCustomError(
            "rates", "a rate such as 0.8 is needed, or one per depth: 0.9,0.7,0.4"
        )
    wrong = next((rate for rate in rates if not 0 <= rate <= 1), None)
    if wrong is not None:
        raise PydanticCustomError("rates", "{rate} is out of range: from 0 to 1", {"rate": wrong})
    return tuple(float(rate) for rate in rates) if several else float(value)


def _branching(value: Any) -> Any:
    """Children of each node, by depth."""
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not value:
        raise PydanticCustomError("tree", "children per depth are needed, such as 4,2,1")
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in value):
        raise PydanticCustomError("tree", "whole numbers from 1 are needed, such as 4,2,1")
    nodes = sum(accumulate(value, mul))
    if len(value) > MOST_TOKENS or nodes > MOST_NODES:
        raise PydanticCustomError(
            "tree", "{nodes} tokens in {depth} depths; at most {most} in {deep}",
            {"nodes": nodes, "depth": len(value), "most": MOST_NODES, "deep": MOST_TOKENS},
        )  # fmt: skip
    return tuple(value)


def _at_least(low: float, what: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        if value is None:
            return None
        if not _is_number(value) or not low <= value <= 1e6:
            raise PydanticCustomError(
                "range", "{what} from {low} on is needed", {"what": what, "low": f"{low:g}"}
            )
        return float(value)

    return BeforeValidator(check)


def _format(name: Any) -> Any:
    """A number format's name, or ``auto``."""
    if isinstance(name, str) and name != "auto":
        try:
            return number_format(name).name
        except UnknownNameError as error:
            raise PydanticCustomError("format", "{problem}", {"problem": str(error)}) from None
    return name


def _fault(field: str, problem: str) -> PydanticCustomError:
    return PydanticCustomError("speculation", "{problem}", {"field": field, "problem": problem})


class Speculation(Case):
    """A round drafts tokens, verifies them in one step, and keeps those up to the first miss."""

    method: Method
    """``draft``: a smaller model; ``medusa``: extra heads; ``eagle``: a layer on the target's
    hidden states; ``mtp``: the checkpoint's own modules; ``ngram``: a lookup in what was said;
    ``lookahead``: n-grams from Jacobi iterations, which the same step goes on with."""
    draft_model: str | None = None
    """What drafts (``draft``, ``eagle``): as a command's MODEL."""
    tokens: Annotated[int | None, whole_number(0, MOST_TOKENS)] = None
    """Tokens of a chain; a tree says its own. 0 is plain decoding."""
    tree: Annotated[tuple[int, ...] | None, BeforeValidator(_branching)] = None
    """Children of each node by depth: (4, 2, 1) has 4 + 8 + 8 tokens."""
    acceptance: Annotated[float | tuple[float, ...] | None, BeforeValidator(_rates)] = None
    """Chance that a drafted token is accepted, given that its parent was: one for all depths,
    or one per depth."""
    accepted_length: Annotated[float | None, _at_least(1, "a mean length")] = None
    """Measured mean of tokens per round, the bonus token counted: 1 is plain decoding."""
    draft_cost: Annotated[float | None, _at_least(0, "a share of a step")] = None
    """What a drafted token adds to a round, as a share of a plain decode step: its drafting and
    the growth of verification together, as measured. None: from the operators."""
    draft_weights: Annotated[str, BeforeValidator(_format)] = "auto"
    """Format of the draft's linear layers; ``auto``: its checkpoint's, for ``mtp`` the target's."""

    @property
    def branching(self) -> tuple[int, ...]:
        """Children of each node by depth; ones for a chain."""
        return self.tree if self.tree is not None else (1,) * (self.tokens or 0)

    @property
    def depth(self) -> int:
        """The longest run of tokens that a round can accept, the bonus token apart."""
        return len(self.branching)

    @property
    def levels(self) -> tuple[int, ...]:
        """Tokens that are verified at each depth, the root (the last token accepted) first.

        Lookahead's step runs its window beside the n-grams that it verifies, as many tokens
        again: the window is as wide as there are n-grams (W = G in arXiv 2402.02057).
        """
        beside = 2 if self.method == "lookahead" else 1
        return (1, *(beside * nodes for nodes in accumulate(self.branching, mul)))

    @property
    def nodes(self) -> int:
        """Tokens beside the root that a step verifies."""
        return sum(self.levels) - 1

    @model_validator(mode="after")
    def _check(self) -> Speculation:
        if (self.tokens is None) == (self.tree is None):
            raise _fault("tokens", "needed, or a tree instead of it; one of the two")
        if self.tree is not None and self.method in CHAINS:
            raise _fault("tree", f"{self.method} drafts a chain; state its tokens instead")
        if self.method == "lookahead" and any(n > 1 for n in self.branching[1:]):
            raise _fault("tree", "n-grams of lookahead branch at their first token only: 15,1,1,1")
        if self.method == "draft" and self.draft_model is None:
            raise _fault("draft_model", "the method draft needs one, such as llama-3.2-1b")
        if self.draft_model is not None and self.method not in WITH_MODEL:
            raise _fault("draft_model", f"{self.method} brings its own; leave it out")
        if self.draft_weights != "auto" and self.method in NETLESS:
            raise _fault("draft_weights", f"{self.method} has no weights; leave it out")
        self._check_acceptance()
        return self

    def _check_acceptance(self) -> None:
        if (self.acceptance is None) == (self.accepted_length is None):
            raise _fault("acceptance", "needed, or the measured accepted length; one of the two")
        rates, length = self.acceptance, self.accepted_length
        if isinstance(rates, tuple) and len(rates) != self.depth:
            raise _fault("acceptance", f"{len(rates)} rates for {self.depth} depths")
        if length is not None and length > self.depth + 1:
            raise _fault(
                "accepted_length",
                f"{length:g} is more than the {self.depth + 1} tokens that a round can give",
            )
