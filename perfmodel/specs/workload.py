"""What is asked of a deployment: sequences, prompts, outputs. Scalars or arrays."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, ConfigDict, PlainSerializer, model_validator
from pydantic_core import PydanticCustomError

from perfmodel.specs.base import Case, whole_number, whole_numbers

LARGEST = 2**24
"""Far beyond any real batch or context: larger is a typing error."""


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


Tokens = Annotated[Any, whole_numbers(1, LARGEST), PlainSerializer(_plain)]
TokensOrZero = Annotated[Any, whole_numbers(0, LARGEST), PlainSerializer(_plain)]


def _shares(value: Any) -> Any:
    """A share or an array of them."""
    if value is None:
        return None
    problem = PydanticCustomError("share", "a number from 0 to 1 is needed, or an array of them")
    array = np.asarray(value) if not isinstance(value, str | bool) else np.asarray(None)
    if array.dtype.kind not in "iuf" or array.size == 0:
        raise problem
    if not ((array >= 0) & (array <= 1)).all():  # NaN is no share either
        raise problem
    return array.astype(np.float64) if array.ndim else float(array.item())


Shares = Annotated[Any, BeforeValidator(_shares), PlainSerializer(_plain)]


class Workload(Case):
    """A batch of equal sequences that are prefilled together and decoded together.

    Every count may be a number or an array; arrays broadcast against each other.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    batch: Tokens = 1
    """Sequences in flight over the whole deployment."""
    prompt: Tokens = 1024
    """Tokens of a prompt, a cached prefix included."""
    output: Tokens = 256
    """Tokens that are generated; the first comes out of the prefill."""
    cached_prefix: TokensOrZero = 0
    """Tokens of the prompt whose keys and values are in the cache already."""
    prefix_share: Shares = None
    """Share of the prompts that find ``cached_prefix``, as one common prefix that is stored once;
    None: each prompt finds its own, stored for each."""
    prefill_chunk: Annotated[int | None, whole_number(1, LARGEST, floats=True)] = None
    """Tokens of one sequence that a prefill step processes at most; None: all at once."""

    @model_validator(mode="after")
    def _check(self) -> Workload:
        try:
            np.broadcast_shapes(
                *(np.shape(getattr(self, name)) for name in
                  ("batch", "prompt", "output", "cached_prefix")),
                np.shape(1.0 if self.prefix_share is None else self.prefix_share),
            )  # fmt: skip
        except ValueError:
            raise PydanticCustomError(
                "shape", "the arrays of batch, prompt, output and cached_prefix don't broadcast"
            ) from None
        if np.any(np.asarray(self.cached_prefix) >= np.asarray(self.prompt)):
            raise PydanticCustomError(
                "prefix",
                "must be shorter than the prompt, whose last token is always computed "
                "(prefix {prefix}, prompt {prompt})",
                {"field": "cached_prefix", "prefix": _few(self.cached_prefix),
                 "prompt": _few(self.prompt)},
            )  # fmt: skip
        if self.prefix_share is not None and not np.any(np.asarray(self.cached_prefix) > 0):
            raise PydanticCustomError(
                "prefix",
                "a share of the prompts finds a prefix: say with --cached-prefix how long it is",
                {"field": "prefix_share"},
            )
        return self

    @property
    def prefix_hits(self) -> Any:
        """Share of the prompts that find ``cached_prefix``."""
        return 1 if self.prefix_share is None else self.prefix_share

    @property
    def new_tokens(self) -> Any:
        """Tokens of a prompt that prefill computes, on average over hits and misses."""
        return self.prompt - self.prefix_hits * self.cached_prefix

    def __eq__(self, other: object) -> bool:
        """Whether every field is equal, arrays in all their elements."""
        if not isinstance(other, Workload):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in Workload.model_fields
        )

    def __hash__(self) -> int:
        """A hash that equal workloads share, with arrays too."""
        values = (getattr(self, name) for name in Workload.model_fields)
        return hash(tuple(str(_plain(value)) for value in values))


def _few(value: Any) -> str:
    return f"{value.min():.0f} to {value.max():.0f}" if np.ndim(value) else f"{value}"
