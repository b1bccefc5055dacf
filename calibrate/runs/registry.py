"""All families that one device runs alone, ceilings first: the others' shares are taken of them."""

from __future__ import annotations

from calibrate.runs import attention, experts, matmul, memory, small
from calibrate.runs.base import Family
from perfmodel.errors import UnknownNameError

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        matmul.PEAK,
        memory.BANDWIDTH,
        small.LAUNCH,
        memory.HOST_COPY,
        matmul.GEMM,
        attention.PREFILL,
        attention.DECODE,
        experts.GROUPED,
        experts.LAYER,
        small.ELEMENTWISE,
    )
}
CEILINGS = ("matmul_peak", "bandwidth")


def family(name: str) -> Family:
    """The family called ``name``.

    Raises:
        UnknownNameError: with the names that are known.
    """
    if name not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise UnknownNameError(f"no kernel family is called {name!r:.40}; known: {known}")
    return FAMILIES[name]
