"""``python -m calibrate.published.served``: simulate published served rows, write the page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from calibrate.published.reader import published_path, read_published
from calibrate.published.served_cases import loads
from calibrate.published.served_report import report
from calibrate.published.served_run import find_all
from perfmodel.whole_file import write_whole


def main(arguments: list[str] | None = None) -> int:
    """Run; 0 done, 2 no table."""
    parser = argparse.ArgumentParser(prog="python -m calibrate.published.served")
    parser.add_argument("--out", type=Path, help="write the page here instead of to stdout")
    options = parser.parse_args(arguments)
    path = published_path()
    if path is None:
        sys.stderr.write("published.csv is absent: set PERFMODEL_DATA to the shared data folder\n")
        return 2
    mapped, refused = loads(read_published(path))
    page = report(find_all(mapped, _progress), refused)
    if options.out is None:
        sys.stdout.write(page)
    else:
        write_whole(options.out, lambda part: part.write_text(page, encoding="utf-8"))
    return 0


def _progress(done: int, rows: int) -> None:
    if done % 50 == 0 or done == rows:
        sys.stderr.write(f"{done} of {rows} rows\n")


if __name__ == "__main__":
    raise SystemExit(main())
