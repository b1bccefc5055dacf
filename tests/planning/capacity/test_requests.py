"""Traffic as requests, and percentiles by class from sequences that ended."""

import pytest

from perfmodel import InputError, RequestClass, Traffic
from perfmodel.planning.capacity.requests import ClassLatencies, demand_of, mean_tokens, parts_of
from perfmodel.serving.sequence import Sequence

TWO = Traffic(
    rate=4.0,
    classes=(
        RequestClass(name="chat", share=3, prompt=100, output="uniform:10:30", prefix_tokens=40),
        RequestClass(name="report", share=1, prompt="uniform:1000:3000", output=400),
    ),
)


def ended(number, part, arrival, first, finish, output):
    made = Sequence(number, arrival, 10, output, part=part)
    made.first_s, made.finish_s = first, finish
    return made


def test_mean_tokens_by_hand():
    # prompt 3/4·100 + 1/4·2000 = 575; output 3/4·20 + 1/4·400 = 115
    assert mean_tokens(TWO) == (575.0, 115.0)


def test_the_mean_of_a_clipped_distribution_is_that_of_what_is_drawn():
    traffic = Traffic(rate=1.0, classes=(RequestClass(prompt="exponential:1000:1000", output=1),))
    # E[min(X, m)] of an exponential of mean m is m·(1 − 1/e) = 632.1
    assert mean_tokens(traffic)[0] == pytest.approx(632.1, rel=2e-3)


def test_percentiles_by_class_by_hand():
    latencies = ClassLatencies(2, first=1, end=12)
    # Class 0: TTFT 1 … 10 s and TPOT (finish − first)/(5 − 1) = 0.1 … 1.0 s; numbers 0 and 12 are
    # outside what is counted. Class 1 ends with its first token.
    rows = [ended(n, 0, 0.0, float(n), n + 0.4 * n, 5) for n in range(1, 11)]
    rows += [ended(0, 0, 0.0, 99.0, 999.0, 5), ended(12, 0, 0.0, 99.0, 999.0, 5)]
    rows += [ended(11, 1, 2.0, 5.0, 5.0, 1)]
    latencies(rows[:4])
    latencies(rows[4:])
    chat, report = latencies.seen(90.0)
    # nine of ten don't exceed the ninth value
    assert (chat.ttft_s, chat.tpot_s, chat.e2e_s) == pytest.approx((9.0, 0.9, 12.6))
    assert (report.ttft_s, report.tpot_s, report.e2e_s) == (3.0, None, 3.0)
    assert latencies.seen(91.0)[0].ttft_s == 10.0
    assert latencies.seen(50.0)[0].ttft_s == 5.0


def test_growth_compares_the_halves_in_the_order_of_arrival():
    latencies = ClassLatencies(1, 0, 100)
    latencies([ended(n, 0, float(n), n + 1.0, n + (2.0 if n < 5 else 6.0), 2) for n in range(10)])
    assert latencies.growth() == 3.0


def test_the_classes_become_the_parts_of_a_mix():
    demand = demand_of(TWO, parts_of(TWO), 7.0, 500, seed=3)
    assert demand.arrivals.rate == 7.0
    assert [part.weight for part in demand.mix] == [3, 1]
    assert demand.mix[0].prefix.tokens == 40
    assert demand.mix[1].prefix is None
    # The same text for all of a class, another one for another class.
    other = TWO.model_copy(update={"classes": tuple(reversed(TWO.classes))})
    assert parts_of(other)[1].prefix.name != parts_of(TWO)[0].prefix.name


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prompt": "much"}, ("mine.yaml", "classes.0.prompt", "much")),
        ({"output": "uniform:9:3"}, ("mine.yaml", "classes.0.output", "swap")),
        ({"prompt": 100, "prefix_tokens": 101}, ("classes.0.prefix_tokens", "101", "shorten")),
    ],
)
def test_lengths_that_are_none_are_named(fields, words):
    with pytest.raises(InputError) as error:
        parts_of(Traffic(rate=1.0, classes=(RequestClass(**fields),)), "mine.yaml")
    assert all(word in str(error.value) for word in words)


def test_two_classes_of_one_name_are_refused():
    with pytest.raises(InputError, match=r"classes\.1\.name"):
        parts_of(Traffic(rate=1.0, classes=(RequestClass(), RequestClass())))
