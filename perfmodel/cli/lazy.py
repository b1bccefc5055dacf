"""Commands that are imported when they are called: `perfmodel --help` imports none of them."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from perfmodel.errors import UnknownNameError

HELP = {"help_option_names": ["-h", "--help"]}
COMMANDS = {
    "estimate": "Latency, throughput and memory of one deployment, and what limits them.",
    "roofline": "Every operator of prefill and decode under a device's roofs; a picture.",
    "plot": "Pictures: breakdown, batch, memory.",
    "sweep": "Every combination of settings, millions of them: filtered, ranked, kept in files.",
    "advise": "What each optimisation gains on one deployment: ranked, with its price.",
    "report": "One self-contained HTML page: the answer, pictures, tables, sources.",
    "simulate": "What users see under load: latencies, queueing and throughput over time.",
    "plan": "How many GPUs of which kind a traffic needs at its service levels, at what cost.",
    "calibrate": "Measure kernels on a device and fit their models: run.",
    "models": "Models that perfmodel knows: list, show.",
    "hardware": "Accelerators that perfmodel knows: list, show, check.",
    "engines": "Serving engines' presets: list, show, copy to change.",
    "validate": "Predictions against measured tables: kernels, serving.",
}
"""Name of each command and its line in the help. Its module holds a typer ``app``."""


class LazyGroup(TyperGroup):
    """A group that knows its commands by name and loads the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """What the help shows of a command, without importing it."""
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(name=cmd_name, help=COMMANDS[cmd_name])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is called, with its arguments.

        Raises:
            UnknownNameError: with the closest command.
        """
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            close = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(COMMANDS)}"
            raise UnknownNameError(f"no command is called {args[0][:40]!r}; {hint}")
        name, command, rest = super().resolve_command(ctx, args)
        if name in COMMANDS:
            module = import_module(f"perfmodel.cli.{name}")
            command = typer.main.get_command(module.app)
        return name, command, rest
