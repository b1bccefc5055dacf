"""The flags of `perfmodel simulate` as a demand: who sends requests, how long and how many."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path

import typer

from perfmodel.cli.parsers import positive
from perfmodel.cli.text import counted, digits, whole
from perfmodel.errors import InputError
from perfmodel.serving.arrivals import (
    DEFAULT_OUTPUT,
    DEFAULT_PROMPT,
    ClosedLoop,
    Demand,
    OpenLoop,
    Trace,
)
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.shared_prefix import SharedPrefix
from perfmodel.specs.workload import LARGEST

TURNS, LEAST = 10, 1000
"""Requests of each user, and of all at least, where no number is asked for."""

SCHEDULERS = (
    "How steps are filled, such as chunked_mixed or prefill_first; an unknown name lists them all "
    "(default: the engine's)."
)
"""Help of ``--scheduler``: some names are wider than a narrow terminal's column."""


def pools(text: str) -> tuple[int, int]:
    """Instances that prefill and that decode, as typed: ``2:1``.

    Raises:
        BadParameter: names the text.
    """
    parts = str(text).split(":")
    if len(parts) != 2:
        raise typer.BadParameter(f"{str(text)[:40]!r} is no pair of instances such as 2:1")
    return positive(parts[0]), positive(parts[1])


@dataclass(frozen=True, slots=True)
class Asked:
    """What the flags of a demand say; None: nothing."""

    concurrency: int | None
    rate: float | None
    burstiness: float | None
    trace: Path | None
    prompt: str | None
    output: str | None
    requests: int | None
    seed: int | None
    prefix_tokens: int | None
    prefix_count: int | None

    def demand(self) -> Demand:
        """The requests.

        Raises:
            InputError: flags that miss each other, or a value that is wrong.
        """
        arrivals = self._arrivals()
        requests = self.requests
        if requests is None and not isinstance(arrivals, Trace):
            requests = max(LEAST, TURNS * (self.concurrency or 0))
        prompt = DEFAULT_PROMPT if self.prompt is None else Lengths.parse(self.prompt, "--prompt")
        return Demand(
            arrivals,
            prompt,
            DEFAULT_OUTPUT if self.output is None else Lengths.parse(self.output, "--output"),
            requests,
            self.seed or 0,
            self._prefix(prompt.longest or LARGEST),
        )

    def _arrivals(self) -> ClosedLoop | OpenLoop | Trace:
        ways = {"--concurrency": self.concurrency, "--rate": self.rate, "--trace": self.trace}
        given = [flag for flag, value in ways.items() if value is not None]
        if not given:
            raise InputError(
                "--concurrency, --rate or --trace: say how requests come, such as --concurrency 64"
            )
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)}: one of them at a time")
        if self.burstiness is not None and self.rate is None:
            raise InputError(f"--burstiness: is a rate's; {given[0]} has none")
        if self.trace is not None:
            self._refuse_beside_trace()
            return Trace(self.trace)
        if self.rate is not None:
            if self.burstiness is not None and self.rate == inf:
                raise InputError("--burstiness: at --rate inf all come at once; leave it out")
            return OpenLoop(self.rate, 1.0 if self.burstiness is None else self.burstiness)
        return ClosedLoop(self.concurrency or 0)

    def _refuse_beside_trace(self) -> None:
        for flag, value in (
            ("--prompt", self.prompt), ("--output", self.output),
            ("--prefix-tokens", self.prefix_tokens), ("--prefix-count", self.prefix_count),
        ):  # fmt: skip
            if value is not None:
                raise InputError(f"{flag}: --trace says it of each request; leave {flag} out")
        if self.seed is not None:
            raise InputError("--seed: nothing of a --trace is drawn; leave --seed out")

    def _prefix(self, longest: int) -> SharedPrefix | None:
        if self.prefix_tokens is not None:
            if self.prefix_tokens > longest:
                raise InputError(
                    f"--prefix-tokens: {self.prefix_tokens} is longer than any prompt ({longest}): "
                    "a prefix is part of it; raise --prompt"
                )
            return SharedPrefix(
                self.prefix_tokens, 1 if self.prefix_count is None else self.prefix_count
            )
        if self.prefix_count is not None:
            raise InputError("--prefix-count: needs --prefix-tokens, their length")
        return None


def demand_facts(demand: Demand, requests: int) -> list[str]:
    """The requests in a few words each."""
    arrivals, prefix = demand.arrivals, demand.prefix
    if isinstance(arrivals, Trace):
        return [f"trace {arrivals.path.name}", counted(requests, "request")]
    if isinstance(arrivals, ClosedLoop):
        facts = [counted(arrivals.concurrency, "user")]
    else:
        facts = [f"{digits(arrivals.rate)} requests/s" if arrivals.rate < 1e12 else "all at once"]
        if arrivals.burstiness != 1:
            facts.append(f"burstiness {arrivals.burstiness:g}")
    facts += [f"prompt {_length(demand.prompt)}", f"output {_length(demand.output)}"]
    if prefix is not None:
        many = f"{whole(prefix.count)} prefixes" if prefix.count > 1 else "one prefix"
        facts.append(f"{many} of {whole(prefix.tokens)}")
    return [*facts, counted(requests, "request"), f"seed {demand.seed}"]


def _length(lengths: Lengths) -> str:
    return whole(lengths.values[0]) if lengths.kind == "constant" else lengths.spec
