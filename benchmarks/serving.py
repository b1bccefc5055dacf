"""CPU time of simulating users in a closed loop, from a model's name to the answer; and memory.

llama-3-8b on one h100-sxm, 256 users, 1,024-token prompts, 256-token outputs; then lengths that
vary. Each run is a process of its own: start-up (imports, tables of step times) is what a first
simulation takes beyond the same one repeated. Run: ``python benchmarks/serving.py``.
Goals: 100,000 requests per CPU-second without start-up; peak memory that doesn't grow.
"""

import json
import platform
import resource
import statistics
import subprocess
import sys
import time

REQUESTS, MORE, RUNS = 10_000, 200_000, 5
CASES = {
    "1024 + 256 tokens": ("1024", "256"),
    "varied lengths": ("uniform:512:1536", "uniform:128:384"),
}


def measure(prompt: str, output: str, requests: int) -> dict[str, float]:
    """Of this process: CPU-seconds of its first and its second simulation, and its peak memory."""
    from perfmodel.serving.arrivals import ClosedLoop, Demand  # noqa: PLC0415  (imports are timed)
    from perfmodel.serving.lengths import Lengths  # noqa: PLC0415
    from perfmodel.serving.serve import Serving, run, served, settled  # noqa: PLC0415

    demand = Demand(
        ClosedLoop(256),
        Lengths.parse(prompt, "prompt"),
        Lengths.parse(output, "output"),
        requests,
    )
    serving = settled(Serving(), demand)
    case = served("llama-3-8b", "h100-sxm", None, serving)
    run(case, demand, serving)
    first = time.process_time()  # all of the process
    run(case, demand, serving)
    again = time.process_time() - first
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"first_s": first, "again_s": again, "peak_mib": peak}


def in_a_process(prompt: str, output: str, requests: int) -> dict[str, float]:
    """`measure` in a Python process of its own."""
    arguments = [sys.executable, __file__, prompt, output, str(requests)]
    answer = subprocess.run(arguments, check=True, capture_output=True, text=True)  # noqa: S603
    measured: dict[str, float] = json.loads(answer.stdout)
    return measured


def main() -> None:
    """Print medians of several runs."""
    print(f"{platform.machine()}, Python {platform.python_version()}")  # noqa: T201
    for name, (prompt, output) in CASES.items():
        few = [in_a_process(prompt, output, REQUESTS) for _ in range(RUNS)]
        many = in_a_process(prompt, output, MORE)
        rates = [REQUESTS / run["again_s"] for run in few]
        starts = [run["first_s"] - run["again_s"] for run in few]
        whole = REQUESTS / statistics.median(run["first_s"] for run in few)
        print(  # noqa: T201
            f"{name:18} {statistics.median(rates):8,.0f} requests/CPU-s "
            f"({min(rates):,.0f}–{max(rates):,.0f}), {MORE / many['again_s']:,.0f} of {MORE:,}; "
            f"with start-up ({statistics.median(starts):.2f} s) {whole:,.0f} of {REQUESTS:,}; "
            f"peak {few[0]['peak_mib']:.0f} MiB, {many['peak_mib']:.0f} MiB of {MORE:,}"
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))))  # noqa: T201
    else:
        main()
