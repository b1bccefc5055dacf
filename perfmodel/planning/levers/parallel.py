"""More GPUs, fewer, or the same ones shared out otherwise."""

from __future__ import annotations

from perfmodel.planning.lever import Change, Idle, Lever, Price, View
from perfmodel.specs.model import LatentAttention, MoeFfn

MORE = (2, 4, 8)
"""Times as many ranks as now."""
TP = Price(complexity="an exchange after each block: a fast link between the GPUs")
PP = Price(complexity="one batch is in one stage at a time: latency gains nothing")
DP = Price(memory="each replica holds all weights", complexity="a router before the replicas")
EP = Price(complexity="all-to-all exchanges; experts that are asked unevenly wait for each other")
ATTENTION_DP = Price(memory="each GPU holds all attention weights",
                     complexity="all-to-all exchanges, batches that are kept even")  # fmt: skip
FEWER = Price(memory="more weights on each GPU")


def _few(view: View) -> Idle:
    return Idle(f"needs more than the {view.max_gpus} GPU{'s' * (view.max_gpus > 1)} allowed")


def _changes_tp(view: View) -> tuple[Change, ...] | Idle:
    layout = view.base.plan.parallel
    sizes = [layout.tp * times for times in MORE if layout.gpus * times <= view.max_gpus]
    found = [
        Change("tensor parallelism", f"TP {size}", TP, deployment=(("tp", size),)) for size in sizes
    ]
    if layout.tp % 2 == 0:
        half = (("tp", layout.tp // 2),)
        found.append(Change("tensor parallelism", f"TP {half[0][1]}", FEWER, deployment=half))
    return tuple(found) or _few(view)


def _changes_pp(view: View) -> tuple[Change, ...] | Idle:
    layout = view.base.plan.parallel
    found = [
        Change("pipeline stages", f"PP {layout.pp * times}", PP,
               deployment=(("pp", layout.pp * times),))
        for times in MORE[:2]
        if layout.gpus * times <= view.max_gpus
    ]  # fmt: skip
    return tuple(found) or _few(view)


def _changes_dp(view: View) -> tuple[Change, ...] | Idle:
    layout = view.base.plan.parallel
    if view.situation.workload.batch < 2 * layout.dp:
        return Idle("replicas share the batch, and it has too few sequences for more of them")
    found = [
        Change("data parallelism", f"DP {layout.dp * times}", DP,
               deployment=(("dp", layout.dp * times),))
        for times in MORE
        if layout.gpus * times <= view.max_gpus
        and layout.dp * times <= view.situation.workload.batch
    ]  # fmt: skip
    return tuple(found) or _few(view)


def _changes_ep(view: View) -> tuple[Change, ...] | Idle:
    layout, model = view.base.plan.parallel, view.base.model
    if not any(isinstance(layer.ffn, MoeFfn) for layer in model.layers):
        return Idle(f"{model.name} has no experts")
    group = layout.tp * layout.dp
    if group == 1:
        return Idle("spreads experts over the GPUs of a stage, and there is one")
    if layout.ep == group:
        one = Change("expert parallelism", "EP 1", Price(), deployment=(("ep", 1),))
        return Idle("on already over all GPUs of a stage", without=one)
    values = (("ep", group),)
    return (Change("expert parallelism", f"EP {group}", EP, deployment=values),)


def _changes_attention_dp(view: View) -> tuple[Change, ...] | Idle:
    layout, model = view.base.plan.parallel, view.base.model
    if not any(isinstance(layer.ffn, MoeFfn) for layer in model.layers):
        return Idle("shares experts between replicas of the attention: for mixtures of experts")
    if layout.tp == 1:
        return Idle("attention isn't split: nothing to undo")
    group = layout.tp * layout.dp
    if view.situation.workload.batch < group:
        return Idle(f"needs a batch of at least {group}, a sequence for each replica")
    latent = any(isinstance(layer.mixer, LatentAttention) for layer in model.layers)
    why = "TP holds the latent cache on every rank; this doesn't" if latent else ""
    values = (("tp", 1), ("dp", group), ("ep", group))
    setting = f"attention DP {group}, EP {group}"
    return (Change("attention DP", setting, ATTENTION_DP, deployment=values, remark=why),)


LEVERS = (
    Lever("tensor parallelism", "parallel", _changes_tp),
    Lever("pipeline stages", "parallel", _changes_pp),
    Lever("data parallelism", "parallel", _changes_dp),
    Lever("expert parallelism", "parallel", _changes_ep),
    Lever("attention DP", "parallel", _changes_attention_dp),
)
