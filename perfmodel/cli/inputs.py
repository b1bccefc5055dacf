"""What a command reads, so that nothing which it writes takes the place of it."""

from __future__ import annotations

from collections.abc import Iterator

from perfmodel.specs.deployment import Deployment
from perfmodel.whole_file import Named


def inputs(*given: Named, deployment: Deployment | None = None) -> Iterator[Named]:
    """The files, and names that may be files, which a command was given.

    Args:
        given: by its own flags: a model, hardware, a trace.
        deployment: which may name more.
    """
    yield from given
    if deployment is None:
        return
    yield deployment.engine
    yield deployment.stack
    if deployment.speculation is not None:
        yield deployment.speculation.draft_model
