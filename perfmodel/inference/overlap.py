"""Exchanges that run behind the other kernels of the same step."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.kernels.kernel_time import KernelTime
from perfmodel.operators.quantity import Quantity, maximum, minimum
from perfmodel.operators.record import Collective, Operator

Priced = list[tuple[Operator, KernelTime]]


def _hides(operator: Operator) -> bool:
    """Exchanges inside a layer; a stage waits for what the stage before sends it."""
    return isinstance(operator, Collective) and operator.kind != "send_recv"


def exposed(priced: Priced, share: float) -> Priced:
    """The operators of a step with the exchanges' times cut to what isn't hidden.

    Up to ``share`` of the exchanges' time C runs while other kernels compute, for at most their
    own time K: hidden = min(share·C, K), and the step takes K + C − hidden, which is never less
    than max(K, C). Each exchange is cut by the same factor, its roof with it: what is shown is
    what is left. Hidden exchanges are assumed not to slow the kernels that they run beside.
    """
    if share == 0:
        return priced
    exchanges: Quantity = 0.0
    others: Quantity = 0.0
    for operator, kernel in priced:
        if _hides(operator):
            exchanges = exchanges + operator.count * kernel.time_s
        else:
            others = others + operator.count * kernel.time_s
    left = 1 - minimum(share * exchanges, others) / maximum(exchanges, 1e-30)
    return [(o, _cut(kernel, left) if _hides(o) else kernel) for o, kernel in priced]


def _cut(kernel: KernelTime, left: Quantity) -> KernelTime:
    return replace(
        kernel,
        time_s=kernel.time_s * left,
        low_s=kernel.low_s * left,
        high_s=kernel.high_s * left,
        compute_s=kernel.compute_s * left,
        memory_s=kernel.memory_s * left,
        network_s=kernel.network_s * left,
        launch_s=kernel.launch_s * left,
        roof_s=kernel.roof_s * left,
        latency_s=None if kernel.latency_s is None else kernel.latency_s * left,
    )
