"""Settings per CPU-second of sweeps: an array call, a table in files, and scalar estimates.

Random batch, prompt and output of llama-3.1-8b on one h100-sxm with its calibrated kernel models,
in one call: prefill and decode time, memory, throughput. The curves are made in that call; what
reading them off takes alone stands beside it. Each line is a process of its own (Python's start and
the reading of model, profile and calibration aren't counted); CPU-seconds are those of all its
threads. Run: ``python benchmarks/sweep.py``.
Goals: 1,000,000 settings per CPU-second of a call; a cost per setting that doesn't grow with the
sweep; peak memory that grows with the part alone.
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

MODEL, HARDWARE = "llama-3.1-8b", "h100-sxm"
CALLS = (100_000, 1_000_000, 2_000_000, 10_000_000)
LARGEST_BATCH, SHORTEST, LONGEST, MOST_OUTPUT = 256, 16, 32_768, 4096
SAMPLE = 200
"""Settings that are compared with `estimate`, one by one."""
FILES = ("1:128", "1:512")
"""Outputs of sweeps into files: the second has four times as many parts."""


def settings(count: int) -> Any:
    """A workload of random settings: batch even, prompt and output even in their logarithm."""
    from perfmodel import Workload  # noqa: PLC0415

    rng = np.random.default_rng(0)
    lengths = rng.uniform(np.log(SHORTEST), np.log(LONGEST), count)
    return Workload(
        batch=rng.integers(1, LARGEST_BATCH + 1, count),
        prompt=np.round(np.exp(lengths)),
        output=np.ceil(np.exp(rng.uniform(0, np.log(MOST_OUTPUT), count))),
    )


def warm() -> None:
    """Read what every call reads."""
    import perfmodel  # noqa: PLC0415

    perfmodel.fast_estimate(MODEL, HARDWARE, perfmodel.Workload(batch=np.array([1, 2]), prompt=64))


def call(count: int) -> dict[str, float]:
    """One array call, and the same with the curves at hand."""
    from perfmodel import Deployment, fast_estimate, load_hardware, load_model  # noqa: PLC0415
    from perfmodel.inference.plan import make_plan  # noqa: PLC0415
    from perfmodel.planning.sweep.fast import Extent, FastCase  # noqa: PLC0415

    warm()
    load = settings(count)
    start = time.process_time()
    answer = fast_estimate(MODEL, HARDWARE, load)
    whole = time.process_time() - start
    del answer
    model, hardware = load_model(MODEL), load_hardware(HARDWARE)
    plan = make_plan(model, hardware, load, Deployment())
    extent = Extent.of(load.batch, load.prompt, load.output, 0)
    one = load.model_copy(update={"batch": 1, "prompt": 1, "output": 1})
    case = FastCase(hardware, plan, one, extent)
    start = time.process_time()
    case.answer(load.batch, load.prompt, load.output)
    return {"settings": count, "call_s": whole, "reading_s": time.process_time() - start}


def errors(count: int) -> dict[str, float]:
    """CPU-seconds of scalar estimates, and how far the call is from them at most."""
    from perfmodel import Workload, estimate, fast_estimate  # noqa: PLC0415

    warm()
    load = settings(100_000)
    fast = fast_estimate(MODEL, HARDWARE, load)
    worst = {"ttft_s": 0.0, "tpot_s": 0.0, "total_s": 0.0}
    start = time.process_time()
    for i in range(count):
        one = Workload(batch=load.batch[i], prompt=load.prompt[i], output=load.output[i])
        exact = estimate(MODEL, HARDWARE, one)
        for name, error in worst.items():
            value = abs(getattr(fast, name)[i] / getattr(exact, name) - 1)
            worst[name] = max(error, float(np.nan_to_num(value)))
    return {"settings": count, "call_s": time.process_time() - start} | worst


def files(outputs: str) -> dict[str, float]:
    """A sweep into Parquet files, a Pareto front beside."""
    from perfmodel.planning.sweep.answer import Sweep  # noqa: PLC0415
    from perfmodel.specs.sweep import parse_sweep  # noqa: PLC0415
    from reports.sweep_run import write_sweep  # noqa: PLC0415

    warm()
    sweep = Sweep(
        parse_sweep(
            {
                "model": MODEL, "hardware": HARDWARE, "batch": "1:256:x2",
                "context": "1k:32k:+16", "output": outputs,
                "pareto": "output_tokens_per_s_per_gpu,tokens_per_s_per_user",
            }
        )
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        result = write_sweep(sweep, Path(folder) / "out")
        seconds = time.process_time() - start
        size = sum(file.stat().st_size for file in (Path(folder) / "out").glob("part-*"))
    return {"settings": result.settings, "call_s": seconds, "bytes": size}


def measured(kind: str, value: str) -> dict[str, float]:
    """A case in a process of its own."""
    command = [sys.executable, __file__, "--case", kind, value]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def line(name: str, found: dict[str, float], more: str = "") -> None:
    """Print a case."""
    rate = found["settings"] / found["call_s"]
    print(  # noqa: T201
        f"{name:34} {found['settings']:>11,.0f} settings {found['call_s']:7.2f} CPU-s "
        f"{rate:>11,.0f} a CPU-s  peak {found['peak_mb']:6,.0f} MB{more}"
    )


def main() -> None:
    """Measure each case and print a line."""
    print(  # noqa: T201
        f"{_processor()}, Python {platform.python_version()}, numpy {np.__version__}\n"
        f"{MODEL} on {HARDWARE}, batch 1–{LARGEST_BATCH}, prompt {SHORTEST}–{LONGEST:,}, "
        f"output 1–{MOST_OUTPUT:,}"
    )
    for count in CALLS:
        found = measured("call", str(count))
        rate = found["settings"] / found["reading_s"]
        line("one array call", found, f"  read off alone {rate:,.0f}")
    for outputs in FILES:
        found = measured("files", outputs)
        line("a table in Parquet", found, f"  {found['bytes'] / found['settings']:.1f} B a setting")
    found = measured("errors", str(SAMPLE))
    worst = ", ".join(f"{n} {100 * found[n]:.2f} %" for n in ("ttft_s", "tpot_s", "total_s"))
    line("scalar estimates", found, f"\n  the call's largest error on them: {worst}")


def _processor() -> str:
    """The processor's name where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [text.split(":", 1)[1].strip() for text in lines if text.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", nargs=2)
    given = parser.parse_args().case
    if given is None:
        main()
    else:
        kinds: dict[str, Any] = {
            "call": lambda v: call(int(v)), "errors": lambda v: errors(int(v)), "files": files,
        }  # fmt: skip
        record = kinds[given[0]](given[1])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        print(json.dumps(record | {"peak_mb": peak}))  # noqa: T201
