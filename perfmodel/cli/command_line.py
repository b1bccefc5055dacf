"""The command line that asks for a case again, with what isn't a default alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from perfmodel.cli.flags import DEPLOYMENT, SPECULATION, WORKLOAD, Flag
from perfmodel.specs.base import Case
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.workload import Workload


def command_line(
    command: str,
    model: str,
    own: Iterable[tuple[str, Any]],
    workload: Workload,
    deployment: Deployment,
) -> str:
    """``perfmodel COMMAND MODEL …`` as typed in a shell; ``own``: the command's own flags."""
    words = ["perfmodel", command, model]
    for name, value in own:
        words += [name] if value is True else [name, str(value)]
    words += _flags(WORKLOAD, workload)
    words += _flags(DEPLOYMENT, deployment)
    if deployment.speculation is not None:
        words += _flags(SPECULATION, deployment.speculation)
    return shlex.join(words)


def _flags(flags: Iterable[Flag], record: Case) -> Iterator[str]:
    """The flags of the fields that aren't at their defaults."""
    for flag in flags:
        value = getattr(record, flag.field)
        if value == type(record).model_fields[flag.field].default:
            continue
        yield flag.names[0]
        if value is not True:
            yield _text(value)


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
