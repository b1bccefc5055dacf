"""Conditions over columns, such as ``fits and tpot_ms < 40``: read, checked, and worked out.

Nothing is executed: the text is parsed, and only comparisons, arithmetic, ``and``, ``or``, ``not``
and ``in`` over known columns are taken, each with operands of its kind.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from perfmodel.planning.sweep.columns import Kind, known_column
from perfmodel.planning.sweep.table import Segment
from perfmodel.specs.base import FieldError

Sort = Literal["text", "number", "flag"]
Value = Callable[[Segment], Any]

ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: np.true_divide,
    ast.Mod: np.mod,
    ast.Pow: np.float_power,
}
ORDER: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
LONGEST = 2000
"""Characters of an expression."""


@dataclass(frozen=True, slots=True)
class _Part:
    sort: Sort
    value: Value


class Condition:
    """An expression over columns.

    Raises:
        InputError: one line that says what isn't understood, or which column there isn't.
    """

    def __init__(self, text: str, columns: dict[str, Kind], flag: str = "where") -> None:
        self._columns, self._flag, self._text = columns, flag, " ".join(text.split())
        if len(text) > LONGEST:
            raise FieldError(flag, f"longer than {LONGEST:,} characters")
        try:
            tree = ast.parse(self._text, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise FieldError(
                flag,
                f"{self._text[:60]!r} isn't a condition; write one such as 'fits and tpot_ms < 40'",
            ) from None
        part = self._part(tree.body)
        if part.sort != "flag":
            raise self._wrong(tree.body, "is no condition; compare it, such as tpot_ms < 40")
        self._value = part.value

    def holds(self, segment: Segment) -> Any:
        """Where it holds: an array, or one truth for all rows."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            return self._value(segment)

    def _wrong(self, node: ast.AST, problem: str) -> FieldError:
        shown = ast.get_source_segment(self._text, node) if hasattr(node, "lineno") else None
        return FieldError(self._flag, f"{(shown or self._text)[:60]!r} {problem}")

    def _part(self, node: ast.expr) -> _Part:
        readers: dict[type[ast.expr], Callable[[Any], _Part]] = {
            ast.BoolOp: self._joined,
            ast.UnaryOp: self._unary,
            ast.BinOp: self._arithmetic,
            ast.Compare: self._compared,
            ast.Name: self._column,
            ast.Constant: self._constant,
        }
        reader = readers.get(type(node))
        if reader is None:
            raise self._wrong(node, "isn't understood: only columns, numbers, words in quotes, "
                                    "comparisons, + - * / % **, and, or, not, in")  # fmt: skip
        return reader(node)

    def _of(self, node: ast.expr, sort: Sort) -> Value:
        part = self._part(node)
        if part.sort != sort:
            needed = {"flag": "a condition", "number": "a number", "text": "a word in quotes"}
            raise self._wrong(node, f"stands where {needed[sort]} is needed")
        return part.value

    def _joined(self, node: ast.BoolOp) -> _Part:
        values = [self._of(each, "flag") for each in node.values]
        join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or

        def value(segment: Segment) -> Any:
            result = values[0](segment)
            for other in values[1:]:
                result = join(result, other(segment))
            return result

        return _Part("flag", value)

    def _unary(self, node: ast.UnaryOp) -> _Part:
        if isinstance(node.op, ast.Not):
            flag = self._of(node.operand, "flag")
            return _Part("flag", lambda segment: np.logical_not(flag(segment)))
        if isinstance(node.op, ast.USub | ast.UAdd):
            number = self._of(node.operand, "number")
            sign = -1 if isinstance(node.op, ast.USub) else 1
            return _Part("number", lambda segment: sign * number(segment))
        raise self._wrong(node, "isn't understood; write not, + or -")

    def _arithmetic(self, node: ast.BinOp) -> _Part:
        apply = ARITHMETIC.get(type(node.op))
        if apply is None:
            raise self._wrong(node, "isn't understood; use + - * / % ** and join with and, or")
        left, right = self._of(node.left, "number"), self._of(node.right, "number")
        return _Part("number", lambda segment: apply(left(segment), right(segment)))

    def _compared(self, node: ast.Compare) -> _Part:
        pairs = zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
        values = [self._pair(left, op, right) for left, op, right in pairs]

        def value(segment: Segment) -> Any:
            result = values[0](segment)
            for other in values[1:]:
                result = np.logical_and(result, other(segment))
            return result

        return _Part("flag", value)

    def _pair(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Value:
        if isinstance(op, ast.In | ast.NotIn):
            return self._member(left, right, inside=isinstance(op, ast.In))
        apply = ORDER.get(type(op))
        if apply is None:
            raise self._wrong(left, "is compared by what isn't understood; use < <= > >= == != in")
        one, two = self._part(left), self._part(right)
        if one.sort != two.sort:
            raise self._wrong(right, f"is compared with a {one.sort}, and is a {two.sort}")
        if one.sort != "number" and not isinstance(op, ast.Eq | ast.NotEq):
            raise self._wrong(left, "has no order; compare it with == or !=")
        return lambda segment: apply(one.value(segment), two.value(segment))

    def _member(self, left: ast.expr, right: ast.expr, *, inside: bool) -> Value:
        if not isinstance(right, ast.Tuple | ast.List) or not right.elts:
            raise self._wrong(right, "is no list; write such as hardware in ('h100-sxm', 'l40s')")
        sort = self._part(left).sort
        one, others = self._of(left, sort), [self._of(each, sort) for each in right.elts]

        def value(segment: Segment) -> Any:
            mine = one(segment)
            found: Any = False
            for other in others:
                found = np.logical_or(found, mine == other(segment))
            return found if inside else np.logical_not(found)

        return value

    def _column(self, node: ast.Name) -> _Part:
        kind = known_column(node.id, self._columns, self._flag)
        sort: Sort = "number" if kind == "whole" else kind
        missing = np.nan if sort == "number" else "none"

        def value(segment: Segment) -> Any:
            found = segment.value(node.id)
            return missing if found is None else found

        return _Part(sort, value)

    def _constant(self, node: ast.Constant) -> _Part:
        constant = node.value
        if isinstance(constant, bool):
            return _Part("flag", lambda _: constant)
        if isinstance(constant, int | float):
            number = float(constant) if abs(constant) < 1e300 else np.inf
            return _Part("number", lambda _: number)
        if isinstance(constant, str):
            return _Part("text", lambda _: constant)
        raise self._wrong(node, "isn't understood: a number or a word in quotes is needed")
