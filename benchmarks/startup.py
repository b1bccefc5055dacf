"""Wall time of whole processes: help, one estimate, an import. Prints medians of ten runs.

Run: ``python benchmarks/startup.py``. Goals: help under 0.4 s, estimate under 0.8 s.
"""

import platform
import statistics
import subprocess
import sys
import time

RUNS = 10
MAIN = "from perfmodel.cli.main import main; main()"
CASES = {
    "python -c pass": ["-c", "pass"],
    "import perfmodel": ["-c", "import perfmodel"],
    "perfmodel --help": ["-c", MAIN, "--help"],
    "perfmodel estimate": ["-c", MAIN, "estimate", "llama-3.1-8b", "--hardware", "h100-sxm"],
    "perfmodel estimate (MoE)": ["-c", MAIN, "estimate", "deepseek-v3", "-H", "h200-sxm", "--tp=8"],
}


def seconds(arguments: list[str]) -> float:
    """Wall time of one Python process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)  # noqa: S603
    return time.perf_counter() - start


def main() -> None:
    """Time each case and print a line."""
    print(f"{platform.machine()}, Python {platform.python_version()}")  # noqa: T201
    for name, arguments in CASES.items():
        seconds(arguments)
        times = [seconds(arguments) for _ in range(RUNS)]
        print(f"{name:26} {statistics.median(times):6.3f} s  ({min(times):.3f}–{max(times):.3f})")  # noqa: T201


if __name__ == "__main__":
    main()
