"""What advice says: the same numbers as `estimate`, in the order that was asked for."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

import perfmodel
from perfmodel import Deployment, InputError, Limits, Workload, advise, estimate
from perfmodel.planning.lever import Change, Price
from perfmodel.planning.outcome import METRICS
from tests.planning.cases import CASES, advice, option, unused


@pytest.mark.parametrize("name", ["one sequence", "experts"])
def test_every_number_is_that_of_estimate(name):
    given = advice(name)
    for one in (*given.options[::3], *given.pairs[:2], *given.triples[:2]):
        situation = one.outcome.situation
        plain = estimate(
            situation.model, situation.hardware, situation.workload, situation.deployment
        )
        seen = one.outcome.estimate
        for quantity in ("ttft_s", "tpot_s", "total_s"):
            assert getattr(seen, quantity) == getattr(plain, quantity)
            assert seen.interval(quantity) == plain.interval(quantity)
        assert seen.memory.required_bytes == plain.memory.required_bytes
        assert seen.memory.max_sequences == plain.memory.max_sequences


@pytest.mark.parametrize("name", CASES)
def test_a_change_sets_its_fields_and_no_others(name):
    given = advice(name)
    base = given.base.situation
    for one in (*given.options, *given.pairs, *given.triples):
        situation = one.outcome.situation
        set_here = frozenset().union(*(change.fields for change in one.changes))
        for record, kind in (("deployment", Deployment), ("workload", Workload)):
            for field in kind.model_fields:
                now = getattr(getattr(situation, record), field)
                if f"{record}.{field}" not in set_here:
                    assert now == getattr(getattr(base, record), field)
        for change in one.changes:
            for field, value in change.deployment:
                assert getattr(situation.deployment, field) == value


@pytest.mark.parametrize("name", CASES)
def test_no_combination_sets_a_field_twice(name):
    given = advice(name)
    for one in (*given.pairs, *given.triples):
        for a, b in combinations(one.changes, 2):
            assert a.lever != b.lever
            assert not a.fields & b.fields
        assert one.outcome.fits
        assert one.outcome.gpus <= 8
    assert all(len(pair.changes) == 2 for pair in given.pairs)
    assert all(len(triple.changes) == 3 for triple in given.triples)


@pytest.mark.parametrize("by", METRICS)
def test_the_order_is_by_the_stated_metric(by):
    given = advice("a batch", by=by)
    fitting = [o for o in given.options if o.outcome.fits]
    assert given.options[: len(fitting)] == tuple(fitting)
    values = {
        "ttft": [o.outcome.ttft_s for o in fitting],
        "tpot": [o.outcome.tpot_s for o in fitting],
        "throughput": [-o.outcome.tokens_per_s for o in fitting],
        "memory": [o.outcome.required_bytes for o in fitting],
        "cost": [o.outcome.usd_per_million_tokens[0] for o in fitting],
    }[by]
    assert values == pytest.approx(sorted(values), rel=1e-12)


def test_combinations_are_better_than_their_parts():
    given = advice("a batch", by="cost")
    single = {o.changes[0]: o.gains.factor("cost") for o in given.options}
    assert given.pairs
    for one in (*given.pairs, *given.triples):
        assert all(one.gains.factor("cost") > single[change] for change in one.changes)
    factors = [pair.gains.factor("cost") for pair in given.pairs]
    assert factors == sorted(factors, reverse=True)


def test_gains_are_ratios_to_the_base_case():
    given = advice("a batch")
    for one in given.options:
        gains, base, after = one.gains, given.base, one.outcome
        assert gains.ttft.value == pytest.approx(after.ttft_s / base.ttft_s)
        assert gains.tpot.value == pytest.approx(after.tpot_s / base.tpot_s)
        assert gains.throughput.value == pytest.approx(after.tokens_per_s / base.tokens_per_s)
        assert gains.memory.value == after.required_bytes / base.required_bytes
        cost = after.usd_per_million_tokens[1] / base.usd_per_million_tokens[1]
        assert gains.cost.value == pytest.approx(cost)
        for ratio in (gains.ttft, gains.tpot, gains.throughput, gains.cost):
            assert ratio.low <= ratio.value <= ratio.high


def test_cost_by_hand():
    # One H100 at 2 to 5 USD an hour: that many dollars per 3,600 s of its tokens.
    base = advice("a batch").base
    low, high = base.usd_per_million_tokens
    assert low == pytest.approx(2 / 3600 / base.tokens_per_s * 1e6)
    assert high == pytest.approx(5 / 3600 / base.tokens_per_s * 1e6)


def test_fp8_weights_cut_tpot():
    gains = option("one sequence", "weights fp8").gains
    assert gains.tpot.high < 1
    assert gains.memory.value < 1


def test_a_smaller_cache_cuts_tpot_at_a_long_context():
    short, long = (option(name, "KV cache int8") for name in ("one sequence", "long"))
    assert long.gains.tpot.value < 0.9
    assert abs(short.gains.tpot.value - 1) < 0.02
    assert short.alters_nothing()
    assert short in advice("one sequence").options  # said, but
    assert not advice("one sequence").helps(short)  # as no gain


def test_tensor_parallelism_buys_time_for_money():
    gains = option("one sequence", "TP 2").gains
    assert gains.tpot.high < 1 < gains.cost.value


def test_a_larger_batch_buys_throughput_for_tpot():
    gains = option("a batch", "batch 32").gains
    assert gains.throughput.value > 1 < gains.tpot.value
    assert gains.cost.value < 1


def test_the_largest_batch_fits_and_one_more_does_not():
    largest = option("a batch", "largest batch").outcome.situation
    assert largest.workload.batch == advice("a batch").base.estimate.memory.max_sequences
    more = largest.with_values(workload={"batch": largest.workload.batch + 1})
    assert not estimate(more.model, more.hardware, more.workload, more.deployment).memory.fits


def test_a_smaller_cache_makes_room_for_a_larger_batch():
    given = advice("a batch", by="cost")
    kv = option("a batch", "KV cache fp8", by="cost")
    assert kv.largest.situation.workload.batch > given.base_largest.situation.workload.batch
    levers = {"batch", kv.changes[0].lever}
    together = [pair for pair in given.pairs if {c.lever for c in pair.changes} == levers]
    assert together
    batch = kv.largest.situation.workload.batch
    assert max(pair.outcome.situation.workload.batch for pair in together) >= batch


def test_what_makes_it_fit_comes_first():
    given = advice("too large")
    assert not given.base.fits
    fits = [o.outcome.fits for o in given.options]
    assert fits == sorted(fits, reverse=True)
    settings = [o.setting for o in given.useful()]
    assert any(s.startswith("TP 4") for s in settings)
    assert any(s.startswith("weights int4") for s in settings)
    assert not any(s.startswith("weights fp8") for s in settings)  # 65.7 GiB and 13.5 beside them
    fp8 = [p for p in given.pairs if any("fp8" in c.setting for c in p.changes)]
    assert fp8
    assert given.solvable


def test_what_is_on_already_says_what_it_gains_now():
    graphs = unused("one sequence", "CUDA graphs")
    assert graphs.without.gains.tpot.value > 1
    prefix = unused("eager", "prefix caching")
    assert prefix.without.gains.ttft.value > 1
    assert option("eager", "CUDA graphs").gains.tpot.value < 1


def test_levers_that_do_nothing_say_why():
    for lever in ("chunked prefill", "expert parallelism", "activation format",
                  "continuous batching", "prompt packing"):  # fmt: skip
        assert unused("one sequence", lever).reason
    chunks = option("long", "prefill in chunks").gains
    assert abs(chunks.ttft.value - 1) < 0.05
    assert chunks.tpot.value == 1


def test_packing_pays_for_short_prompts():
    short = advise("llama-3.1-8b", "h100-sxm", Workload(prompt=32, output=8))
    said = next(u.reason for u in short.unused if u.lever == "prompt packing")
    assert float(said.split(" would get ")[1].split()[0]) > 3
    assert "fills the device" in unused("one sequence", "prompt packing").reason


def test_limits_are_kept():
    given = advice("a batch", tpot_s=0.012, ttft_s=1.5)
    for one in given.useful():
        assert one.outcome.tpot_s <= 0.012
        assert one.outcome.ttft_s <= 1.5
    kept = [o.outcome.keeps(given.limits) for o in given.options if o.outcome.fits]
    assert kept == sorted(kept, reverse=True)
    batch = option("a batch", "largest batch", tpot_s=0.012, ttft_s=1.5).outcome
    assert batch.situation.workload.batch < advice("a batch").base.estimate.memory.max_sequences
    # A rung of the ladder higher (2^(1/8)) breaks a limit.
    more = batch.situation.with_values(
        workload={"batch": int(np.ceil(batch.situation.workload.batch * 2 ** (2 / 8)))}
    )
    over = estimate(more.model, more.hardware, more.workload, more.deployment)
    assert over.ttft_s > 1.5 or over.tpot_s > 0.012


def test_no_more_gpus_than_allowed():
    given = advise("llama-3.1-8b", "h100-sxm", limits=Limits(max_gpus=1))
    assert all(o.outcome.gpus == 1 for o in (*given.options, *given.pairs, *given.triples))
    assert any(u.lever == "tensor parallelism" for u in given.unused)


def test_fewer_gpus_are_a_lever_too():
    less = option("two chips", "TP 1").gains
    assert less.tpot.value > 1 > less.cost.value


def test_a_stated_limit_of_sequences_bounds_the_batch():
    assert option("two chips", "largest batch").outcome.situation.workload.batch == 64


def test_changes_that_exclude_each_other():
    limit = Change("sequence limit", "at most 8", Price(), deployment=(("max_num_seqs", 8),),
                   excludes=frozenset({"workload.batch"}))  # fmt: skip
    grown = Change("batch", "largest", Price(), grows=True)
    tp = Change("tp", "TP 2", Price(), deployment=(("tp", 2),))
    assert not limit.combines_with(grown)
    assert not grown.combines_with(limit)
    assert limit.combines_with(tp)
    assert not tp.combines_with(tp)


def test_a_model_without_a_growing_cache():
    given = advise("mamba-codestral-7b", "h100-sxm", Workload(prompt=512, output=16))
    reason = next(u.reason for u in given.unused if u.lever == "KV cache format")
    assert "no cache that grows" in reason


def test_one_output_token_has_no_tpot():
    given = advise("llama-3.1-8b", "h100-sxm", Workload(output=1))
    assert given.base.tpot_s is None
    assert all(o.gains.tpot is None for o in given.options)


api: Any = perfmodel  # what a checker would refuse
WRONG = {
    "batch: advice is about one case": lambda: api.advise(
        "llama-3.1-8b", "h100-sxm", Workload(batch=np.array([1, 2]))
    ),
    "--by: 'speed' is no metric": lambda: api.advise("llama-3.1-8b", "h100-sxm", by="speed"),
    "--by tpot": lambda: api.advise("llama-3.1-8b", "h100-sxm", Workload(output=1), by="tpot"),
    "deployment: a perfmodel.Deployment": lambda: api.advise("llama-3.1-8b", "h100-sxm", None, {}),
    "--tp": lambda: api.advise("llama-3.1-8b", "h100-sxm", None, Deployment(tp=3)),
}


@pytest.mark.parametrize("said", WRONG)
def test_one_line(said):
    with pytest.raises(InputError) as caught:
        WRONG[said]()
    assert str(caught.value).startswith(said)


def test_it_is_public():
    assert perfmodel.advise is advise
    assert "advise" in dir(perfmodel)
