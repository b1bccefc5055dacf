"""What the tests of counting share: totals over a step's operators, and the catalogue's JSON."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from importlib import resources
from typing import Any

from perfmodel.operators.record import Attention, Gemm, GroupedGemm, Operator, Recurrence
from perfmodel.specs.loading import load_model
from perfmodel.specs.model import Model


@functools.cache
def model(name: str) -> Model:
    return load_model(name)


def config(name: str) -> dict[str, Any]:
    """A catalogue entry as it stands in the file, the text part where there are several."""
    path = resources.files("perfmodel") / "catalog" / f"{name}.json"
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    text: dict[str, Any] = data.get("text_config", data)
    return text


def total(operators: Iterable[Operator], quantity: str = "flops") -> Any:
    """Σ count × quantity."""
    return sum(o.count * getattr(o, quantity) for o in operators)


def gemms(operators: Iterable[Operator]) -> list[Any]:
    return [o for o in operators if isinstance(o, Gemm | GroupedGemm)]


def attentions(operators: Iterable[Operator]) -> list[Attention]:
    return [o for o in operators if isinstance(o, Attention)]


def recurrences(operators: Iterable[Operator]) -> list[Operator]:
    return [o for o in operators if isinstance(o, Recurrence)]


def named(operators: Iterable[Operator], name: str) -> Any:
    """The only operator with a name."""
    (one,) = (o for o in operators if o.name == name)
    return one
