"""The KV cache: its format, its layout, what of it is there already, and room for it."""

from __future__ import annotations

from perfmodel.planning.lever import Change, Idle, Lever, Price, View
from perfmodel.specs.formats import number_format

FP8 = Price("a minimal loss (vLLM's docs on quantized KV cache)",
            complexity="attention kernels that read fp8")  # fmt: skip
INT8 = Price("small, with a scale per token and head",
             complexity="attention kernels that read int8 (LMDeploy has them)")  # fmt: skip
INT4 = Price("visible: keys have outlier channels (KIVI, arXiv 2402.02750)",
             complexity="attention kernels that read int4 (LMDeploy has them)")  # fmt: skip
FORMATS = (("fp8", FP8), ("int8", INT8), ("int4", INT4))
HIGHEST_SHARE = 0.95
"""Of the device memory; assumed to leave room enough for fragments and spikes."""
PREFIX_SHARE = 2
"""The part of the prompt, 1/2, that is tried as a shared prefix where none is stated."""


def _changes_format(view: View) -> tuple[Change, ...] | Idle:
    if not view.base.memory.kv_bytes_per_token:
        return Idle(f"{view.base.model.name} has no cache that grows with the context")
    present = view.base.plan.formats.cache
    found = tuple(
        Change("KV cache format", f"KV cache {name}", price, deployment=(("kv_cache", name),))
        for name, price in FORMATS
        if number_format(name).bits < present.bits
    )
    return found or Idle(f"the cache is in {present.name} already")


def _changes_layout(view: View) -> tuple[Change, ...] | Idle:
    layout = view.base.plan.deployment.kv_layout
    price = Price(complexity="kernels that read through a block table")
    if layout == "contiguous":
        paged = (("kv_layout", "paged"), ("block_size", 16))
        return (Change("paged KV cache", "paged KV cache", price, deployment=paged),)
    reserved = Change("paged KV cache", "contiguous KV cache", Price(),
                      deployment=(("kv_layout", "contiguous"),))  # fmt: skip
    return Idle(f"the {layout} layout is on already", without=reserved)


def _changes_prefix(view: View) -> tuple[Change, ...] | Idle:
    load = view.situation.workload
    if load.cached_prefix:
        none = Change("prefix caching", "no cached prefix", Price(),
                      workload=(("cached_prefix", 0),))  # fmt: skip
        return Idle(f"on already: {load.cached_prefix:,} prompt tokens are cached", without=none)
    share = load.prompt // PREFIX_SHARE
    if not share:
        return Idle("the prompt is a single token, which is always computed")
    change = Change(
        "prefix caching",
        f"prefix of {share:,} tokens cached",
        Price(memory="the prefix stays in the cache", complexity="prompts that begin alike"),
        workload=(("cached_prefix", share),),
        remark="assumes that half of each prompt is in the cache; say yours by --cached-prefix",
        supposes=True,
    )
    return (change,)


def _changes_share(view: View) -> tuple[Change, ...] | Idle:
    share = view.base.plan.deployment.gpu_memory_utilization or 1.0
    if share >= HIGHEST_SHARE:
        return Idle(f"{share:g} of the device memory is used already")
    change = Change(
        "memory share",
        f"memory utilisation {HIGHEST_SHARE:g}",
        Price(memory="less slack for spikes and other processes (0.95: assumed to be enough)"),
        deployment=(("gpu_memory_utilization", HIGHEST_SHARE),),
    )
    return (change,)


LEVERS = (
    Lever("KV cache format", "cache", _changes_format),
    Lever("paged KV cache", "cache", _changes_layout),
    Lever("prefix caching", "cache", _changes_prefix),
    Lever("memory share", "cache", _changes_share),
)
