"""The errors that shipped calibrations state, as a table of docs/kernels.md.

Run: ``python -m calibrate.error_table docs/kernels.md``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from perfmodel.kernels.calibration_file import CalibrationFile, SetRecord, read_calibration
from perfmodel.kernels.choice import available

START, END = "<!-- errors -->", "<!-- end of errors -->"
STACK = "vllm"


def cell(record: SetRecord | None) -> str:
    """Median / 90th percentile in %, and the share of rows inside the interval."""
    if record is None:
        return "–"
    e = record.errors["all"]
    return f"{e.median:.1f} / {e.p90:.0f} ({e.coverage:.0f})"


def errors_table() -> str:
    """One row per set that any device has, one column per device."""
    files: dict[str, CalibrationFile] = {
        name: read_calibration(stacks[STACK])
        for name, stacks in available().items()
        if STACK in stacks
    }
    names = sorted({name for file in files.values() for name in file.sets})
    lines = [
        "Median / 90th percentile of the absolute error in %, and the share of calls inside the "
        "90 % interval, on calls that the fits didn't see (vLLM's kernels, NCCL).",
        "",
        f"| set | {' | '.join(files)} |",
        "|---" * (len(files) + 1) + "|",
    ]
    for name in names:
        cells = (cell(file.sets.get(name)) for file in files.values())
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def with_table(text: str) -> str:
    """A page with the table between its marks."""
    before, rest = text.split(START)
    after = rest.split(END)[1] if END in rest else rest
    return f"{before}{START}\n{errors_table()}\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Rewrite the page that is named."""
    page = Path(arguments[0])
    page.write_text(with_table(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
