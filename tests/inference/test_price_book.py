"""Prices that are remembered are those of the device."""

import numpy as np

from perfmodel import Deployment, Workload, load_hardware, load_model
from perfmodel.inference.estimate import estimate
from perfmodel.inference.price_book import LARGEST_KEPT, PriceBook, operator_key
from perfmodel.operators.record import Gemm


def test_estimates_that_share_prices_are_the_same():
    model, hardware, book = load_model("mixtral-8x7b"), load_hardware("h100-sxm"), PriceBook()
    for deployment in (
        Deployment(tp=2), Deployment(tp=2, kv_cache="fp8"), Deployment(tp=2, execution="eager"),
        Deployment(tp=2, engine="trtllm"), Deployment(tp=2, stack="generic"), Deployment(tp=4),
    ):  # fmt: skip
        for workload in (Workload(batch=4), Workload(batch=np.array([1, 4]), prefill_chunk=300)):
            shared = estimate(model, hardware, workload, deployment, prices=book)
            alone = estimate(model, hardware, workload, deployment)
            for name in ("ttft_s", "tpot_s"):
                assert np.array_equal(getattr(shared, name), getattr(alone, name))
                assert np.array_equal(shared.interval(name), alone.interval(name))


class Counting:
    def __init__(self):
        self.asked = 0

    def time(self, operator):
        self.asked += 1
        return operator.m


def test_equal_operators_are_priced_once():
    device = Counting()
    prices = PriceBook().of(device)
    for m in (8, 8, np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.array([1.0, 3.0])):
        assert np.array_equal(prices.time(Gemm(name="x", m=m, n=4, k=2)), m)
    assert device.asked == 3
    one, many = Gemm(name="x", m=8, n=4, k=2), Gemm(name="x", m=8, n=4, k=2, count=32)
    assert operator_key(one) == operator_key(many)
    assert operator_key(one) != operator_key(Gemm(name="x", m=8, n=4, k=2, weight_format="fp8"))


def test_large_arrays_are_not_kept():
    device = Counting()
    prices = PriceBook().of(device)
    large = Gemm(name="x", m=np.ones(LARGEST_KEPT + 1), n=4, k=2)
    prices.time(large)
    prices.time(large)
    assert device.asked == 2
    assert not prices.table
