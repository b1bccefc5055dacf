"""What is asked of a deployment: sequences, prompts, outputs. Scalars or arrays."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, ConfigDict, PlainSerializer, model_validator
from pydantic_core import PydanticCustomError

from perfmodel.specs.base import Case

LARGEST = 2**24
"""Far beyond any real batch or context: larger is a typing error."""


def _whole_numbers(low: int) -> BeforeValidator:
    def check(value: Any) -> Any:
        if isinstance(value, bool | str) or value is None:
            raise PydanticCustomError("count", "a whole number is needed")
        array = np.asarray(value)
        if array.dtype.kind not in "iuf" or array.size == 0:
            raise PydanticCustomError("count", "a whole number is needed, or an array of them")
        if not (np.isfinite(array).all() and (array == np.floor(array)).all()):
            raise PydanticCustomError("count", "a whole number is needed")
        if (array < low).any() or (array > LARGEST).any():
            raise PydanticCustomError("count", f"must lie between {low} and {LARGEST:,}")
        return array.astype(np.float64) if array.ndim else int(array.item())

    return BeforeValidator(check)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


Tokens = Annotated[Any, _whole_numbers(1), PlainSerializer(_plain)]
TokensOrZero = Annotated[Any, _whole_numbers(0), PlainSerializer(_plain)]


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
    prefill_chunk: Tokens | None = None
    """Tokens of one sequence that a prefill step processes at most; None: all at once."""

    @model_validator(mode="after")
    def _check(self) -> Workload:
        if np.any(np.asarray(self.cached_prefix) >= np.asarray(self.prompt)):
            raise PydanticCustomError(
                "prefix", "cached_prefix must be shorter than prompt: its last token is computed"
            )
        try:
            np.broadcast_shapes(
                *(np.shape(v) for v in (self.batch, self.prompt, self.output, self.cached_prefix))
            )
        except ValueError:
            raise PydanticCustomError(
                "shape", "arrays don't broadcast against each other"
            ) from None
        if isinstance(self.prefill_chunk, np.ndarray):
            raise PydanticCustomError("chunk", "prefill_chunk must be one number")
        return self
