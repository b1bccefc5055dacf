"""Whole plans: sized as their loads say, kept when simulated again, dearer when more is asked."""

import pytest

import perfmodel as api
from perfmodel.planning.capacity.question import needs_of
from perfmodel.planning.capacity.sizing import size_fleet
from tests.planning.capacity.case import ONE, SMALL, small, traffic


@pytest.fixture(scope="module")
def best():
    return small().best


def test_the_fleet_is_sized_from_the_simulated_load(best):
    plan = small()
    assert best.level in best.levels
    assert all(a.rate < b.rate for a, b in zip(best.levels, best.levels[1:], strict=False))
    price = plan.terms.usd_per_gpu_hour["l4"]
    fleets = [
        size_fleet(best.level.rate, 1, best.prefill_share, needs_of(plan.traffic, plan.terms, usd))
        for usd in (price.low, price.middle, price.high)
    ]
    assert best.fleet == fleets[1]
    assert best.usd_per_hour.low == fleets[0].usd_per_hour
    assert best.usd_per_hour.high == fleets[2].usd_per_hour
    assert best.usd_per_million_output_tokens.high == fleets[2].usd_per_million_output_tokens
    assert 0 < best.prefill_share < 1
    assert best.front
    assert best.load_limit


def test_what_users_see_in_the_busiest_hour_is_what_is_promised(best):
    plan = small()
    assert best.busiest.rate == pytest.approx(60 / best.fleet.replicas)
    assert best.busiest.keeps([c.level for c in plan.traffic.classes])
    assert best.busiest.rate < 0.8 * best.level.rate
    assert best.tpot_s == best.busiest.seen[0].tpot_s


@pytest.mark.parametrize("seed", [7, 8])
def test_promises_are_kept_by_other_requests_too(best, seed):
    # `simulate` counts by itself: all from the warm-up on, and percentiles by a histogram.
    def percentile(rate):
        demand = api.Demand(api.OpenLoop(rate), 600, 80, requests=4000, seed=seed)
        serving = api.Serving(warmup=500)
        return api.simulate("qwen2.5-0.5b", "l4", demand, api.Deployment(**SMALL), serving)

    at_target = percentile(0.8 * best.level.rate)
    assert at_target.ttft_s.p90 <= 0.3
    assert at_target.tpot_s.p90 <= 0.03
    at_limit = percentile(best.level.rate)
    assert at_limit.tpot_s.p90 == pytest.approx(best.level.seen[0].tpot_s, rel=0.15)
    assert at_limit.utilisation == pytest.approx(best.level.utilisation, abs=0.05)


def test_a_tighter_promise_is_never_cheaper():
    costs = [small(tpot=tpot).best for tpot in (0.012, 0.02, 0.03)]
    rates = [choice.level.rate for choice in costs]
    assert rates == sorted(rates)
    rents = [choice.fleet.usd_per_hour for choice in costs]
    assert rents == sorted(rents, reverse=True)


def test_a_higher_percentile_is_never_cheaper():
    assert small(percentile=99.0).best.level.rate <= small(percentile=50.0).best.level.rate


def test_more_requests_need_more_and_the_horizon_follows():
    plan = small(growth=0.5, months=3, peak=2.0)
    months = plan.best.months
    assert [m.month for m in months] == [0, 1, 2, 3]
    assert [m.rate for m in months] == pytest.approx([60, 90, 135, 202.5])
    assert [m.fleet.replicas for m in months] == sorted(m.fleet.replicas for m in months)
    assert months[0].fleet == plan.best.fleet
    assert plan.best.fleet.gpus > small().best.fleet.gpus  # twice as many in the busiest hour
    assert small(rate=240.0).best.fleet.gpus > small().best.fleet.gpus


def test_long_prompts_shift_the_rent_to_prefill():
    shares = [
        small(prompt=prompt, output=output, ttft=1.0).best.prefill_share
        for prompt, output in ((50, 200), (600, 80), (2000, 20))
    ]
    assert shares == sorted(shares)
    assert shares[0] < 0.2
    assert shares[2] > 0.5


def test_a_stated_price_is_the_whole_range():
    rules = api.Rules(**ONE, usd_per_gpu_hour={"l4": 2.0}, spare=0)
    plan = api.plan("qwen2.5-0.5b", ["l4"], traffic(), api.Deployment(**SMALL), rules)
    best = plan.best
    assert best.usd_per_hour.low == best.usd_per_hour.high == 2.0 * best.fleet.gpus
    assert plan.terms.price_source["l4"] == "as stated"
    assert best.fleet.utilisation == best.fleet.utilisation_degraded


def test_without_a_price_gpus_are_planned_and_costs_left_open():
    best = small(hardware="m4-max", rate=2.0, ttft=3.0, tpot=0.2).best
    assert best.usd_per_hour is None
    assert best.usd_per_million_prompt_tokens is None
    assert best.fleet.gpus >= 2


def test_classes_are_simulated_together_and_seen_apart():
    level = api.ServiceLevel(ttft_s=0.5, tpot_s=0.05)
    classes = (
        api.RequestClass(name="chat", share=3, prompt=200, output=60, prefix_tokens=128,
                         level=level),
        api.RequestClass(name="report", share=1, prompt=3000, output=100,
                         level=api.ServiceLevel(e2e_s=12.0)),
    )  # fmt: skip
    plan = api.plan(
        "qwen2.5-0.5b", "l4", api.Traffic(rate=20.0, classes=classes), api.Deployment(**SMALL),
        api.Rules(**ONE),
    )  # fmt: skip
    chat, report = plan.best.busiest.seen
    assert plan.best.serving.prefix_caching is True
    assert chat.ttft_s < report.ttft_s
    assert chat.ttft_s <= 0.5
    assert report.e2e_s <= 12.0


def test_pools_are_sized_as_a_whole():
    plan = api.plan(
        "qwen2.5-0.5b", "l4", traffic(), api.Deployment(**SMALL), api.Rules(**ONE),
        serving=api.Serving(disaggregate=(2, 1)),
    )  # fmt: skip
    best = plan.best
    assert best.gpus_per_replica == 3
    assert best.fleet.gpus == 3 * best.fleet.replicas
    assert best.prefill_share == pytest.approx(2 / 3)
    assert "--disaggregate 2:1" in best.settings


def test_what_is_fixed_is_kept_and_the_rest_is_searched():
    plan = api.plan(
        "qwen2.5-0.5b", "l4", traffic(), api.Deployment(tp=1, max_num_seqs=32),
        api.Rules(confirm=2, disaggregated=False),
    )  # fmt: skip
    assert all(c.deployment.tp == 1 for c in plan.choices)
    assert all(c.deployment.max_num_seqs == 32 for c in plan.choices)
    assert {c.deployment.kv_cache for c in plan.choices} == {"auto", "fp8"}
    narrow = next(c for c in plan.choices if c.deployment.kv_cache == "fp8")
    assert any("fp8" in risk for risk in narrow.risks)
    own = next(c for c in plan.choices if c.deployment.kv_cache == "auto")
    assert own.risks == () or all("weights" in risk for risk in own.risks)
    assert plan.considered == 4  # two formats of weights by two of the cache


def test_choices_come_cheapest_first_and_the_front_is_beaten_by_none():
    plan = api.plan(
        "qwen2.5-0.5b", ["l4", "h100-sxm"], traffic(),
        api.Deployment(weights="bf16", kv_cache="bf16"), api.Rules(confirm=3, disaggregated=False),
    )  # fmt: skip
    rents = [c.fleet.usd_per_hour for c in plan.choices]
    assert rents == sorted(rents)
    assert {c.hardware.name for c in plan.choices} == {"l4", "h100-sxm"}
    stands = [(c.fleet.usd_per_hour, c.tpot_s) for c in plan.choices]
    for choice, (usd, tpot) in zip(plan.choices, stands, strict=True):
        beaten = any(u <= usd and t <= tpot and (u, t) != (usd, tpot) for u, t in stands)
        assert choice.front is not beaten


def test_a_promise_that_nothing_keeps_names_the_nearest_that_would():
    plan = small(ttft=1e-3)
    assert plan.choices == ()
    assert plan.best is None
    near = plan.nearest
    assert near.hardware == "l4"
    assert "TTFT of all" in near.limit
    assert "1 ms promised" in near.limit
    assert near.would_do.startswith("TTFT of all: ")
    # and it would
    relaxed = float(near.would_do.split(": ")[1].split()[0]) / 1e3
    assert small(ttft=relaxed).choices


def test_too_few_gpus_name_how_many_would_do():
    plan = small(rules=(("max_gpus", 1),))
    assert plan.choices == ()
    assert plan.nearest.limit == f"GPUs: {small().best.fleet.gpus} needed, 1 allowed"
    gpus = int(plan.nearest.would_do.split()[1])
    assert small(rules=(("max_gpus", gpus),)).choices


def test_a_model_that_does_not_fit_names_memory():
    plan = api.plan("llama-3.1-70b", "l4", traffic(rate=1.0), api.Deployment(tp=1))
    assert plan.choices == ()
    assert plan.nearest.limit.startswith("memory")
    assert "GiB" in plan.nearest.limit
    assert "more GPUs" in plan.nearest.would_do
    assert len(plan.rejected) == plan.considered


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"hardware": []}, "--hardware"),
        ({"hardware": ["l4", "l4"]}, "twice"),
        ({"rules": lambda: api.Rules(usd_per_gpu_hour={"h100-sxm": 2.0})}, "--price"),
        ({"rules": lambda: api.Rules(usd_per_gpu_hour={"l4": -2.0})}, "--price"),
        ({"rules": lambda: api.Rules(utilisation=0.0)}, "--utilisation"),
        ({"rules": lambda: api.Rules(spare=-1)}, "--spare"),
        ({"rules": lambda: api.Rules(max_gpus=0)}, "--max-gpus"),
        ({"rules": lambda: api.Rules(weights=("fp9",))}, "--weight-formats"),
        ({"serving": api.Serving(scheduler="best")}, "--scheduler"),
        ({"serving": api.Serving(router="best")}, "router"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, word):
    def make():
        given = {"hardware": "l4", "traffic": traffic()} | arguments
        made = {name: value() if callable(value) else value for name, value in given.items()}
        api.plan("qwen2.5-0.5b", **made)

    with pytest.raises(api.InputError, match=word) as error:
        make()
    assert "\n" not in str(error.value)


def test_progress_is_told():
    told = []
    api.plan(
        "qwen2.5-0.5b", "l4", traffic(), api.Deployment(**SMALL), api.Rules(**ONE),
        progress=lambda *state: told.append(state),
    )  # fmt: skip
    assert all(0 <= done <= total for _, done, total in told)
    assert len({what for what, _, _ in told}) >= 3
