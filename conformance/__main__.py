"""``python -m conformance ADAPTER``: run a calculator against the truths."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from conformance.adapter import SHIPPED, load_adapter
from conformance.errors import ConformanceError
from conformance.kinds import KINDS
from conformance.report import record, text
from conformance.run import run
from conformance.truth import Truth
from conformance.truths_file import read_truths

DONE, FAILED, WRONG_INPUT = 0, 1, 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m conformance",
        description="Ask a calculator for counts that were derived by hand, and compare.",
        epilog="Exit status: 0 no failure; 1 a failure; 2 wrong input, or nothing was answered.",
    )
    parser.add_argument(
        "adapter",
        metavar="ADAPTER",
        help=f"{', '.join(SHIPPED)}, module:object, or a file.py (its `adapter`)",
    )
    parser.add_argument(
        "--truths", type=Path, metavar="FILE", help="another file of truths than the shipped one"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=KINDS,
        metavar="KIND",
        help=f"ask for this kind alone (may be repeated): {', '.join(KINDS)}",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    return parser


def _chosen(file: Path | None, only: list[str] | None) -> list[Truth]:
    truths = read_truths(file)
    chosen = [truth for truth in truths if not only or truth.question.kind in only]
    if not chosen:
        raise ConformanceError(f"--only: the file has no truth of {', '.join(only or [])}")
    return chosen


def main(arguments: list[str] | None = None) -> int:
    """Run; 0 no failure, 1 a failure, 2 wrong input."""
    options = _parser().parse_args(arguments)
    try:
        truths = _chosen(options.truths, options.only)
        outcomes = run(truths, load_adapter(options.adapter))
    except ConformanceError as error:
        sys.stderr.write(f"error: {error}\n")
        return WRONG_INPUT
    if options.json:
        answer = json.dumps(record(outcomes, options.adapter), ensure_ascii=False, indent=2)
    else:
        answer = text(outcomes, options.adapter)
    sys.stdout.write(f"{answer}\n")
    if all(outcome.verdict == "unsupported" for outcome in outcomes):
        sys.stderr.write(f"error: {options.adapter} answers none of these questions\n")
        return WRONG_INPUT
    return FAILED if any(outcome.verdict == "failed" for outcome in outcomes) else DONE


if __name__ == "__main__":
    raise SystemExit(main())
