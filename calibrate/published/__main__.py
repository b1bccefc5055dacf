"""``python -m calibrate.published``: score the published table, refit presets, write the page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from calibrate.published.build import build_table
from calibrate.published.cases import cases
from calibrate.published.holdout import predict
from calibrate.published.reader import published_path, read_published
from calibrate.published.refit import refit, write_preset
from calibrate.published.report import report
from calibrate.published.room import rooms
from perfmodel.kernels.calibration import load_calibration
from perfmodel.kernels.choice import available
from perfmodel.specs.engine import load_engine

KERNELS = "vllm"
"""The stack whose calibrations price the published rows' devices."""
KEPT = {"vllm"}
"""Presets that published rows name but that stay as they are: one row is no fit."""


def calibration_name() -> str:
    """What turned work into time."""
    fitted = ", ".join(f"{name}.{KERNELS}" for name, own in available().items() if KERNELS in own)
    return f"{load_calibration().origin} shares, and where there is one the kernels of {fitted}"


def main(arguments: list[str] | None = None) -> int:
    """Run; 0 done, 2 no table."""
    parser = argparse.ArgumentParser(prog="python -m calibrate.published", description=__doc__)
    parser.add_argument("--out", type=Path, help="write the page here instead of to stdout")
    parser.add_argument("--refit", action="store_true", help="refit and write the presets first")
    options = parser.parse_args(arguments)
    path = published_path()
    if path is None:
        sys.stderr.write("published.csv is absent: set PERFMODEL_DATA to the shared data folder\n")
        return 2
    rows = read_published(path)
    mapped, refused = cases(rows)
    table = build_table(mapped)
    if options.refit:
        for name in sorted({c.setting.preset for c in mapped} - KEPT):
            written = write_preset(refit(table, mapped, name), calibration_name())
            sys.stderr.write(f"{written}\n")
        load_engine.cache_clear()
    page = report(mapped, refused, predict(table, mapped), rooms(rows), calibration_name())
    if options.out is None:
        sys.stdout.write(page)
    else:
        options.out.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
