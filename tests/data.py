"""Where the shared measured and published tables are, for the tests that read them."""

import csv
import os
from functools import cache
from pathlib import Path

REASON = "the shared data folder is absent (set PERFMODEL_DATA)"


def data_dir() -> Path | None:
    """PERFMODEL_DATA, else ``shared/data`` beside the repository; None where it is absent."""
    stated = os.environ.get("PERFMODEL_DATA")
    root = Path(__file__).resolve().parents[1]
    path = Path(stated) if stated else root.parent / "shared" / "data"
    return path if path.is_dir() else None


@cache
def model_rows() -> list[dict[str, str]]:
    """The rows of models.csv; empty where it is absent."""
    folder = data_dir()
    if folder is None:
        return []
    with (folder / "models.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
