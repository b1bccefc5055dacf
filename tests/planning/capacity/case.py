"""Small plans, each made once: one layout and one format, so that a second is enough."""

from functools import lru_cache

from perfmodel import Deployment, RequestClass, Rules, ServiceLevel, Traffic, plan

SMALL = {"tp": 1, "weights": "bf16", "kv_cache": "bf16"}
ONE = {"confirm": 1, "disaggregated": False}


def traffic(rate=60.0, prompt=600, output=80, ttft=0.3, tpot=0.03, e2e=None, **more):
    level = ServiceLevel(ttft_s=ttft, tpot_s=tpot, e2e_s=e2e)
    kind = RequestClass(prompt=prompt, output=output, level=level)
    return Traffic(rate=rate, classes=(kind,), **more)


@lru_cache
def small(hardware="l4", rules=(), deployment=(), **asked):
    """Of qwen2.5-0.5b; ``rules`` and ``deployment`` are pairs."""
    return plan(
        "qwen2.5-0.5b", hardware, traffic(**asked), Deployment(**SMALL | dict(deployment)),
        Rules(**ONE | dict(rules)),
    )  # fmt: skip
