"""What GPUs exchange, how, and which of them share a prompt or a cache by tokens."""

from __future__ import annotations

from perfmodel.planning.lever import Change, Idle, Lever, Price, View
from perfmodel.specs.formats import number_format
from perfmodel.specs.model import Attention, LatentAttention, MoeFfn

LONG = 8192
"""New tokens of a prompt from which sharing it over GPUs is tried: a choice, not a measurement."""


def _alone(view: View) -> Idle | None:
    """One rank exchanges nothing."""
    return Idle("TP 1 exchanges nothing in a layer") if view.base.plan.parallel.tp == 1 else None


def _changes_format(view: View) -> tuple[Change, ...] | Idle:
    plan = view.base.plan
    if plan.parallel.gpus == 1:
        return Idle("one GPU exchanges nothing")
    present = plan.formats.communication
    if number_format("fp8").bits >= present.bits:
        return Idle(f"exchanges are in {present.name} already")
    price = Price(accuracy="sums of rounded parts: measure it on your task",
                  complexity="a quantised all-reduce (TensorRT-LLM, FlashInfer)")  # fmt: skip
    change = Change("exchange format", "exchanges fp8", price,
                    deployment=(("communication", "fp8"),),
                    remark="quantising is priced as separate kernels, an upper bound")  # fmt: skip
    return (change,)


def _changes_sequence(view: View) -> tuple[Change, ...] | Idle:
    idle = _alone(view)
    if idle is not None:
        return idle
    name = "sequence parallelism"
    if view.base.plan.parallel.sequence_parallel:
        off = Change(name, "all-reduces", Price(), deployment=(("sequence_parallel", False),))
        return Idle("on already", without=off)
    price = Price(complexity="two exchanges for one; norms on a part of the tokens")
    return (Change(name, name, price, deployment=(("sequence_parallel", True),)),)


def _changes_overlap(view: View) -> tuple[Change, ...] | Idle:
    idle = _alone(view)
    if idle is not None:
        return idle
    name, overlap = "overlapped exchanges", view.base.plan.deployment.comm_overlap
    if overlap == 1:
        none = Change(name, "no overlap", Price(), deployment=(("comm_overlap", 0.0),))
        return Idle("all that fits behind kernels is hidden already", without=none)
    change = Change(
        name, name, Price(complexity="kernels split so that exchanges run behind them"),
        deployment=(("comm_overlap", 1.0),), supposes=True,
        remark="assumed: all that fits behind other kernels is hidden; an upper bound",
    )  # fmt: skip
    return (change,)


def _changes_context(view: View) -> tuple[Change, ...] | Idle:
    layout, load = view.base.plan.parallel, view.situation.workload
    new = load.prompt - load.cached_prefix
    if layout.gpus * 2 > view.max_gpus:
        return Idle(f"needs more than the {view.max_gpus} GPU{'s' * (view.max_gpus > 1)} allowed")
    if new < LONG:
        return Idle(f"shares prompts from {LONG:,} new tokens on; these have {new:,}")
    size = 2 * layout.cp
    price = Price(memory="each rank holds all weights", complexity="keys gathered in each layer")
    return (Change("context parallelism", f"CP {size}", price, deployment=(("cp", size),)),)


def _changes_decode_context(view: View) -> tuple[Change, ...] | Idle:
    idle = _alone(view)
    if idle is not None:
        return idle
    layout = view.base.plan.parallel
    mixers = {layer.mixer for layer in view.base.model.layers}
    heads = [m.kv_heads for m in mixers if isinstance(m, Attention)]
    heads += [1 for m in mixers if isinstance(m, LatentAttention)]
    if not heads:
        return Idle("the model has no attention")
    copies = max(1, layout.tp // max(heads))
    if copies == 1:
        return Idle(f"TP {layout.tp} holds each of {max(heads)} KV heads once: no copies to share")
    name = "decode context parallelism"
    if layout.dcp == copies:
        none = Change(name, "DCP 1", Price(), deployment=(("dcp", 1),))
        return Idle(f"{copies} copies of a KV head are shared already", without=none)
    price = Price(complexity="queries gathered and outputs summed in each layer")
    return (Change(name, f"DCP {copies}", price, deployment=(("dcp", copies),)),)


def _changes_microbatches(view: View) -> tuple[Change, ...] | Idle:
    layout, own = view.base.plan.parallel, view.base.plan.deployment.pp_microbatches
    if layout.pp == 1:
        return Idle("one pipeline stage has nothing to fill")
    held = int(view.base.plan.replica_sequences(view.situation.workload))
    name, size = "micro-batches", min(layout.pp, held)
    if own >= size:
        one = Change(name, "1 micro-batch", Price(), deployment=(("pp_microbatches", 1),))
        reason = f"{own} of at most {size} (a replica's sequences, or its stages) in flight"
        return Idle(reason, without=one if own > 1 else None)
    price = Price(complexity="batches of a part of the sequences in flight")
    values = (("pp_microbatches", size),)
    return (Change(name, f"{size} micro-batches", price, deployment=values),)


def _changes_skew(view: View) -> tuple[Change, ...] | Idle:
    layout, model = view.base.plan.parallel, view.base.model
    if not any(isinstance(layer.ffn, MoeFfn) for layer in model.layers):
        return Idle(f"{model.name} has no experts")
    if not layout.expert_skew:
        return Idle("experts are priced as asked for evenly (--expert-skew 0)")
    change = Change(
        "balanced experts", "experts in balance",
        Price(memory="copies of popular experts", complexity="experts moved as traffic shifts"),
        deployment=(("expert_skew", 0.0),), supposes=True,
        remark="assumed: as if all were asked for evenly, what a balancer reaches at best",
    )  # fmt: skip
    return (change,)


LEVERS = (
    Lever("exchange format", "parallel", _changes_format),
    Lever("sequence parallelism", "parallel", _changes_sequence),
    Lever("overlapped exchanges", "parallel", _changes_overlap),
    Lever("context parallelism", "parallel", _changes_context),
    Lever("decode context parallelism", "parallel", _changes_decode_context),
    Lever("micro-batches", "parallel", _changes_microbatches),
    Lever("balanced experts", "parallel", _changes_skew),
)
