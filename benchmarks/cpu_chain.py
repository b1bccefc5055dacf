"""Wall time of the calibration's whole path on one CPU thread: run, fit, check, end to end.

Run: ``python benchmarks/cpu_chain.py``. Goal: under three minutes on an idle machine.
"""

import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MAIN = "from perfmodel.cli.main import main; main()"
CASES = Path(__file__).parents[1] / "tests" / "calibrate" / "cases" / "cpu-path.yaml"


def commands(folder: Path) -> list[list[str]]:
    """The commands of the path, into ``folder``."""
    profile, calibration = folder / "profile.yaml", folder / "calibration.yaml"
    same = ["--hardware", str(profile)]
    checked = ["--calibration", str(calibration), *same]
    return [
        ["run", "--cases", str(CASES), "--threads", "1", "--out", str(folder), "--json"],
        ["fit", str(folder), *same, "--stack", "torch", "--out", str(calibration), "--json"],
        ["check", *checked, "--cases", str(CASES), "--json"],
        ["check", *checked, "--end-to-end", "--size", "tiny", "--json"],
    ]


def main() -> None:
    """Print the seconds of each command and of all."""
    total = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for command in commands(Path(folder)):
            start = time.perf_counter()
            done = [sys.executable, "-c", MAIN, "calibrate", *command]
            subprocess.run(done, check=False, capture_output=True)  # noqa: S603  (our own)
            taken = time.perf_counter() - start
            total += taken
            print(f"calibrate {command[0]:6} {taken:6.1f} s")  # noqa: T201
    print(f"all              {total:6.1f} s on {platform.machine()}, Python {sys.version[:6]}")  # noqa: T201


if __name__ == "__main__":
    main()
