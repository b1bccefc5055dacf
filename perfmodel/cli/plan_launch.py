"""`perfmodel plan --emit`: the best choice as the engine's launch command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from perfmodel.errors import InputError
from perfmodel.planning.capacity.answer import Plan
from perfmodel.planning.capacity.requests import parts_of
from perfmodel.planning.launch.emit import launch_of, preset_of
from perfmodel.planning.launch.launch import Launch
from perfmodel.serving.serve import Serving
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.engine import load_engine
from perfmodel.specs.loading import model_names


def check_emit(engine: str | None, deployment: Deployment) -> None:
    """Say before the work that the command would be another engine's than the numbers.

    Raises:
        InputError: an unknown engine, or one that the deployment isn't planned for.
    """
    if engine is None:
        return
    preset, planned = preset_of(engine), load_engine(deployment.engine).name
    if not planned.startswith(engine):
        raise InputError(f"--emit {engine}: the plan is for {planned}; give --engine {preset}")


def launch_of_best(found: Plan, engine: str, model: str, asked: Serving) -> Launch:
    """The commands of the best choice.

    Args:
        found: a plan with a choice.
        engine: ``vllm``, ``trtllm`` or ``sglang``.
        model: as the user named it.
        asked: what the user said of scheduler and caching. A plan whose requests share nothing is
            simulated without prefix caching, which need not be turned off for it.

    Raises:
        InputError: a setting that the engine lacks.
    """
    best = found.choices[0]
    loads = "/" in model or Path(model).exists()
    named = model.strip().lower() in model_names() or model.endswith(".json") or not loads
    caching = best.serving.prefix_caching or asked.prefix_caching
    ends = [(part.prompt.longest, part.output.longest) for part in parts_of(found.traffic)]
    longest = [p + o for p, o in ends if p is not None and o is not None]
    return launch_of(
        engine, found.model, best.hardware, best.deployment,
        replace(best.serving, prefix_caching=caching),
        argument="" if named else model,
        longest=max(longest) if len(longest) == len(ends) else None,
    )  # fmt: skip


def script_of(found: Plan, launch: Launch) -> str:
    """The commands, with what they are commands of."""
    best, fleet = found.choices[0], found.choices[0].fleet
    spare = f", {found.terms.spare} of them spare" if found.terms.spare else ""
    about = (
        f"# {fleet.replicas} replicas of {best.gpus_per_replica} {best.hardware.name} each"
        f"{spare}: {best.label}. This starts one."
    )
    return f"{about}\n{launch.script()}"
