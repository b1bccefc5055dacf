"""The flags that commands share: each field of a workload and a deployment is one flag.

Flags follow vLLM's names where it has one. A command takes them by the decorator
`takes_case`, so every command that describes a case has the same flags with the same defaults.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import typer

from perfmodel.specs.base import Spec
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.workload import Workload

Answer = TypeVar("Answer")


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
        "bf16, fp8, fp8_block, int8, int4, mxfp4, nvfp4, fp32; auto: the checkpoint's own.",
        _FORMAT,
    ),
    _flag(
        "activations", "--activations", str,
        "Inputs of quantised layers; auto: as the weights where the chip multiplies them.",
        _FORMAT,
    ),
    _flag("kv_cache", "--kv-cache-dtype --kv-cache", str, "Cached keys and values.", _FORMAT),
    _flag("engine", "--engine", str, "Engine preset, or a YAML file.", _ENGINE),
    _flag(
        "stack", "--stack", str | None,
        "Calibration: vllm, torch, …, a file of `calibrate fit`, or generic.", _ENGINE,
    ),
    _flag(
        "execution", "--execution", Literal["graph", "eager"],
        "Kernels replayed from a graph, or launched one by one.", _ENGINE,
    ),
    _flag(
        "attention", "--attention", Literal["fused", "unfused"] | None,
        "Whether scores stay on chip (default: as in the engine).", _ENGINE,
    ),
    _flag(
        "kv_layout", "--kv-layout", Literal["paged", "contiguous", "flat"] | None,
        "How the cache is set aside (default: the engine's).", _ENGINE,
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
    try:
        return int(str(text))
    except ValueError:
        raise typer.BadParameter(f"{str(text)[:40]!r} is no whole number") from None


def _parameter(flag: Flag, record: type[Spec]) -> inspect.Parameter:
    default = record.model_fields[flag.field].default
    counts = flag.kind in (int, int | None)
    option = typer.Option(
        *flag.names,
        help=flag.help,
        rich_help_panel=flag.panel,
        show_default=default is not None,
        parser=whole_number if counts else None,
        metavar="<int>" if counts else None,
    )
    return inspect.Parameter(
        flag.field,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[flag.kind, option],
    )


def takes_case(command: Callable[..., Answer]) -> Callable[..., Answer]:
    """Give ``command(…, workload, deployment)`` the flags of both records instead."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.name not in {"workload", "deployment"}]
    shared = [_parameter(flag, Workload) for flag in WORKLOAD]
    shared += [_parameter(flag, Deployment) for flag in DEPLOYMENT]

    def wrapped(**given: Any) -> Answer:
        workload = {flag.field: given.pop(flag.field) for flag in WORKLOAD}
        deployment = {flag.field: given.pop(flag.field) for flag in DEPLOYMENT}
        return command(
            **given,
            workload=Workload.parse(workload, "workload"),
            deployment=Deployment.parse(deployment, "deployment"),
        )

    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    wrapped.__name__ = command.__name__
    wrapped.__doc__ = command.__doc__
    wrapped.__signature__ = signature.replace(parameters=keyword + shared)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in keyword + shared}
    return wrapped
