"""What a family of kernels is to the harness, and the inputs it runs on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

from calibrate.device import Device
from perfmodel.errors import CapacityError, InputError

Value = int | str
Shape = Mapping[str, Value]
"""A case's columns: sizes as whole numbers, names as text."""
Limit = Literal["compute+memory", "memory", "none"]

BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "fp8": 8, "int8": 8, "int4_wo": 4}
"""Bits of a weight, by the names that measured tables use for dtypes."""
ARITHMETIC = {"int4_wo": "bfloat16"}
"""The multiply-add that a weight-only format is computed with."""
COLD_FACTOR = 3
"""Inputs are rotated over so many times the last-level cache."""
MOST_COPIES = 1024
"""Sets of inputs at most: smaller inputs are flushed from the cache between samples instead."""
MEMORY_SHARE = 0.6
"""Share of the free memory that a case's inputs may take."""
BLOCK = 1_048_573
"""Random elements that fill a tensor by repetition; a prime, so that rows don't repeat."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one call computes and moves, by the counting rules of perfmodel's operators."""

    flops: int
    bytes: int
    """Device-memory traffic: each operand in once, each result out once."""
    arithmetic: str
    """The dtype of its multiply-adds, as a key of the peaks."""
    limit: Limit = "compute+memory"
    """Which roofs its achieved share is taken of."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A case ready to be timed."""

    call: Callable[[int], Any]
    """Runs the kernel on the ``i``-th set of inputs, modulo their number."""
    copies: int
    flush: bool
    """Whether all sets together fit into the last-level cache and must be pushed out of it."""
    host: bool = False
    """Whether the host's launch time is what is measured."""
    graph: bool = True
    context: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Entered around all of a case's calls: what chooses a backend, at no cost per call."""


@dataclass(frozen=True, slots=True)
class Family:
    """A family of kernels."""

    name: str
    columns: tuple[str, ...]
    """A case's columns, in the order of the file, ``kernel`` and ``dtype`` before them."""
    kernels: Mapping[str, Callable[[], str]]
    """What runs it, each with a check that returns why it can't run here, or nothing."""
    legal: Callable[[Shape], bool]
    """Whether a kernel of this shape exists."""
    work: Callable[[Shape], Work]
    prepare: Callable[[Shape, Bench], Prepared]


class Bench:
    """Makes the inputs of cases: random, rotated, within the memory that is free."""

    def __init__(self, device: Device, *, warm: bool = False, seed: int = 0) -> None:
        import torch  # noqa: PLC0415

        self.torch = torch
        self.device = device
        self.warm = warm
        self._generator = torch.Generator(device=device.target).manual_seed(seed)
        self._blocks: dict[str, Any] = {}

    def copies(self, set_bytes: int) -> tuple[int, bool]:
        """How many sets of inputs of ``set_bytes`` bytes to rotate over, and whether to flush.

        Raises:
            CapacityError: not even one set fits.
        """
        room = int(MEMORY_SHARE * self.device.free_bytes()) // max(set_bytes, 1)
        if room < 1:
            raise CapacityError(
                f"inputs of {set_bytes:,} bytes exceed {MEMORY_SHARE:.0%} of the free "
                f"{self.device.free_bytes():,}"
            )
        if self.warm:
            return 1, False
        wanted = math.ceil(COLD_FACTOR * self.device.cache_bytes / max(set_bytes, 1))
        count = max(1, min(wanted, MOST_COPIES, room))
        return count, count < wanted

    def dtype(self, name: str) -> Any:
        """Torch's dtype of a column's name."""
        return getattr(self.torch, "float8_e4m3fn" if name == "fp8" else name)

    def random(self, copies: int, shape: Sequence[int], dtype: str) -> list[Any]:
        """``copies`` tensors of random numbers: normal, or the whole range of an integer.

        One allocation is cut into them; its elements repeat a long random block, because drawing
        each would take longer than the measurement.
        """
        flat = self._filled(copies * math.prod(shape), dtype)
        return list(flat.view(copies, *shape).unbind(0))

    def empty(self, copies: int, shape: Sequence[int], dtype: str) -> list[Any]:
        """``copies`` tensors for results, touched once so that their pages exist."""
        size = (copies, *shape)
        made = self.torch.zeros(size, dtype=self.dtype(dtype), device=self.device.target)
        return list(made.unbind(0))

    def _filled(self, count: int, dtype: str) -> Any:
        block = self._block(dtype)
        flat = self.torch.empty(count, dtype=block.dtype, device=self.device.target)
        whole = count // BLOCK * BLOCK
        if whole:
            flat[:whole].view(-1, BLOCK).copy_(block.expand(whole // BLOCK, BLOCK))
        flat[whole:].copy_(block[: count - whole])
        return flat

    def _block(self, dtype: str) -> Any:
        if dtype not in self._blocks:
            torch, kind = self.torch, self.dtype(dtype)
            where = {"device": self.device.target, "generator": self._generator}
            if kind in (torch.int8, torch.uint8):
                low, high = (-128, 128) if kind == torch.int8 else (0, 256)
                made = torch.randint(low, high, (BLOCK,), dtype=kind, **where)
            else:
                made = torch.randn(BLOCK, **where).to(kind)
            self._blocks[dtype] = made
        return self._blocks[dtype]


def size(shape: Shape, name: str) -> int:
    """A whole number of a case.

    Raises:
        InputError: it is missing, or isn't a positive whole number.
    """
    value = shape.get(name)
    if not isinstance(value, int) or value < 0:
        raise InputError(f"a case's {name} is {value!r:.40}; write a whole number from 0")
    return value


def width(dtype: str) -> int:
    """Bytes of an element.

    Raises:
        InputError: unknown dtype.
    """
    if dtype not in BITS or BITS[dtype] % 8:
        raise InputError(f"unknown dtype {dtype!r:.40}; known: {', '.join(BITS)}")
    return BITS[dtype] // 8


def always() -> str:
    """A kernel that torch itself has."""
    return ""


def any_shape(_: Shape) -> bool:
    """A family without illegal shapes."""
    return True


def importable(module: str) -> Callable[[], str]:
    """A check for a kernel of another package."""

    def check() -> str:
        from importlib.util import find_spec  # noqa: PLC0415

        return "" if find_spec(module) else f"needs the package {module}"

    return check
