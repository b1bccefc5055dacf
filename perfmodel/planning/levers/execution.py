"""How kernels are launched, which attention kernel runs, and which engine runs them."""

from __future__ import annotations

from perfmodel.planning.lever import Change, Idle, Lever, Price, View

CURRENT = {
    "vllm": {"NVIDIA", "AMD"},
    "sglang": {"NVIDIA", "AMD"},
    "trtllm-2025": {"NVIDIA"},
    "lmdeploy": {"NVIDIA"},
}
"""Presets of current releases, and whose GPUs they run on; the others describe older ones."""
ALIKE = "kernels taken to be alike, host times assumed (docs/engines.md)"
APART = "compares a preset of an older release, with the errors of its own fit"


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
    if view.base.plan.deployment.attention == "flash2" and view.base.hardware.vendor == "NVIDIA":
        newer = (("attention", "flash3"),)
        price = Price(complexity="Hopper's kernels")
        return (Change("FlashAttention", "FlashAttention-3", price, deployment=newer),)
    unfused = Change("FlashAttention", "unfused attention", Price(),
                     deployment=(("attention", "unfused"),))  # fmt: skip
    return Idle("a fused kernel runs already", without=unfused)


def _changes_fusion(view: View) -> tuple[Change, ...] | Idle:
    name = "fused passes"
    if view.base.plan.deployment.fusion == "full":
        own = Change(name, "the engine's own fusion", Price(), deployment=(("fusion", "engine"),))
        return Idle("on already", without=own)
    price = Price(complexity="a compiler (torch.compile, vLLM's fusion passes)")
    return (Change(name, "passes fused by a compiler", price, deployment=(("fusion", "full"),)),)


def _changes_engine(view: View) -> tuple[Change, ...] | Idle:
    own, hardware = view.base.plan.engine.name, view.base.hardware
    others = [name for name, on in CURRENT.items() if name != own and hardware.vendor in on]
    if not others:
        return Idle(f"no other preset of a current release runs on {hardware.name}")
    remark = ALIKE if own in CURRENT else APART
    price = Price(complexity="another server")
    return tuple(
        Change("engine", f"engine {name}", price, deployment=(("engine", name),), remark=remark)
        for name in others
    )


LEVERS = (
    Lever("CUDA graphs", "execution", _changes_execution),
    Lever("FlashAttention", "execution", _changes_attention),
    Lever("fused passes", "execution", _changes_fusion),
    Lever("engine", "execution", _changes_engine),
)
