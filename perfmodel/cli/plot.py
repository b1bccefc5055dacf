"""`perfmodel plot`: pictures of estimates over the batch or the context."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from perfmodel.cli.inputs import inputs
from perfmodel.cli.lazy import HELP
from perfmodel.cli.options import takes_cases
from perfmodel.cli.output import print_json
from perfmodel.cli.overflow import refuse_overflow, refuse_unfit
from perfmodel.cli.parsers import duration
from perfmodel.cli.pictures import OUTPUT, drawer, force_option, json_option, size_option
from perfmodel.errors import InputError
from perfmodel.inference.breakdown import largest_within
from perfmodel.inference.estimate import Estimate, estimate
from perfmodel.inference.record import estimate_record
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.workload import Workload

app = typer.Typer(
    no_args_is_help=True, add_completion=False, context_settings=HELP,
    help="Pictures: breakdown, batch, memory. `perfmodel roofline` draws the roofs.",
)  # fmt: skip
MOST = 512
"""Batch beyond which a picture doesn't go by itself."""
BATCHES, CONTEXTS = 28, 64
"""Points of a curve."""
SHORTEST = 128
"""Tokens of the shortest context that is drawn by itself."""
MODEL = typer.Argument(help="Catalogue name, config.json, folder with one, or hub id.")
HARDWARE = typer.Option("--hardware", "-H", help="Name of a profile, or a YAML file.")
OUT = typer.Option("--out", metavar="<file>", help="The picture: .svg, .png or .pdf.",
                   rich_help_panel=OUTPUT)  # fmt: skip


@app.command("breakdown")
@takes_cases("batch", "prompt")
def breakdown(
    model: Annotated[str, MODEL],
    hardware: Annotated[str, HARDWARE],
    workload: Workload,
    deployment: Deployment,
    out: Annotated[Path, OUT],
    size: Annotated[Any, size_option()] = "9x5",
    force: Annotated[bool, force_option()] = False,
    as_json: Annotated[bool, json_option()] = False,
) -> None:
    """Where prefill and a decode step spend their time: stacked bars over the batch or prompt.

    Give --batch or --prompt as a list; without, batches of powers of two up to what fits.
    """
    reads = inputs(model, hardware, deployment=deployment)
    draw = drawer("breakdown", "draw_breakdown", out, force=force, reads=reads)
    if not np.ndim(workload.batch) and not np.ndim(workload.prompt):
        most = _most(estimate(model, hardware, workload, deployment), workload)
        workload = _with(workload, batch=_powers(most))
    result = estimate(model, hardware, workload, deployment)
    refuse_unfit(result, deployment)
    _finish(draw, out, as_json, [result], result, size=size)


@app.command("batch")
@takes_cases("batch")
def batch(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    model: Annotated[str, MODEL],
    hardware: Annotated[list[str], HARDWARE],
    workload: Workload,
    deployment: Deployment,
    out: Annotated[Path, OUT],
    tpot_limit: Annotated[Any, typer.Option(
        "--tpot-limit", parser=duration, metavar="<time>",
        help="Longest time per output token that is promised: seconds, or 50ms.",
    )] = None,
    size: Annotated[Any, size_option()] = "9x6",
    force: Annotated[bool, force_option()] = False,
    as_json: Annotated[bool, json_option()] = False,
) -> None:  # fmt: skip
    """TPOT and throughput over the batch, with their intervals and the promised TPOT.

    Give --batch as a list; without, as many as fit on the device with the most room.
    """
    reads = inputs(model, *hardware, deployment=deployment)
    draw = drawer("batch", "draw_batch", out, force=force, reads=reads)
    if np.min(workload.output) < 2:
        raise InputError("--output: 1 token has no TPOT: 2 at least")
    if not np.ndim(workload.batch):
        each = [_most(estimate(model, h, workload, deployment), workload) for h in hardware]
        steps = np.concatenate([np.geomspace(1, max(each), BATCHES).round(), each])
        if tpot_limit is not None:
            every = _with(workload, batch=np.arange(1, max(each) + 1))
            kept = (largest_within(estimate(model, h, every, deployment), tpot_limit)
                    for h in hardware)  # fmt: skip
            steps = np.concatenate([steps, [batch for batch in kept if batch is not None]])
        workload = _with(workload, batch=np.unique(steps))
    results = [estimate(model, h, workload, deployment) for h in hardware]
    for result in results:
        if not np.any(result.memory.fits):
            refuse_unfit(result, deployment)
    _finish(draw, out, as_json, results, results, limit_s=tpot_limit, size=size)


@app.command("memory")
@takes_cases("batch", "prompt")
def memory(
    model: Annotated[str, MODEL],
    hardware: Annotated[str, HARDWARE],
    workload: Workload,
    deployment: Deployment,
    out: Annotated[Path, OUT],
    size: Annotated[Any, size_option()] = "9x5.5",
    force: Annotated[bool, force_option()] = False,
    as_json: Annotated[bool, json_option()] = False,
) -> None:
    """Memory of one GPU over the context, with its capacity; --batch may be a list.

    Give --prompt as a list; without, up to the longest context of the smallest batch.
    """
    reads = inputs(model, hardware, deployment=deployment)
    draw = drawer("memory", "draw_memory", out, force=force, reads=reads)
    batches = np.unique(np.ravel(workload.batch))
    prompts = workload.prompt
    if not np.ndim(prompts):
        one = _with(workload, batch=int(batches[0]))
        prompts = _contexts(estimate(model, hardware, one, deployment), one)
    column = batches[:, None] if len(batches) > 1 else int(batches[0])
    shown = _with(workload, batch=column, prompt=np.asarray(prompts))
    result = estimate(model, hardware, shown, deployment)
    _finish(draw, out, as_json, [result], result, size=size)


def _with(workload: Workload, **changes: Any) -> Workload:
    return Workload(**{**dict(workload), **changes})


def _most(result: Estimate, workload: Workload) -> int:
    """The largest batch that a picture shows: as stated, or as fits.

    Raises:
        CapacityError: where nothing fits.
    """
    refuse_overflow(result)
    fits = int(result.memory.max_sequences)
    return min(fits, MOST) if workload.batch == 1 else int(workload.batch)


def _powers(most: int) -> Any:
    """1, 2, 4, …, and the largest itself."""
    return np.unique([*(2**power for power in range(most.bit_length())), most])


def _contexts(result: Estimate, workload: Workload) -> Any:
    """Prompts up to a third beyond where memory is full, or the model's positions end."""
    longest = float(result.memory.max_context)
    known = result.model.max_positions or float("inf")
    end = min(longest * 4 / 3, known)
    if not np.isfinite(end):
        end = 2**20
    most = max(end - float(workload.output), 2 * SHORTEST)
    low = max(SHORTEST, int(workload.cached_prefix) + 1)
    return np.unique(np.geomspace(low, max(most, 2 * low), CONTEXTS).round())


def _finish(
    draw: Any, out: Path, as_json: bool, results: list[Estimate], shown: Any, **how: Any
) -> None:
    draw(shown, out, **how)
    if as_json:
        print_json({"estimates": [estimate_record(result) for result in results]})
