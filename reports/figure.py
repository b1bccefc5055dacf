"""How figures look and are written: the same numbers make the same file.

Colours are Okabe and Ito's, which colour-blind readers tell apart.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from perfmodel.whole_file import write_whole

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
LEGEND: dict[str, Any] = {"framealpha": 0.85, "edgecolor": "none"}


def style() -> AbstractContextManager[None]:
    """Fonts, text as text, and names inside a file that don't change from run to run."""
    return mpl.rc_context({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "perfmodel"})


def save(figure: Figure, path: Path) -> None:
    """Write a figure; the suffix decides the format.

    Raises:
        InputError: the file can't be written.
    """
    suffix = path.suffix.removeprefix(".").lower()
    # Without a date the same numbers make the same file.
    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix)
    write_whole(path, lambda part: figure.savefig(part, format=suffix, dpi=150, metadata=dated))
