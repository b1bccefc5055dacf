"""Advice on a few cases, each made once; the generic calibration, fast, where any would do."""

from functools import lru_cache

from perfmodel import Deployment, Limits, Workload, advise

GENERIC = {"stack": "generic"}
CASES = {
    "one sequence": ("llama-3.1-8b", "h100-sxm", {}, {}),
    "a batch": ("llama-3.1-8b", "h100-sxm", {"batch": 8, "prompt": 2048}, GENERIC),
    "long": ("llama-3.1-8b", "h100-sxm", {"batch": 2, "prompt": 100_000}, {}),
    "too large": ("llama-3.1-70b", "h100-sxm", {"batch": 4}, {}),
    "eager": (
        "llama-3.1-8b",
        "a100-sxm-80gb",
        {"cached_prefix": 512},
        {"execution": "eager"} | GENERIC,
    ),
    "experts": ("mixtral-8x7b", "h100-sxm", {"batch": 16}, {"tp": 2} | GENERIC),
    "two chips": (
        "llama-3.1-8b",
        "h100-sxm",
        {"batch": 4},
        {"tp": 2, "max_num_seqs": 64} | GENERIC,
    ),
}


@lru_cache
def advice(name, by="throughput", **limits):
    model, hardware, workload, deployment = CASES[name]
    return advise(
        model, hardware, Workload(**workload), Deployment(**deployment),
        by=by, limits=Limits(**limits),
    )  # fmt: skip


def option(name, setting, **given):
    """The single change whose words begin so."""
    found = [o for o in advice(name, **given).options if o.setting.startswith(setting)]
    assert found, [o.setting for o in advice(name, **given).options]
    return found[0]


def unused(name, lever, **given):
    return next(u for u in advice(name, **given).unused if u.lever == lever)
