"""What a reader makes of a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from calibrate.schema import Family, Indices
from perfmodel.errors import InputError
from perfmodel.specs.hardware import shipped_name


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one family in the shared schema, not yet checked."""

    family: Family | None
    """None: to be recognised by the columns."""
    frame: pd.DataFrame
    numbers: Indices
    """(n,) row of the file of each row."""
    layout: str


def device_of(path: Path) -> str:
    """The profile that a folder above the file names (``h100_sxm``), or nothing.

    >>> device_of(Path("systems/data/h100_sxm/vllm/0.14.0/gemm_perf.txt"))
    'h100-sxm'
    """
    for folder in reversed(path.parts[:-1]):
        try:
            return shipped_name(folder)
        except InputError:
            continue
    return ""
