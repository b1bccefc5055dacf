"""Small examples with finish times worked out by hand."""

import math
from pathlib import Path

import pytest

from perfmodel.serving.arrivals import Demand, Trace
from perfmodel.serving.engine import Transfer
from perfmodel.serving.simulate import Disaggregation, simulate_engines
from tests.serving.toy import ToyTimes, engine


def run(folder: Path, rows, setup, **layout):
    """(ttft, end, queue) of each request, and the record."""
    path = folder / "trace.csv"
    lines = ["arrival_s,prompt_tokens,output_tokens", *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines))
    found = {}

    def ended(done):
        for s in done:
            assert s.number not in found
            queue = s.admitted_s - s.arrival_s
            found[s.number] = (s.first_s - s.arrival_s, s.finish_s, queue)

    result = simulate_engines(Demand(Trace(path), requests=None), setup, ended=ended, **layout)
    return [found[number] for number in range(len(rows))], result


ABC = [(0, 100, 5), (0, 100, 2), (0, 100, 3)]
"""A, B and C come together, two have room. A prompt takes 1 s, so does any decode step."""


@pytest.mark.parametrize(
    ("policy", "ends", "first"),
    [
        # prompts of A and B 0–2; B ends at 3, its slot is empty until A ends at 6; C's prompt 6–7
        ("static", [6, 3, 9], 7),
        ("decode_first", [6, 3, 9], 7),
        # C's prompt has 3–4 to itself; A and C decode 4–6, A alone 6–7
        ("prefill_first", [7, 3, 6], 4),
        # C's prompt and A's third token share 3–5; both decode until 7
        ("chunked_mixed", [7, 3, 7], 5),
        ("inflight_no_evict", [7, 3, 7], 5),
    ],
)
def test_static_and_continuous_batching(tmp_path, policy, ends, first):
    found, result = run(tmp_path, ABC, engine(policy=policy, seqs=2))
    assert [end for _, end, _ in found] == pytest.approx(ends)
    assert [ttft for ttft, _, _ in found] == pytest.approx([2, 2, first])
    assert result.e2e_s.mean == pytest.approx(sum(ends) / 3)
    assert result.requests_per_s == pytest.approx(3 / max(ends))
    # three requests of 5, 2 and 3 tokens have 4, 1 and 2 gaps
    assert result.itl_s.count == 7


def test_an_arrival_waits_for_the_running_step(tmp_path):
    # A alone: prompt 0–1, tokens at 2, 3, 4, … B comes at 2.5, amid a jump over nine steps: its
    # prompt has 3–4 to itself, then both decode.
    found, result = run(tmp_path, [(0, 100, 10), (2.5, 100, 2)], engine())
    assert found[1] == pytest.approx((1.5, 5, 0.5))
    assert found[0][1] == pytest.approx(11)
    assert result.mean_waiting == pytest.approx(0.5 / 11)


def test_cache_in_use_over_time(tmp_path):
    # 100 blocks of 1 token. Prompt of 40: 40 blocks in 0–0.4, then 9 steps of 1 s hold 41 … 49
    # after them, 40 … 48 before: the mean of a jump is that of its first and last step, 44 + ½·0.
    setup = engine(ToyTimes(), capacity=100, block=1)
    _, result = run(tmp_path, [(0, 40, 10)], setup)
    assert result.kv_utilisation == pytest.approx((0.4 * 0.40 + 9 * 0.44) / 9.4)
    assert result.kv_utilisation_peak == pytest.approx(0.48)


INSTANT = Transfer(bytes_per_token=1.0, bandwidth=math.inf)


def test_pools_with_an_instant_transfer(tmp_path):
    # One prompt a step: A's first token at 1, B's at 2. A decodes alone 1–2, both 2–3.
    found, result = run(
        tmp_path, [(0, 100, 3), (0, 100, 2)], engine(budget=100),
        disaggregation=Disaggregation(1, 1, INSTANT),
    )  # fmt: skip
    assert found == [pytest.approx((1, 3, 0)), pytest.approx((2, 3, 1))]
    assert [pool.name for pool in result.pools] == ["prefill", "decode"]
    assert result.pools[0].utilisation == pytest.approx(2 / 3)
    assert result.pools[1].utilisation == pytest.approx(2 / 3)
    assert result.itl_s.mean == pytest.approx(1)


def test_pools_share_a_link(tmp_path):
    # 2 s for each cache, one after the other, ½ s of latency. A: 1–3, there at 3.5, decodes until
    # 5.5. B: prompt done at 2, link 3–5, there at 5.5, decodes until 6.5.
    transfer = Transfer(bytes_per_token=1.0, bandwidth=50.0, latency_s=0.5)
    found, result = run(
        tmp_path, [(0, 100, 3), (0, 100, 2)], engine(budget=100),
        disaggregation=Disaggregation(1, 1, transfer),
    )  # fmt: skip
    assert found == [pytest.approx((1, 5.5, 0)), pytest.approx((2, 6.5, 1))]
    # gaps: A 1 → 4.5 → 5.5, B 2 → 6.5
    assert result.itl_s.mean == pytest.approx((3.5 + 1 + 4.5) / 3)
    assert result.tpot_s.mean == pytest.approx((4.5 / 2 + 4.5) / 2)


def test_a_sender_keeps_the_cache_until_it_has_arrived(tmp_path):
    # The sender has room for one prompt: B's begins when A's cache has arrived, at 3.5, and ends at
    # 4.5; link until 6.5, there at 7, second token at 8.
    transfer = Transfer(bytes_per_token=1.0, bandwidth=50.0, latency_s=0.5)
    found, result = run(
        tmp_path, [(0, 100, 3), (0, 100, 2)], engine(capacity=199, block=1),
        disaggregation=Disaggregation(1, 1, transfer),
    )  # fmt: skip
    assert found == [pytest.approx((1, 5.5, 0)), pytest.approx((4.5, 8, 3.5))]
    prefill = result.pools[0]
    assert prefill.mean_waiting == pytest.approx(3.5 / 8)
    # 100 tokens in 0–3.5 and in 3.5–7
    assert prefill.kv_utilisation == pytest.approx(100 / 199 * 7 / 8)


def test_one_token_needs_no_decoding(tmp_path):
    found, result = run(
        tmp_path, [(0, 100, 1)], engine(), disaggregation=Disaggregation(1, 1, INSTANT)
    )
    assert found == [pytest.approx((1, 1, 0))]
    assert math.isnan(result.tpot_s.mean)
    assert result.pools[1].utilisation == 0
