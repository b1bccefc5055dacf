"""A progress bar on standard error, where a person reads along and the work takes a while."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

QUIET_S = 1.5
"""Seconds before it is shown."""


Tell = Callable[[str, int, int], None]
"""Is told what is being done, and how many of how many are."""


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """What is told that so many of so many are done; None where nobody reads. Leaves nothing."""
    with progress_stages() as tell:
        yield None if tell is None else lambda done, total: tell(what, done, total)


@contextmanager
def progress_stages() -> Iterator[Tell | None]:
    """The same where what is done changes on the way."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    started = time.monotonic()
    shown: list[tuple[Progress, TaskID]] = []

    def tell(what: str, done: int, total: int) -> None:
        if not shown and time.monotonic() - started > QUIET_S:
            bar = _bar()
            shown.append((bar, bar.add_task(what, total=total)))
            bar.start()
        for bar, task in shown:
            bar.update(task, description=what, completed=done, total=total)

    try:
        yield tell
    finally:
        for bar, _ in shown:
            bar.stop()


def _bar() -> Progress:
    from rich.console import Console  # noqa: PLC0415  (only where it is shown)
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
