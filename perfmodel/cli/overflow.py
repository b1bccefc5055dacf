"""What doesn't fit, on one line, and what would."""

from __future__ import annotations

import numpy as np

from perfmodel.cli.text import binary, whole
from perfmodel.errors import CapacityError
from perfmodel.inference.estimate import Estimate, estimate
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.workload import Workload


def overflow_text(result: Estimate) -> str | None:
    """What doesn't fit and what would mend it; None where everything fits."""
    memory = result.memory
    if memory.fits:
        return None
    head = f"{result.model.name} on {result.hardware.name}: "
    if float(memory.kv_room_bytes) <= 0 and not memory.max_sequences:
        return f"{head}{_without_room(result)}"
    return f"{head}{_too_much_cache(result)}"


def refuse_overflow(result: Estimate) -> None:
    """Say what doesn't fit and what would mend it.

    Raises:
        CapacityError: where the batch doesn't fit.
    """
    text = overflow_text(result)
    if text is not None:
        raise CapacityError(text)


def refuse_unfit(result: Estimate, deployment: Deployment) -> None:
    """`refuse_overflow` for the first setting of arrays that doesn't fit.

    Raises:
        CapacityError: where one doesn't fit.
    """
    load = result.workload
    fits = np.ravel(result.memory.fits)
    if fits.all():
        return
    first = int(np.argmin(fits))
    names = [name for name in type(load).model_fields if np.ndim(getattr(load, name))]
    shape = np.shape(result.memory.fits)
    one = {n: np.broadcast_to(getattr(load, n), shape).ravel()[first].item() for n in names}
    single = Workload(**{**dict(load), **one})
    refuse_overflow(estimate(result.model, result.hardware, single, deployment))


def _kept_back(result: Estimate) -> str:
    """The share that may be used, where the user set it below the engine's own."""
    share = result.plan.deployment.gpu_memory_utilization or 1.0
    return f"{share:g}" if share < result.plan.own_utilisation else ""


def _without_room(result: Estimate) -> str:
    memory, share = result.memory, _kept_back(result)
    parts = (
        f"weights {binary(memory.weights_bytes)}, activation peak "
        f"{binary(memory.activation_bytes)} and reserve {binary(memory.reserved_bytes)} per "
        f"GPU leave no room for a cache in {binary(memory.capacity_bytes)}"
    )
    default = result.plan.own_utilisation
    gain = (default - float(share or default)) * memory.capacity_bytes
    if share and float(memory.kv_room_bytes) + gain > 0:
        return f"{parts}: raise --gpu-memory-utilization from {share} ({default:g} would do)"
    remedies = ["raise --tp or --pp", "take smaller --weights"]
    if -float(memory.kv_room_bytes) < float(memory.activation_bytes):
        remedies.append("lower --max-num-seqs")
    if share:
        remedies.append(f"raise --gpu-memory-utilization from {share}")
    return f"{parts}: {_either(remedies)}"


def _either(remedies: list[str]) -> str:
    return f"{', '.join(remedies[:-1])}, or {remedies[-1]}" if remedies[1:] else remedies[0]


def _too_much_cache(result: Estimate) -> str:
    memory, load = result.memory, result.workload
    length = whole(float(load.prompt) + float(load.output))
    need = (
        f"--batch {load.batch} at {whole(load.prompt)} + {whole(load.output)} tokens needs "
        f"{binary(memory.required_bytes)} per GPU ({binary(memory.kv_bytes)} of them cache), "
        f"and it has {binary(memory.capacity_bytes)}: "
    )
    longest = float(memory.max_context)
    context = f"{whole(longest)} tokens (prompt + output) at this batch"
    share = _kept_back(result)
    more = [f"a --gpu-memory-utilization above {share}"] if share else []
    if memory.max_sequences:
        most = f"at most --batch {memory.max_sequences} at this length"
        return need + _either([most, *([context] if longest else []), *more])
    remedies = ["more GPUs (--tp, --pp)"]
    if memory.kv_bytes_per_token > 0:  # a state is as large for a shorter prompt
        remedies.insert(0, f"at most {context}" if longest else "shorter prompts")
        if result.plan.formats.cache.bits > 8:
            remedies.append("--kv-cache-dtype fp8")
    return (
        f"{need}not even one sequence of {length} tokens fits; what would: "
        f"{_either([*remedies, *more])}"
    )
