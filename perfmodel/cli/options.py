"""How commands take a case: the flags of `flags` become a workload and a deployment.

A command takes them by the decorator `takes_case`, so that every command that describes a case has
the same flags with the same defaults.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import typer
from pydantic_core import PydanticUndefined

from perfmodel.cli.flags import (
    CONTEXT,
    DEPLOYMENT,
    SPECULATION,
    WORKLOAD,
    Counts,
    Flag,
)
from perfmodel.cli.parsers import PARSERS
from perfmodel.errors import InputError
from perfmodel.specs.base import Case, FieldError
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.speculation import Speculation
from perfmodel.specs.workload import Workload

Answer = TypeVar("Answer")
Built = TypeVar("Built", bound=Case)

TYPED = "context"
"""The parameter by which typer says what was typed."""
SEARCHED = frozenset(
    {"tp", "pp", "ep", "dp", "weights", "kv_cache", "max_num_seqs", "max_num_batched_tokens"}
)
"""Fields that a search varies unless they are typed."""
NESTED = "speculation_"
"""Before the parameters of the record inside a deployment, whose fields have names of their own."""


def _parameter(
    flag: Flag, record: type[Case], prefix: str = "", shown: str | None = None
) -> inspect.Parameter:
    default = record.model_fields[flag.field].get_default()
    default = None if default is PydanticUndefined else default
    parser, metavar = PARSERS.get(flag.kind, (None, "<str>"))
    option = typer.Option(
        *flag.names,
        help=flag.help,
        rich_help_panel=flag.panel,
        show_default=shown or default is not None,
        parser=parser,
        metavar=metavar,
    )
    return inspect.Parameter(
        prefix + flag.field,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[flag.kind, option],
    )


def _build(
    record: type[Built], flags: tuple[Flag, ...], given: dict[str, Any], **others: Any
) -> Built:
    """The record of the flags' values and ``others``; a fault names the flag.

    Raises:
        InputError: one line.
    """
    try:
        return record(**{flag.field: given.pop(flag.field) for flag in flags}, **others)
    except FieldError as error:
        names = {flag.field: flag.names[0] for flag in flags}
        name = names.get(error.field, error.field)
        raise InputError(f"{name}: {error.problem}" if name else error.problem) from None


def _speculation(given: dict[str, Any]) -> Speculation | None:
    """The record of the flags of speculative decoding; None where no method is asked for.

    Raises:
        InputError: one line.
    """
    own = {flag.field: given.pop(NESTED + flag.field) for flag in SPECULATION}
    if own["method"] is not None:
        return _build(Speculation, SPECULATION, own)
    fields = Speculation.model_fields
    for flag in SPECULATION:
        if own[flag.field] is not None and own[flag.field] != fields[flag.field].default:
            raise InputError(f"{flag.names[0]}: needs --speculative-method, such as mtp or ngram")
    return None


def takes_case(command: Callable[..., Answer]) -> Callable[..., Answer]:
    """Give ``command(…, workload, deployment)`` the flags of both records instead."""
    return takes_cases()(command)


def takes_cases(*several: str) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """`takes_case`, where the flags of the fields ``several`` take a list too."""

    def decorate(command: Callable[..., Answer]) -> Callable[..., Answer]:
        def built(given: dict[str, Any]) -> dict[str, Any]:
            workload = _build(Workload, WORKLOAD, given)
            return {"workload": workload, "deployment": _deployment(given)}

        flags = [_parameter(_listed(flag, several), Workload) for flag in WORKLOAD]
        shared = [*flags, *_deployment_parameters()]
        return _flagged(command, shared, {"workload", "deployment"}, built)

    return decorate


def _listed(flag: Flag, several: tuple[str, ...]) -> Flag:
    """A flag that takes several numbers, separated by commas."""
    if flag.field not in several:
        return flag
    return replace(flag, kind=Counts, help=f"{flag.help.rstrip('.')}; or several: 1,8,64.")


def takes_stated_deployment(command: Callable[..., Answer]) -> Callable[..., Answer]:
    """The same, the deployment made of the typed flags alone: its ``model_fields_set`` says which.

    A search keeps those, and tries others than the defaults for the rest.
    """

    def built(given: dict[str, Any]) -> dict[str, Any]:
        context = given.pop(TYPED)
        speculation = _speculation(given)
        stated = [f for f in DEPLOYMENT if _typed(context, f.field)]
        values = {f.field: given.pop(f.field) for f in DEPLOYMENT}
        values = {f.field: values[f.field] for f in stated}
        more = {} if speculation is None else {"speculation": speculation}
        return {"deployment": _build(Deployment, tuple(stated), values, **more)}

    context = inspect.Parameter(TYPED, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    return _flagged(command, [context, *_deployment_parameters(SEARCHED)], {"deployment"}, built)


def _typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def takes_deployment(command: Callable[..., Answer]) -> Callable[..., Answer]:
    """Give ``command(…, deployment)`` its flags instead: the workload is the command's own."""

    def built(given: dict[str, Any]) -> dict[str, Any]:
        return {"deployment": _deployment(given)}

    return _flagged(command, _deployment_parameters(), {"deployment"}, built)


def takes_axes(command: Callable[..., Answer]) -> Callable[..., Answer]:
    """Give ``command(…, axes)`` the flags of both records, each with a list or range of values."""
    flags = [*WORKLOAD, CONTEXT, *DEPLOYMENT]

    def built(given: dict[str, Any]) -> dict[str, Any]:
        said = {flag.field: given.pop(flag.field) for flag in flags}
        return {"axes": {name: text for name, text in said.items() if text is not None}}

    return _flagged(command, [_axis_parameter(flag) for flag in flags], {"axes"}, built)


def axis_flag(field: str) -> str:
    """The flag of an axis."""
    names = {flag.field: flag.names[0] for flag in (*WORKLOAD, CONTEXT, *DEPLOYMENT)}
    return names.get(field, f"--{field.replace('_', '-')}")


def _axis_parameter(flag: Flag) -> inspect.Parameter:
    option = typer.Option(*flag.names, help=flag.help, rich_help_panel=flag.panel, metavar="<list>")
    kind = Annotated[str | None, option]
    return inspect.Parameter(
        flag.field, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind
    )


def _deployment_parameters(searched: frozenset[str] = frozenset()) -> list[inspect.Parameter]:
    """The flags of a deployment; those that are ``searched`` say so in place of a default."""
    flags = [
        _parameter(flag, Deployment, shown="searched" if flag.field in searched else None)
        for flag in DEPLOYMENT
    ]
    return flags + [_parameter(flag, Speculation, NESTED) for flag in SPECULATION]


def _deployment(given: dict[str, Any]) -> Deployment:
    speculation = _speculation(given)
    return _build(Deployment, DEPLOYMENT, given, speculation=speculation)


def _flagged(
    command: Callable[..., Answer],
    shared: list[inspect.Parameter],
    records: set[str],
    built: Callable[[dict[str, Any]], dict[str, Any]],
) -> Callable[..., Answer]:
    """``command`` with ``shared`` flags in place of the ``records`` that are ``built`` of them."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.name not in records]

    def wrapped(**given: Any) -> Answer:
        made = built(given)  # takes out of ``given`` what it uses
        return command(**given, **made)

    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    wrapped.__name__ = command.__name__
    wrapped.__doc__ = command.__doc__
    wrapped.__signature__ = signature.replace(parameters=keyword + shared)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in keyword + shared}
    return wrapped
