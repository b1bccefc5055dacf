"""Exchanges in fewer bits: bytes on the wire, the passes they need, and their sign."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.operators.communication import compressed
from perfmodel.operators.context import Step
from perfmodel.operators.format_bytes import BASE, Formats, Product
from perfmodel.operators.record import Collective, Elementwise, Operator
from perfmodel.operators.sharding import Parallel
from perfmodel.operators.step import step_operators
from perfmodel.specs.formats import number_format
from tests.operators.support import model, named, total

STEP = Step("prefill", 2, 512, 0)


def step(name: str, sent: str, parallel: Parallel, **formats: Any) -> tuple[Operator, ...]:
    made = Formats(communication=number_format(sent), **formats)
    return step_operators(model(name), STEP, made, parallel)


def wire(operators: tuple[Operator, ...]) -> Any:
    """Bytes over links, the logits apart: they always go in 16 bits."""
    return total([o for o in operators if o.name != "lm_head.all_gather"], "wire_bytes")


@pytest.mark.parametrize(
    ("name", "parallel"),
    [
        ("llama-3.1-8b", Parallel(tp=4)),
        ("llama-3.1-8b", Parallel(tp=2, pp=4)),
        ("mixtral-8x7b", Parallel(tp=2, ep=8, dp=4)),
    ],
)
def test_fp8_halves_the_wire(name, parallel):
    wide = step(name, "bf16", parallel)
    assert wire(step(name, "fp8", parallel)) == pytest.approx(wire(wide) / 2, rel=1e-12)
    assert step(name, "fp16", parallel) == wide


def test_an_all_reduce_by_hand():
    """1,024 tokens × 4,096: 8 MiB in 16 bits, 4 MiB in fp8, on four ranks."""
    operators = step("llama-3.1-8b", "fp8", Parallel(tp=4))
    mib = 2**20
    exchange = named(operators, "ffn.all_reduce")
    assert exchange.message_bytes == 4 * mib
    assert exchange.wire_bytes == 2 * 3 / 4 * 4 * mib
    passes = {o.name.rsplit(".", 1)[-1]: o for o in operators if o.name.startswith("ffn.all_red")}
    assert passes["quantise"].bytes == (8 + 4) * mib  # what this rank holds
    assert passes["sum"].bytes == (4 + 1) * mib  # its quarter of four ranks' messages
    assert passes["dequantise"].bytes == (4 + 8) * mib  # the sums of all
    assert all(o.count == exchange.count == 32 for o in passes.values())


def test_scales_are_on_the_wire():
    """int8 in groups of 128: 8 + 16/128 bits; per row 8 + 16/4096."""
    parallel = Parallel(tp=4)
    wide = wire(step("llama-3.1-8b", "bf16", parallel))
    assert wire(step("llama-3.1-8b", "int8_g128", parallel)) == pytest.approx(wide * 8.125 / 16)
    rows = wire(step("llama-3.1-8b", "int8", parallel))
    assert rows == pytest.approx(wide * (8 + 16 / 4096) / 16)


def test_a_gather_quantises_its_own_share_and_a_scatter_sums():
    def made(kind: Any) -> dict[str, Any]:
        wide = Collective(name="x", kind=kind, message_bytes=8e6, ranks=4, span=4)

        def elementwise(name: str, read: float, write: float, rows: float) -> Elementwise:
            return Elementwise(name=name, tokens=rows, read_bytes=read, write_bytes=write)

        found = compressed(wide, number_format("fp8"), 4000, elementwise)
        return {o.name: o.bytes for o in found if isinstance(o, Elementwise)}

    assert made("all_gather") == {"x.quantise": 2e6 + 1e6, "x.dequantise": 4e6 + 8e6}
    assert made("reduce_scatter") == {"x.quantise": 8e6 + 4e6, "x.sum": 4e6 + 2e6}
    assert made("send_recv") == {"x.quantise": 12e6, "x.dequantise": 12e6}


def test_dispatch_goes_in_the_narrower_of_both():
    """Experts that take fp8 in get it without a pass more; what comes back is 16 bits wide."""
    fp8 = number_format("fp8")
    experts = {"expert": Product(fp8, fp8, "fp8")}
    parallel = Parallel(ep=8, dp=8)
    auto = step("mixtral-8x7b", "bf16", parallel, roles=experts)
    sent = step("mixtral-8x7b", "fp8", parallel, roles=experts)
    assert named(auto, "experts.dispatch") == named(sent, "experts.dispatch")
    assert not any(o.name.startswith("experts.dispatch.") for o in sent)
    combine = [named(o, "experts.combine").message_bytes for o in (auto, sent)]
    assert combine[1] == combine[0] / 2


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["int4_g32", "fp8", "int8", "fp8_block"]),
    st.sampled_from([2, 4, 8]),
    st.sampled_from([1, 2, 4]),
)
def test_fewer_bits_never_send_more(sent, tp, pp):
    parallel = Parallel(tp=tp, pp=pp)
    wide = step("llama-3.1-8b", "bf16", parallel)
    narrow = step("llama-3.1-8b", sent, parallel)
    assert wire(narrow) < wire(wide)
    assert total(narrow) == total(wide)  # FLOPs are the model's
    assert total(narrow, "bytes") > total(wide, "bytes")  # the passes


def test_one_gpu_exchanges_nothing():
    alone = Parallel()
    assert step("llama-3.1-8b", "fp8", alone) == step("llama-3.1-8b", "bf16", alone)
    assert Formats().communication is BASE
