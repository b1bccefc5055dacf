"""Other tools' tables in the shared schema: one module per tool, recognised by its columns."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from calibrate.readers import aiconfigurator, infersim, vidur
from calibrate.readers.part import Part
from calibrate.schema import Indices

READERS = (aiconfigurator.read, vidur.read, infersim.read)


def translate(frame: pd.DataFrame, numbers: Indices, path: Path) -> list[Part]:
    """The parts of a file by family; ``frame`` itself where no reader knows its columns.

    Raises:
        InputError: a known layout with a value that can't be read.
    """
    for read in READERS:
        parts = read(frame, numbers, path)
        if parts:
            return parts
    return [Part(None, frame, numbers, "shared")]
