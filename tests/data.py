"""Where the measured data lies that isn't part of the repository."""

from __future__ import annotations

import os
from pathlib import Path


def data_dir() -> Path | None:
    """The folder of reference data: $PERFMODEL_DATA, else ../shared/data beside the checkout."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("PERFMODEL_DATA", beside))
    return folder if folder.is_dir() else None
