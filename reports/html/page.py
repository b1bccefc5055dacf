"""From a report to one self-contained file: the template, its style, its script and its data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from perfmodel.whole_file import write_whole
from reports.html.columns import interned
from reports.html.record import Report
from reports.html.view import PageView, page_view

HERE = Path(__file__).parent
UNIT = re.compile(r"(?<=\d) (?=(?:s|ms|µs|GiB|MiB|%|tokens|sequences)\b|%)")
"""The space before a unit."""
UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "'": "\\u0027"}
"""Characters that could end a script element, or open one."""


def write_page(report: Report, path: Path) -> None:
    """Write a report's page, whole or not at all.

    Raises:
        InputError: the disk refuses.
    """
    text = render(report)
    # A file's name may hold bytes that are no text: they become question marks.
    write_whole(path, lambda part: part.write_bytes(text.encode("utf-8", errors="replace")))


def render(report: Report) -> str:
    """The page as HTML; the same report makes the same text."""
    view = page_view(report)
    script = _asset("report.js")
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            view=view,
            style=_asset("style.css"),
            script=script,
            script_hash=script_hash(script),
            data=embedded(page_data(view)),
            shown=_shown(view),
        )
    )


def page_data(view: PageView) -> dict[str, Any]:
    """What the page's script moves over."""
    grid = view.report.grid
    return {
        "batches": grid.batches,
        "prompts": grid.prompts,
        "asked": grid.asked,
        "start": view.start,
        **interned(view.columns),
    }


def embedded(data: Any) -> str:
    r"""JSON that can stand inside a script element, whatever its texts hold.

    >>> print(embedded("</script>\u2028"))
    "\u003c/script\u003e\u2028"
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character, escaped in UNSAFE.items():
        text = text.replace(character, escaped)
    return text


def script_hash(script: str) -> str:
    """What a content security policy calls this script, and no other."""
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _shown(view: PageView) -> dict[str, str]:
    """Every column's text at the setting that the page starts with."""
    start = view.asked if view.start is None else view.start
    return {name: column[start] for name, column in view.columns.items()}


def _asset(name: str) -> str:
    return (HERE / "assets" / name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"moved": moved, "tied": tied}
    return made


def moved(place: str) -> str:
    """The transform of a place ``x y scale``; the page's script makes the same.

    >>> moved("12.5 3 2")
    'translate(12.5 3) scale(2)'
    """
    x, y, scale = place.split(" ")
    return f"translate({x} {y}) scale({scale})"


def tied(text: str) -> str:
    r"""A sentence whose units don't leave their numbers at the end of a line.

    >>> tied("after 352 ms, then").split(" ")[1] == "352\N{NO-BREAK SPACE}ms,"
    True
    """
    return UNIT.sub("\N{NO-BREAK SPACE}", text)
