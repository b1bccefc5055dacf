"""The flags that commands share: each field of a workload and a deployment is one flag.

Flags follow vLLM's names where it has one. A command takes them by the decorator
`takes_case`, so every command that describes a case has the same flags with the same defaults.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import typer

from perfmodel.errors import InputError
from perfmodel.specs.base import Case, FieldError
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.engine import engine_names
from perfmodel.specs.formats import FORMATS
from perfmodel.specs.workload import Workload

Answer = TypeVar("Answer")
Built = TypeVar("Built", bound=Case)


@dataclass(frozen=True, slots=True)
class Flag:
    """One field of a record as a flag of the command line."""

    field: str
    names: tuple[str, ...]
    kind: Any
    help: str
    panel: str


def _flag(field: str, names: str, kind: Any, help_text: str, panel: str) -> Flag:
    return Flag(field, tuple(names.split()), kind, help_text, panel)


_CASE, _LAYOUT, _FORMAT, _ENGINE = "Workload", "Parallel layout", "Number formats", "Engine"
_FORMATS = ", ".join(FORMATS)
WORKLOAD = (
    _flag("batch", "--batch -b", int, "Sequences in flight over the whole deployment.", _CASE),
    _flag("prompt", "--prompt -p", int, "Tokens of a prompt, a cached prefix included.", _CASE),
    _flag("output", "--output -o", int, "Tokens generated per sequence.", _CASE),
    _flag("cached_prefix", "--cached-prefix", int, "Prompt tokens already in the cache.", _CASE),
    _flag(
        "prefill_chunk", "--prefill-chunk", int | None,
        "Tokens of a sequence per prefill step (default: all at once).", _CASE,
    ),
)  # fmt: skip
DEPLOYMENT = (
    _flag("tp", "--tp --tensor-parallel-size", int, "Tensor-parallel ranks.", _LAYOUT),
    _flag("pp", "--pp --pipeline-parallel-size", int, "Pipeline stages.", _LAYOUT),
    _flag("ep", "--ep --expert-parallel-size", int, "Ranks the experts are spread over.", _LAYOUT),
    _flag("dp", "--dp --data-parallel-size", int, "Replicas that share the batch.", _LAYOUT),
    _flag(
        "weights", "--weights --quantization", str,
        f"{_FORMATS}, for every linear layer; auto, or the checkpoint's own name: as it is stored.",
        _FORMAT,
    ),
    _flag(
        "activations", "--activations", str,
        "Inputs of quantised layers: bf16, fp16, fp8, int8, nvfp4; "
        "auto: the checkpoint's, else as the weights where the chip multiplies them.", _FORMAT,
    ),
    _flag(
        "kv_cache", "--kv-cache-dtype --kv-cache", str,
        f"Cached keys and values: {_FORMATS}; auto: the checkpoint's, else bf16.", _FORMAT,
    ),
    _flag("engine", "--engine", str, f"{', '.join(engine_names())}, or a YAML file.", _ENGINE),
    _flag(
        "stack", "--stack", str | None,
        "Whose kernels: vllm, torch, a file of `calibrate fit`, or generic "
        "(default: the engine's or the device's).", _ENGINE,
    ),
    _flag(
        "execution", "--execution", Literal["graph", "eager"],
        "graph or eager: kernels replayed, or launched one by one.", _ENGINE,
    ),
    _flag(
        "attention", "--attention", Literal["fused", "unfused"] | None,
        "fused or unfused: scores stay on chip, or don't (default: the engine's).", _ENGINE,
    ),
    _flag(
        "kv_layout", "--kv-layout", Literal["paged", "contiguous", "flat"] | None,
        "paged, contiguous or flat: how the cache is set aside (default: the engine's).",
        _ENGINE,
    ),
    _flag("block_size", "--block-size", int | None, "Tokens in a block of the cache.", _ENGINE),
    _flag(
        "max_model_len", "--max-model-len", int | None,
        "Length that the contiguous layout reserves.", _ENGINE,
    ),
    _flag(
        "gpu_memory_utilization", "--gpu-memory-utilization", float | None,
        "Share of device memory that the engine uses.", _ENGINE,
    ),
    _flag("max_num_seqs", "--max-num-seqs", int | None, "Sequences in a step at most.", _ENGINE),
    _flag(
        "max_num_batched_tokens", "--max-num-batched-tokens", int | None,
        "Tokens in a step at most.", _ENGINE,
    ),
)  # fmt: skip


def whole_number(text: str) -> int:
    """A whole number as typed; thousands may be separated by underscores.

    Raises:
        BadParameter: names the text.
    """
    said = str(text)
    if re.fullmatch(r"[+-]?\d{19,}", said.strip()):
        raise typer.BadParameter(f"{said[:20]}… is out of range")
    try:
        return int(said)
    except ValueError:
        raise typer.BadParameter(f"{said[:40]!r} is no whole number") from None


def number(text: str) -> float:
    """A number as typed.

    Raises:
        BadParameter: names the text.
    """
    try:
        return float(str(text))
    except ValueError:
        raise typer.BadParameter(f"{str(text)[:40]!r} is no number") from None


PARSERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    int: (whole_number, "<int>"),
    int | None: (whole_number, "<int>"),
    float | None: (number, "<float>"),
}
"""Parser and placeholder of a flag by its kind."""


def _parameter(flag: Flag, record: type[Case]) -> inspect.Parameter:
    default = record.model_fields[flag.field].default
    parser, metavar = PARSERS.get(flag.kind, (None, "<str>"))
    option = typer.Option(
        *flag.names,
        help=flag.help,
        rich_help_panel=flag.panel,
        show_default=default is not None,
        parser=parser,
        metavar=metavar,
    )
    return inspect.Parameter(
        flag.field,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[flag.kind, option],
    )


def _build(record: type[Built], flags: tuple[Flag, ...], given: dict[str, Any]) -> Built:
    """The record of the flags' values; a fault names the flag.

    Raises:
        InputError: one line.
    """
    try:
        return record(**{flag.field: given.pop(flag.field) for flag in flags})
    except FieldError as error:
        names = {flag.field: flag.names[0] for flag in flags}
        name = names.get(error.field, error.field)
        raise InputError(f"{name}: {error.problem}" if name else error.problem) from None


def takes_case(command: Callable[..., Answer]) -> Callable[..., Answer]:
    """Give ``command(…, workload, deployment)`` the flags of both records instead."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.name not in {"workload", "deployment"}]
    shared = [_parameter(flag, Workload) for flag in WORKLOAD]
    shared += [_parameter(flag, Deployment) for flag in DEPLOYMENT]

    def wrapped(**given: Any) -> Answer:
        workload = _build(Workload, WORKLOAD, given)
        deployment = _build(Deployment, DEPLOYMENT, given)
        return command(**given, workload=workload, deployment=deployment)

    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    wrapped.__name__ = command.__name__
    wrapped.__doc__ = command.__doc__
    wrapped.__signature__ = signature.replace(parameters=keyword + shared)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in keyword + shared}
    return wrapped
