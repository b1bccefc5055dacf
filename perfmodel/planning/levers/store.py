"""Keeping less of the cache, or keeping it elsewhere: eviction, offload, block managers."""

from __future__ import annotations

import math

from perfmodel.operators.cache import layer_window, token_bytes
from perfmodel.planning.lever import Change, Idle, Lever, Price, View
from perfmodel.units import GIB

LONG = 8192
"""Tokens of a sequence from which forgetting some of them is worth a line: below, a cache is a few
per cent of what a step reads. A choice, not a measurement."""
SINKS, WINDOW = 4, 2044
"""StreamingLLM's four sinks; with them 2,048 tokens are kept (arXiv 2309.17453)."""
HEAVY = 0.2
"""Share of a sequence that H2O keeps (arXiv 2306.14048)."""
AWAY = 0.5
"""Share of the cache that is tried outside the device."""
HOST = 3
"""Times a device's memory up to which its host is taken to hold weights: a DGX H100 has 2 TB beside
8 × 80 GB. No profile states it."""
ROOM = 2
"""Batches of so many times the present one that memory has to hold for it not to be the limit."""
LOST = "tokens between are forgotten: answers that need them get worse, unseen in any number"


def _tokens(view: View) -> int:
    return int(view.situation.workload.prompt + view.situation.workload.output)


def _short(view: View) -> Idle | None:
    """Why forgetting tokens has no line here."""
    length = _tokens(view)
    if length < LONG:
        return Idle(f"for sequences from {LONG:,} tokens on; these reach {length:,}")
    d = view.situation.deployment
    kept = d.kv_window if d.kv_budget is None else d.kv_budget
    return None if kept is None else Idle(f"{kept:,} tokens of a sequence are kept already")


def _changes_window(view: View) -> tuple[Change, ...] | Idle:
    idle = _short(view)
    if idle is not None:
        return idle
    price = Price(accuracy=LOST, complexity="an engine with rolling caches and shifted positions")
    change = Change(
        "StreamingLLM", f"StreamingLLM, {SINKS + WINDOW:,} tokens kept", price,
        deployment=(("kv_window", WINDOW), ("kv_sinks", SINKS)),
        remark="kernels are priced as if they read the kept tokens alone",
    )  # fmt: skip
    return (change,)


def _changes_budget(view: View) -> tuple[Change, ...] | Idle:
    idle = _short(view)
    if idle is not None:
        return idle
    kept = math.ceil(HEAVY * _tokens(view))
    price = Price(accuracy="tokens of little attention are forgotten (H2O: 20 % kept, "
                  "arXiv 2306.14048); measure it on your task",
                  complexity="an engine that evicts (few do)")  # fmt: skip
    change = Change(
        "KV eviction", f"eviction, {kept:,} tokens kept", price, deployment=(("kv_budget", kept),),
        remark="choosing them isn't priced",
    )  # fmt: skip
    return (change,)


def _roomy(view: View) -> Idle | None:
    """Whether memory holds far more than the batch, so that moving the cache out gains nothing."""
    memory, batch = view.base.memory, view.situation.workload.batch
    if memory.fits and memory.max_sequences >= ROOM * batch:
        return Idle(
            f"memory holds {memory.max_sequences:,.0f} such sequences and there are {batch:,}: "
            "nothing has to leave it"
        )
    return None


def _changes_kv_offload(view: View) -> tuple[Change, ...] | Idle:
    share = view.situation.deployment.kv_offload
    if share:
        none = Change("KV offload", "no offload", Price(), deployment=(("kv_offload", 0.0),))
        return Idle(f"{100 * share:g} % of the cache lies outside already", without=none)
    if not view.base.memory.kv_bytes_per_token:
        return Idle(f"{view.base.model.name} has no cache that grows with the context")
    price = Price(memory="host memory for what leaves the device",
                  complexity="an engine that reads its cache over PCIe")  # fmt: skip
    change = Change("KV offload", f"{100 * AWAY:g} % of the cache on the host", price,
                    deployment=(("kv_offload", AWAY),),
                    remark="nothing runs beside the transfers (--offload-overlap)")  # fmt: skip
    return _roomy(view) or (change,)


def _changes_weight_offload(view: View) -> tuple[Change, ...] | Idle:
    memory, d = view.base.memory, view.situation.deployment
    if d.cpu_offload_gb:
        none = Change("weight offload", "no offload", Price(), deployment=(("cpu_offload_gb", 0),))
        return Idle(f"{d.cpu_offload_gb:g} GiB a GPU lie on the host already", without=none)
    short = float(memory.required_bytes) - memory.capacity_bytes
    if short <= 0:
        return Idle(f"weights, cache and the rest fit with {-short / GIB:.1f} GiB to spare")
    size = math.ceil(short / GIB)
    if size * GIB > HOST * memory.capacity_bytes:
        return Idle(f"{size:,} GiB a GPU would have to leave: more than {HOST} times its memory")
    price = Price(memory="host memory for them", complexity="read over PCIe in each pass")
    values = (("cpu_offload_gb", size),)
    return (Change("weight offload", f"{size:,} GiB of weights on the host", price,
                   deployment=values),)  # fmt: skip


def _changes_overlap(view: View) -> tuple[Change, ...] | Idle:
    d = view.situation.deployment
    if not (d.kv_offload or d.cpu_offload_gb):
        return Idle("nothing is offloaded")
    if d.offload_overlap == 1:
        return Idle("all transfers that can run beside kernels already")
    change = Change(
        "offload overlap", "transfers beside the kernels",
        Price(complexity="layers fetched ahead of their use"),
        deployment=(("offload_overlap", 1.0),), supposes=True,
        remark="assumed: all of them hide where kernels take longer; an upper bound",
    )  # fmt: skip
    return (change,)


def _changes_manager(view: View) -> tuple[Change, ...] | Idle:
    mixers = [layer.mixer for layer in view.base.model.layers]
    windows = sum(layer_window(m) is not None for m in mixers)
    if not windows:
        return Idle("no layer has a window: all keep every token")
    manager = view.situation.deployment.kv_manager
    if manager == "uniform":
        values = (("kv_manager", "hybrid"),)
        price = Price(complexity="vLLM's hybrid manager (its default since 0.10)")
        return (Change("KV manager", "windows freed by groups", price, deployment=values),)
    caching = sum(token_bytes(m) > 0 for m in mixers)
    one = Change("KV manager", "one pool for all layers", Price(),
                 deployment=(("kv_manager", "uniform"),))  # fmt: skip
    return Idle(f"{windows} of {caching} caching layers keep their window alone already",
                without=one)  # fmt: skip


def _changes_common(view: View) -> tuple[Change, ...] | Idle:
    load = view.situation.workload
    if not load.cached_prefix:
        return Idle("no prefix is stated to be cached (--cached-prefix)")
    if load.prefix_share is not None:
        return Idle(f"{100 * load.prefix_share:g} % of the prompts share theirs already")
    if load.batch == 1:
        return Idle("one sequence shares its prefix with no other")
    change = Change(
        "common prefix", "one prefix for all prompts", Price(complexity="prompts that begin alike"),
        workload=(("prefix_share", 1.0),), supposes=True,
        remark="assumes that all prompts begin with the same tokens, stored once",
    )  # fmt: skip
    return (change,)


LEVERS = (
    Lever("common prefix", "cache", _changes_common),
    Lever("StreamingLLM", "cache", _changes_window),
    Lever("KV eviction", "cache", _changes_budget),
    Lever("KV offload", "cache", _changes_kv_offload),
    Lever("weight offload", "cache", _changes_weight_offload),
    Lever("offload overlap", "cache", _changes_overlap),
    Lever("KV manager", "cache", _changes_manager),
)
