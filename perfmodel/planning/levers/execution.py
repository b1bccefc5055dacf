"""How kernels are launched, which attention kernel runs, and which engine runs them."""

from __future__ import annotations

from perfmodel.planning.lever import Change, Idle, Lever, Price, View

CURRENT_ENGINE = "vllm"
"""The one preset of a current release that runs on GPUs; the others describe older ones."""
ITS_VENDORS = {"NVIDIA", "AMD"}


def _changes_execution(view: View) -> tuple[Change, ...] | Idle:
    if view.base.plan.deployment.execution == "eager":
        price = Price(memory="captured graphs take some, not counted here",
                      complexity="fixed shapes, a capture at start-up")  # fmt: skip
        values = (("execution", "graph"),)
        return (Change("CUDA graphs", "CUDA graphs", price, deployment=values),)
    eager = Change("CUDA graphs", "eager execution", Price(), deployment=(("execution", "eager"),))
    return Idle("on already", without=eager)


def _changes_attention(view: View) -> tuple[Change, ...] | Idle:
    if view.base.plan.deployment.attention == "unfused":
        price = Price(complexity="an attention backend (FlashAttention, FlashInfer)")
        values = (("attention", "fused"),)
        return (Change("FlashAttention", "FlashAttention", price, deployment=values),)
    unfused = Change("FlashAttention", "unfused attention", Price(),
                     deployment=(("attention", "unfused"),))  # fmt: skip
    return Idle("a fused kernel runs already", without=unfused)


def _changes_engine(view: View) -> tuple[Change, ...] | Idle:
    own, hardware = view.base.plan.engine.name, view.base.hardware
    if own == CURRENT_ENGINE:
        return Idle(
            f"{own} runs already; the other presets describe older releases, whose difference "
            "is no lever (estimate --engine compares them)"
        )
    if hardware.vendor not in ITS_VENDORS:
        return Idle(f"no other preset describes an engine for {hardware.name}")
    change = Change(
        "engine",
        f"engine {CURRENT_ENGINE}",
        Price(complexity="another server"),
        deployment=(("engine", CURRENT_ENGINE),),
        remark="compares two presets, each with the errors of its own fit",
    )
    return (change,)


LEVERS = (
    Lever("CUDA graphs", "execution", _changes_execution),
    Lever("FlashAttention", "execution", _changes_attention),
    Lever("engine", "execution", _changes_engine),
)
