"""The launch commands of one deployment: what they are made from, and what they are."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perfmodel.inference.plan import Plan
from perfmodel.serving.serve import Serving
from perfmodel.specs.deployment import Deployment


@dataclass(frozen=True, slots=True)
class Launched:
    """A deployment that is to be launched."""

    model: str
    """What the engine is to load, where the user named it so (a hub id or a folder); empty: unknown
    to it, and left to a shell variable."""
    called: str
    """The model's name."""
    given: Deployment
    """As it was asked for."""
    plan: Plan
    """As it is understood, by the engine's preset; of one replica where those of ``dp`` share
    nothing."""
    serving: Serving
    longest: int | None
    """Tokens of the longest request; None: no limit is set."""

    @property
    def argument(self) -> str:
        """The model as the shell is given it.

        A name of the catalogue is no hub id: the shell then stops with a line that says what is
        missing.
        """
        if self.model:
            return shlex.quote(self.model)
        return f'"${{MODEL:?set it to the hub id or folder of {self.called}}}"'

    @property
    def roles(self) -> tuple[str, ...]:
        """``prefill`` and ``decode`` where they have pools of their own, else ``engine``."""
        return ("engine",) if self.serving.disaggregate is None else ("prefill", "decode")

    def instances(self, role: str) -> int:
        """Servers of a role in one replica."""
        pools = self.serving.disaggregate
        return 1 if pools is None else pools[role == "decode"]

    @property
    def attention_dp(self) -> int:
        """Data-parallel ranks that share their experts, in one server; 1: none do."""
        return self.given.dp if self.given.ep > 1 else 1

    @property
    def tp_ranks(self) -> int:
        """Ranks of one pipeline stage where attention-DP's are counted among them."""
        return self.plan.parallel.tp * self.attention_dp

    @property
    def caches_prefixes(self) -> bool | None:
        """Whether prompts stay cached; None: as the engine does."""
        return self.serving.prefix_caching


@dataclass(frozen=True, slots=True)
class Server:
    """One kind of server process."""

    role: str
    instances: int
    """How many of them a replica has."""
    words: tuple[str, ...]
    """The command in pieces that stay together on a line."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Commands, the files that they read, and what they leave to the user."""

    engine: str
    servers: tuple[Server, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    """Text by name."""
    notes: tuple[str, ...] = ()

    def script(self) -> str:
        """All of it as shell text: comments, here-documents for the files, commands."""
        parts = [f"# {note}" for note in self.notes]
        for name, text in self.files.items():
            parts.append(f"cat > {shlex.quote(name)} <<'END'\n{text.rstrip()}\nEND")
        for server in self.servers:
            if len(self.servers) > 1 or server.instances > 1:
                times = f"{server.instances} of them in each replica, each on GPUs of its own"
                parts.append(f"# {server.role}: {times}")
            parts.append(" \\\n  ".join(server.words))
        return "\n".join(parts) + "\n"


def launch_record(launch: Launch) -> dict[str, Any]:
    """As plain data."""
    return {
        "engine": launch.engine,
        "servers": [
            {"role": s.role, "instances": s.instances, "command": " ".join(s.words)}
            for s in launch.servers
        ],
        "files": dict(launch.files),
        "notes": list(launch.notes),
    }


def as_json(value: object) -> str:
    """A value as one shell word of JSON."""
    return shlex.quote(json.dumps(value))
