"""Time to plan and to write the plan's workbook and tables.

Run: ``python benchmarks/workbook.py``.
"""

import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import perfmodel
from reports.workbook.book import book_of, write_workbook
from reports.workbook.files import write_tables

REPEATS = 5


def median_s(work: Callable[[], object]) -> float:
    """Median CPU seconds of repeated calls."""
    taken = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def main() -> None:
    """Print the figures."""
    level = perfmodel.ServiceLevel(ttft_s=0.5, tpot_s=0.04)
    kind = perfmodel.RequestClass(prompt=2048, output=256, level=level)
    traffic = perfmodel.Traffic(rate=20.0, classes=(kind,), growth=0.1, months=12)
    start = time.process_time()
    plan = perfmodel.plan("llama-3.1-8b", ["h100-sxm", "h200-sxm"], traffic)
    planned = time.process_time() - start
    book = book_of(plan)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        written = median_s(lambda: write_workbook(book, path / "plan.xlsx"))
        size = (path / "plan.xlsx").stat().st_size
        tables = median_s(lambda: write_tables(book.tables, path / "plan.parquet", ".parquet"))
    built = median_s(lambda: book_of(plan))
    print(  # noqa: T201
        f"{platform.machine()}, Python {platform.python_version()}, CPU seconds\n"
        f"plan, {plan.considered} deployments, {len(plan.choices)} simulated  {planned:7.2f}\n"
        f"workbook built                         {built:7.2f}\n"
        f"workbook written ({size / 1e3:,.0f} kB)               {written:7.2f}\n"
        f"capacity table as Parquet              {tables:7.2f}"
    )


if __name__ == "__main__":
    main()
