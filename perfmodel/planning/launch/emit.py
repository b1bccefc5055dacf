"""Launch commands by engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfmodel.errors import InputError
from perfmodel.planning.launch import sglang, trtllm, vllm
from perfmodel.planning.launch.launch import Launch, Launched
from perfmodel.serving.serve import Serving, served
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import Model

COMMANDS: Mapping[str, Callable[[Launched], Launch]] = {
    "vllm": vllm.launch,
    "trtllm": trtllm.launch,
    "sglang": sglang.launch,
}
PRESETS: Mapping[str, str] = {"vllm": "vllm", "trtllm": "trtllm-2025", "sglang": "sglang"}
"""The preset that describes what a command starts."""


def preset_of(engine: str) -> str:
    """The preset whose numbers a command of ``engine`` goes with.

    Raises:
        InputError: an unknown engine.
    """
    if engine not in PRESETS:
        raise InputError(f"--emit: unknown engine {engine[:40]!r}; known: {', '.join(PRESETS)}")
    return PRESETS[engine]


def launch_of(
    engine: str,
    model: Model,
    hardware: Hardware,
    deployment: Deployment,
    serving: Serving | None = None,
    *,
    argument: str = "",
    longest: int | None = None,
) -> Launch:
    """The commands that start ``deployment`` on ``engine``: ``vllm``, ``trtllm`` or ``sglang``.

    Args:
        engine: whose command.
        model: what is served.
        hardware: on what.
        deployment: layout, formats and limits; its preset must be one of the same engine, since
            its numbers are that engine's.
        serving: scheduler, prefix caching, pools.
        argument: what the engine is to load, where it is a hub id or a folder.
        longest: tokens of the longest request, prompt and output.

    Raises:
        InputError: an unknown engine, another one than was priced, or a setting that it lacks.
    """
    preset = preset_of(engine)
    serving = serving or Serving()
    plan = served(model, hardware, deployment, serving).plan
    if not plan.engine.name.startswith(engine):
        raise InputError(
            f"--emit {engine}: the numbers are those of {plan.engine.name}; give --engine {preset}"
        )
    return COMMANDS[engine](Launched(argument, model.name, deployment, plan, serving, longest))
