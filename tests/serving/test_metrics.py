"""What is collected against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.serving.metrics import Collector
from perfmodel.serving.sequence import Sequence


def test_collected_rows_are_the_sequences():
    rng = np.random.default_rng(0)
    told, rows = Collector(), []
    for number in range(500):
        arrival, wait, first, rest = rng.uniform(0.1, 2, 4)
        sequence = Sequence(number, arrival, 10 + number, 1 + number % 3)
        sequence.admitted_s = arrival + wait
        sequence.first_s = sequence.admitted_s + first
        sequence.finish_s = sequence.first_s + rest * (sequence.output > 1)
        sequence.preemptions = number % 2
        rows.append((wait, wait + first, rest / max(1, sequence.output - 1), sequence.output > 1))
        told.ended([sequence])
    told.gap(0.25, 3)
    told.gap(0.5, 1)
    told.flush()
    wait, ttft, tpot, several = (np.array(column) for column in zip(*rows, strict=True))
    for got, values in ((told.queue, wait), (told.ttft, ttft), (told.tpot, tpot[several])):
        found = got.distribution()
        assert found.count == len(values)
        assert found.mean == pytest.approx(values.mean())
        assert found.p90 == pytest.approx(np.quantile(values, 0.9, method="inverted_cdf"), rel=1e-3)
    assert (told.requests, told.preemptions) == (500, 250)
    assert told.prompt_tokens == sum(10 + n for n in range(500))
    assert told.output_tokens == sum(1 + n % 3 for n in range(500))
    assert told.itl.distribution().mean == pytest.approx((3 * 0.25 + 0.5) / 4)
