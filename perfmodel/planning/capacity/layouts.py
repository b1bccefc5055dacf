"""Parallel layouts that are sensible for a model on a kind of hardware."""

from __future__ import annotations

from collections.abc import Iterator

from perfmodel.specs.engine import load_engine
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import Model, MoeFfn

Layout = dict[str, int]
"""Fields of a deployment: tp, pp, ep, dp."""
LAYOUT = ("tp", "pp", "dp", "ep")
NODE_GPUS = 8
"""GPUs of a server where the profile's link joins fewer; and the widest group that is tried where
less is enough."""
NODES = (2, 4)
"""Servers, or parts of a link domain as large, that one replica spans where one can't hold it."""
ATTENTION_DP = ("vllm", "sglang", "trtllm")
"""Engines that run attention data-parallel beside shared experts: vLLM's --data-parallel-size with
--enable-expert-parallel, SGLang's --enable-dp-attention, TensorRT-LLM's enable_attention_dp."""


def layouts(
    model: Model, hardware: Hardware, engine: str, fixed: frozenset[str]
) -> Iterator[Layout]:
    """Layouts within one server, smallest first; a fixed field is never set.

    Tensor-parallel groups of powers of two; for mixtures of experts also with the experts spread
    over the group, and with the attention replicated on each of its GPUs. Where a size other than
    TP is fixed, TP alone varies.
    """
    for size in [1] if "tp" in fixed else _powers(_node(hardware)):
        tensor = {} if "tp" in fixed else {"tp": size}
        yield tensor
        if size > 1 and _experts(model) and not fixed & set(LAYOUT):
            yield {"tp": size, "ep": size}
            if _attends_apart(engine):
                yield {"tp": 1, "dp": size, "ep": size}


def wide_layouts(
    model: Model, hardware: Hardware, engine: str, fixed: frozenset[str]
) -> Iterator[Layout]:
    """Layouts over more: a wider link domain, pipeline stages, experts over all GPUs."""
    if fixed & set(LAYOUT):
        return
    node = _powers(_node(hardware))[-1]
    for nodes in NODES:
        if nodes * node <= hardware.link_domain:
            yield {"tp": nodes * node}
        yield {"tp": node, "pp": nodes}
        if _experts(model):
            yield {"tp": nodes * node, "ep": nodes * node}
            if _attends_apart(engine):
                yield {"tp": 1, "dp": nodes * node, "ep": nodes * node}


def _node(hardware: Hardware) -> int:
    domain = hardware.link_domain
    return min(domain, NODE_GPUS) if domain > 1 else NODE_GPUS


def _powers(most: int) -> list[int]:
    """Powers of two up to ``most``."""
    return [2**n for n in range(most.bit_length())]


def _experts(model: Model) -> bool:
    return any(isinstance(layer.ffn, MoeFfn) for layer in model.layers)


def _attends_apart(engine: str) -> bool:
    return load_engine(engine).name.startswith(ATTENTION_DP)
