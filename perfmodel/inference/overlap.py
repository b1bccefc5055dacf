"""Exchanges that take place, and those that run behind the other kernels of the same step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfmodel.kernels.kernel_time import KernelTime
from perfmodel.operators.quantity import Quantity, maximum, minimum, where
from perfmodel.operators.record import Collective, Operator

Priced = list[tuple[Operator, KernelTime]]


def hides(operator: Operator) -> bool:
    """Exchanges inside a layer; a stage waits for what the stage before sends it."""
    return isinstance(operator, Collective) and operator.kind != "send_recv"


def sent(operator: Operator, kernel: KernelTime) -> KernelTime:
    """The time of an operator; an exchange of nothing, such as a prefix's keys, takes no time."""
    if not isinstance(operator, Collective):
        return kernel
    messages = np.asarray(operator.message_bytes) > 0
    if np.all(messages):
        return kernel
    return _cut(replace(kernel, launches=where(messages, 1, 0)), where(messages, 1.0, 0.0))


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
        if hides(operator):
            exchanges = exchanges + operator.count * kernel.time_s
        else:
            others = others + operator.count * kernel.time_s
    left = 1 - hidden_s(share, exchanges, others) / maximum(exchanges, 1e-30)
    return [(o, _cut(kernel, left) if hides(o) else kernel) for o, kernel in priced]


def hidden_s(share: float, exchanges: Quantity, others: Quantity) -> Quantity:
    """What of a step's ``exchanges`` runs behind its ``others``: min(share·C, K) seconds."""
    return minimum(share * exchanges, others)


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
        saves_s=kernel.saves_s * left,
        latency_s=None if kernel.latency_s is None else kernel.latency_s * left,
    )
