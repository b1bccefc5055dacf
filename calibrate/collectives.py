"""All-reduce, all-gather, reduce-scatter and all-to-all between processes, under torchrun.

    torchrun --nproc-per-node 2 -m calibrate.collectives --out rows/ --backend gloo

NCCL on GPUs (one a process), gloo on CPUs. A sample's time is the slowest rank's, from a barrier
on; rank 0 writes the rows. Messages are counted as measured tables count them: elements × width of
the whole buffer, which each rank holds (all-reduce, all-to-all) or which the ranks' shares make up
(all-gather, reduce-scatter).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from calibrate.device import Device, open_device
from calibrate.measure import warm_state
from calibrate.results import failed_result, now, ok_result, provenance, reason_of, result_columns
from calibrate.roof import Roof
from calibrate.rows import Row, RowFile
from calibrate.runs.base import Prepared, Shape, Work, width
from calibrate.state import State, merge
from calibrate.timing import Sample, Settings, Timer, measure
from perfmodel.errors import InputError

OPS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
COLUMNS = ("op", "num_gpus", "message_bytes")
SIZES = tuple(2**power for power in (10, 13, 16, 18, 20, 22, 24, 25, 27, 29))
"""1 KiB to 512 MiB, three of them in the range where algorithms change."""
SETTINGS = Settings(sample_s=2e-3, budget_s=1.0, warmup_s=2e-2)


def bus_bytes(op: str, message: int, ranks: int) -> int:
    """Bytes that each rank must send at least: NCCL's bus bandwidth is these over the time.

    >>> bus_bytes("all_reduce", 800, 4), bus_bytes("all_gather", 800, 4)
    (1200, 600)
    """
    return message * (ranks - 1) * (2 if op == "all_reduce" else 1) // ranks


class RankTimer:
    """Another timer's samples, each from a barrier on, as long as the slowest rank's."""

    def __init__(self, timer: Timer, torch: Any, wait: Callable[[], None], target: str) -> None:
        self._timer, self._torch, self._wait, self._target = timer, torch, wait, target

    @property
    def method(self) -> str:
        """The timer's, on every rank."""
        return self._timer.method

    @property
    def resolution_s(self) -> float:
        """The timer's."""
        return self._timer.resolution_s

    def prepare(self, repeats: int) -> None:
        """Set the calls per sample; the ranks agree, since they decide by the same times."""
        self._timer.prepare(repeats)

    def sample(self) -> Sample:
        """The slowest rank's sample."""
        self._wait()
        self._torch.distributed.barrier()
        mine = self._timer.sample()
        both = self._torch.tensor([mine.seconds, mine.waited_s], dtype=self._torch.float64)
        both = both.to(self._target)
        self._torch.distributed.all_reduce(both, op=self._torch.distributed.ReduceOp.MAX)
        seconds, waited = both.tolist()
        return Sample(seconds, waited)


def prepare(shape: Shape, device: Device, torch: Any) -> Prepared:
    """The collective on two buffers per rank."""
    op, ranks = str(shape["op"]), int(shape["num_gpus"])
    count = int(shape["message_bytes"]) // width(str(shape["dtype"]))
    if count % ranks:
        raise InputError(f"{shape['message_bytes']} bytes don't split over {ranks} ranks")
    dtype, dist = getattr(torch, str(shape["dtype"])), torch.distributed
    whole = [torch.randn(count, device=device.target).to(dtype) for _ in range(2)]
    part = [torch.randn(count // ranks, device=device.target).to(dtype) for _ in range(2)]
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    # NCCL's average keeps repeated sums from overflowing; gloo has none, and its time doesn't care.
    how = dist.ReduceOp.SUM if device.kind == "cpu" else dist.ReduceOp.AVG
    calls: dict[str, Callable[[int], Any]] = {
        "all_reduce": lambda i: dist.all_reduce(whole[i % 2], op=how),
        "all_gather": lambda i: gather(whole[i % 2], part[i % 2]),
        "reduce_scatter": lambda i: scatter(part[i % 2], whole[i % 2], op=how),
        "alltoall": lambda i: dist.all_to_all_single(whole[i % 2], whole[1 - i % 2]),
    }
    return Prepared(calls[op], copies=2, flush=False, graph=False)


def row_of(shape: Shape, device: Device, torch: Any, settings: Settings) -> Row:
    """Measure one collective on all ranks together; a failure is the row's reason."""
    moved = bus_bytes(str(shape["op"]), int(shape["message_bytes"]), int(shape["num_gpus"]))
    work = Work(0, moved, str(shape["dtype"]), "none")
    states: list[State] = []
    try:
        prepared = prepare(shape, device, torch)
        # On the CPU the calling thread sleeps while its peers send.
        inner = device.timer(prepared.call, host=device.kind == "cpu", graph=False, flush=False)
        timer = RankTimer(inner, torch, device.synchronize, device.target)
        timing = measure(timer, settings, None, lambda: states.append(warm_state(device)))
    except Exception as error:
        result = failed_result(work, reason_of(error), settings, warm=True)
    else:
        result = ok_result(work, (prepared, timing, timer.method), settings, Roof(), warm=True)
    state = merge([*states, device.state()])
    return Row("collective", shape, result, state, provenance(device), now())


def shapes(sizes: Sequence[int], ops: Sequence[str], dtype: str, ranks: int, kernel: str) -> Any:
    """Every operation at every size."""
    for op in ops:
        for message in sizes:
            yield {
                "kernel": kernel, "dtype": dtype, "op": op, "num_gpus": ranks,
                "message_bytes": message,
            }  # fmt: skip


def run(out: Path, device: Device, cases: Sequence[Shape], settings: Settings) -> int:
    """Measure ``cases`` that have no row yet; every rank calls this. Returns the new rows.

    Raises:
        InputError: the folder can't be written or has other columns.
    """
    import torch  # noqa: PLC0415

    first = torch.distributed.get_rank() == 0
    file = RowFile(out / "collective.csv", result_columns(COLUMNS)) if first else None
    done = [_key(row) for row in file.rows] if file is not None else []
    shared: list[Any] = [done]
    torch.distributed.broadcast_object_list(shared, src=0)
    todo = [case for case in cases if _key(case) not in set(shared[0])]
    for case in todo:
        row = row_of(case, device, torch, settings)
        if file is not None:
            file.append(row.record())
    return len(todo)


def _key(shape: Any) -> tuple[str, ...]:
    return tuple(str(shape[column]) for column in ("kernel", "dtype", *COLUMNS))


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="calibrate.collectives", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the rows")
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="gloo")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes, by commas")
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--budget", type=float, default=SETTINGS.budget_s, help="s per case")
    parser.add_argument("--tolerance", type=float, default=SETTINGS.tolerance)
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Entry point under torchrun; returns the exit status."""
    import torch  # noqa: PLC0415

    asked = _arguments(given)
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = open_device(f"cuda:{local}" if asked.backend == "nccl" else "cpu")
    torch.distributed.init_process_group(asked.backend)
    try:
        ranks = torch.distributed.get_world_size()
        sizes = [int(text) for text in asked.sizes.split(",")]
        cases = list(shapes(sizes, asked.ops.split(","), asked.dtype, ranks, asked.backend))
        settings = replace(SETTINGS, budget_s=asked.budget, tolerance=asked.tolerance)
        run(asked.out, device, cases, settings)
    finally:
        torch.distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
