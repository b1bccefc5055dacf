"""Routers: which of several engines gets a request."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from perfmodel.errors import UnknownNameError
from perfmodel.serving.sequence import Prefix

REMEMBERED = 100_000
"""Prefixes that a prefix-aware router remembers: the one not asked for longest goes first."""


class Loaded(Protocol):
    """An engine as a router sees it."""

    @property
    def load(self) -> int:
        """Requests that were sent to it and haven't ended."""


class Router(Protocol):
    """Chooses an engine for each request."""

    def choose(self, engines: Sequence[Loaded], prefix: Prefix) -> int:
        """The index of the engine that gets a request which begins with ``prefix``."""


class RoundRobin:
    """Each engine in turn."""

    def __init__(self) -> None:
        self._turn = -1

    def choose(self, engines: Sequence[Loaded], prefix: Prefix) -> int:
        """The next engine."""
        self._turn = (self._turn + 1) % len(engines)
        return self._turn


class LeastLoaded:
    """The engine with the fewest requests that haven't ended; of equal ones the next in turn."""

    def __init__(self) -> None:
        self._turn = -1

    def choose(self, engines: Sequence[Loaded], prefix: Prefix) -> int:
        """The engine with the least to do."""
        count = len(engines)
        after = self._turn + 1
        best = min(range(after, after + count), key=lambda index: engines[index % count].load)
        self._turn = best % count
        return self._turn


class PrefixAware:
    """The engine that last got the longest known part of the prefix, unless it is overloaded.

    It is when its requests exceed those of the least loaded engine by more than ``excess`` and by
    more than the factor ``factor``; the least loaded engine gets the request then, and requests
    without a known prefix. The limits' defaults are those of SGLang's router (cache_aware,
    ``--balance-abs-threshold`` 64, ``--balance-rel-threshold`` 1.5), which compares the most loaded
    engine instead.
    """

    def __init__(self, factor: float = 1.5, excess: int = 64) -> None:
        self.factor, self.excess = factor, excess
        self._least = LeastLoaded()
        self._home: OrderedDict[tuple[str, ...], int] = OrderedDict()

    def choose(self, engines: Sequence[Loaded], prefix: Prefix) -> int:
        """The engine whose cache most likely holds the prefix."""
        names = tuple(name for name, _ in prefix)
        known = (names[:depth] for depth in range(len(names), 0, -1))
        home = next((self._home[part] for part in known if part in self._home), None)
        least = min(engine.load for engine in engines)
        if home is None or self._overloaded(engines[home].load, least):
            home = self._least.choose(engines, prefix)
        for depth in range(1, len(names) + 1):
            self._home[names[:depth]] = home
            self._home.move_to_end(names[:depth])
        while len(self._home) > REMEMBERED:
            self._home.popitem(last=False)
        return home

    def _overloaded(self, load: int, least: int) -> bool:
        return load - least > self.excess and load > self.factor * least


ROUTERS: dict[str, Callable[[], Router]] = {
    "round_robin": RoundRobin,
    "least_loaded": LeastLoaded,
    "prefix_aware": PrefixAware,
}


def router_named(name: str) -> Router:
    """A new router.

    Raises:
        UnknownNameError: with the names that are known.
    """
    if name not in ROUTERS:
        known = ", ".join(ROUTERS)
        raise UnknownNameError(f"--router: unknown router {name[:60]!r}; known: {known}")
    return ROUTERS[name]()
