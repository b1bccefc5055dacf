"""How cells look: one dictionary of styles, each also as an input."""

from __future__ import annotations

from typing import Any

BLUE, ORANGE, GREEN, PINK, SKY, YELLOW = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00",
)  # fmt: skip
"""Okabe and Ito's colours, which colour-blind readers tell apart."""
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, YELLOW)
MARKS = ("circle", "square", "diamond", "triangle", "x", "plus")
GREY, PALE = "#595959", "#F2F2F2"
INK = "#1F3864"
INPUT = "*"
"""Behind the name of a style: the same for a cell to type into."""

_NUMBERS = {
    "general": "General",
    "int": "#,##0",
    "n1": "#,##0.0",
    "n2": "#,##0.00",
    "n3": "#,##0.000",
    "n2z": '#,##0.00;-#,##0.00;"–"',
    "n3z": '#,##0.000;-#,##0.000;"–"',
    "percent": "0.0%",
    "percent0": "0%",
    "usd": '"$"#,##0',
    "usd2": '"$"#,##0.00',
    "usd3": '"$"#,##0.000',
}
_TEXTS: dict[str, dict[str, Any]] = {
    "text": {"indent": 1},
    "wrap": {"text_wrap": True, "valign": "top"},
    "words": {"text_wrap": True, "align": "right"},
    "title": {"bold": True, "font_size": 15, "font_color": INK},
    "lead": {"font_color": GREY, "italic": True},
    "section": {"bold": True, "font_size": 12, "font_color": INK, "bottom": 2,
                "bottom_color": INK},
    "unit": {"font_color": GREY, "indent": 1},
    "note": {"font_color": GREY, "font_size": 9, "indent": 1},
    "head": {"bold": True, "text_wrap": True, "valign": "vcenter", "align": "center",
             "font_color": "#FFFFFF", "bg_color": INK, "border": 1, "border_color": "#FFFFFF"},
    "label": {},
    "bold": {"bold": True},
    "centre": {"align": "center"},
    "right": {"align": "right"},
}  # fmt: skip
_INPUT: dict[str, Any] = {
    "bg_color": "#FFF2CC", "font_color": "#0000C0", "border": 1, "border_color": "#BF9000",
    "locked": False,
}  # fmt: skip
_ANSWER: dict[str, Any] = {"bold": True, "font_size": 12, "bg_color": "#E2EFDA"}
_CHOSEN: dict[str, Any] = {"bg_color": "#E2EFDA"}
_STRONG: dict[str, Any] = {"bold": True, "bg_color": PALE}


def is_number_style(name: str) -> bool:
    """Whether a style shows numbers."""
    return name in _NUMBERS


def properties(name: str) -> dict[str, Any]:
    """XlsxWriter's properties of a style.

    ``answer.usd`` and ``chosen.usd`` are ``usd`` standing out; a star behind makes an input.

    Raises:
        KeyError: no style has that name.
    """
    made: dict[str, Any] = {"valign": "vcenter"}
    base = name.removesuffix(INPUT)
    emphasis, dot, rest = base.partition(".")
    base = rest if dot else base
    if base in _NUMBERS:
        # What stands for no number ("–") keeps to the right like the numbers around it.
        made |= {"num_format": _NUMBERS[base], "align": "right"}
    else:
        made |= _TEXTS[base]
    if dot:
        made |= {
            "answer": _ANSWER,
            "chosen": _CHOSEN,
            "strong": _STRONG,
            "best": _CHOSEN | {"bold": True},
        }[emphasis]
    return made | _INPUT if name.endswith(INPUT) else made
