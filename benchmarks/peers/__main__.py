"""Latencies and speed of other calculators beside ours.

Run: ``python -m benchmarks.peers`` where the peers to compare with are installed; those that are
absent are named and skipped. No figure says who is right: docs/validation.md compares with
measurements.
"""

from __future__ import annotations

import contextlib
import io
import logging
import platform
import statistics
import time
from importlib import import_module

from benchmarks.peers import vidur
from benchmarks.peers.case import CASES, Answer, Case, Estimate

PEERS = ("ours", "genz", "aiconfigurator", "llm_viewer")
REPEATS = 3


def timed(estimate: Estimate, case: Case) -> tuple[Answer, float]:
    """The answer and the median CPU seconds of repeated calls."""
    taken = []
    for _ in range(REPEATS):
        start = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            answer = estimate(case)
        taken.append(time.process_time() - start)
    return answer, statistics.median(taken)


def shown(value: float | None) -> str:
    """A latency, or a dash."""
    return "-" if value is None else f"{value:.4g}"


def compare(name: str) -> None:
    """Print a peer's answers to all cases."""
    try:
        estimate = import_module(f"benchmarks.peers.{name}").load()
    except ImportError as error:
        print(f"{name:15} skipped: {error}")  # noqa: T201
        return
    for case in CASES:
        load = f"batch {case.batch} {case.prompt}+{case.output}"
        what = f"{case.model} {case.tp} x {case.hardware} {load}"
        try:
            answer, seconds = timed(estimate, case)
        except Exception as error:
            print(f"{name:15} {what:45} no answer: {type(error).__name__}: {str(error)[:80]}")  # noqa: T201
            continue
        print(  # noqa: T201
            f"{name:15} {what:45} TTFT {shown(answer.ttft_ms):>7} ms   TPOT "
            f"{shown(answer.tpot_ms):>7} ms   {1e3 * seconds:8.1f} CPU-ms a call"
        )


def main() -> None:
    """Print every peer's answers."""
    logging.disable(logging.WARNING)
    print(f"{platform.machine()}, Python {platform.python_version()}")  # noqa: T201
    for name in PEERS:
        compare(name)
    try:
        speed = f"{vidur.requests_per_cpu_second():,.0f} requests/CPU-s, start-up included"
    except (ImportError, RuntimeError) as error:
        speed = f"skipped: {error}"
    print(f"{'vidur':15} {speed}; ours: python benchmarks/serving.py")  # noqa: T201


if __name__ == "__main__":
    main()
