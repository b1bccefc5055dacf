"""Which deployments are looked at, and why others aren't."""

import pytest

import perfmodel as api
from perfmodel.planning.capacity.candidates import candidates
from perfmodel.planning.capacity.layouts import layouts, wide_layouts
from perfmodel.planning.capacity.question import Question, Rules, terms_of
from perfmodel.planning.capacity.requests import parts_of
from tests.planning.capacity.case import traffic


def question(model, hardware, deployment=None, rules=None, serving=None, asked=None):
    asked, rules = asked or traffic(), rules or Rules()
    given = deployment or api.Deployment()
    kind = api.load_hardware(hardware)
    made = Question(
        api.load_model(model), asked, parts_of(asked), given, frozenset(given.model_fields_set),
        serving or api.Serving(), rules, terms_of((kind,), rules),
    )  # fmt: skip
    return made, kind


def looked(*arguments, **more):
    return candidates(*question(*arguments, **more))


def sizes(found):
    return {tuple(getattr(c.deployment, n) for n in ("tp", "pp", "dp", "ep")) for c in found}


def test_a_dense_model_is_split_by_powers_of_two_within_a_server():
    found = looked("llama-3.1-8b", "h100-sxm")
    assert sizes(found.fitting) == {(n, 1, 1, 1) for n in (1, 2, 4, 8)}
    # two formats of weights, two of the cache
    assert found.considered == 4 * 2 * 2 == len(found.fitting) + len(found.rejected)
    assert found.rejected == []


def test_heads_that_do_not_divide_are_said_so():
    found = looked("smollm2-135m", "l4")  # 9 heads
    assert sizes(found.fitting) == {(1, 1, 1, 1)}
    assert all("--tp" in r.reason and "9" in r.reason for r in found.rejected)


def test_experts_are_spread_and_attention_replicated_where_the_engine_does():
    found = sizes(looked("mixtral-8x7b", "h100-sxm").fitting)
    assert {(2, 1, 1, 1), (2, 1, 1, 2), (1, 1, 2, 2), (8, 1, 1, 8), (1, 1, 8, 8)} <= found
    plain = sizes(
        looked("mixtral-8x7b", "h100-sxm", api.Deployment(engine="llamacpp-cuda")).fitting
    )
    assert all(dp == 1 for _, _, dp, _ in plain)


def test_what_does_not_fit_says_how_much_is_missing():
    found = looked("llama-3.1-70b", "h100-sxm")
    assert (1, 1, 1, 1) not in sizes(found.fitting)
    assert (4, 1, 1, 1) in sizes(found.fitting)
    one = next(r for r in found.rejected if r.label == "1 GPU")
    assert one.reason.startswith("memory: ")
    assert "GiB are missing" in one.reason


def test_several_servers_are_looked_at_only_where_one_is_too_small():
    assert all(pp == 1 for _, pp, _, _ in sizes(looked("llama-3.1-70b", "h100-sxm").fitting))
    wide = sizes(looked("deepseek-v3", "h100-sxm", rules=Rules(weights=("auto",))).fitting)
    assert (8, 2, 1, 1) in wide
    assert (1, 1, 16, 16) in wide


def test_a_longer_request_than_fits_is_a_reason():
    asked = traffic(prompt=600_000)
    found = looked("llama-3.1-8b", "l4", api.Deployment(tp=1), asked=asked)
    assert found.fitting == []
    assert all(r.reason.startswith("memory: ") for r in found.rejected)
    assert "600,080" in found.rejected[0].reason


def test_fixed_fields_are_kept_even_at_their_defaults():
    found = looked("llama-3.1-8b", "h100-sxm", api.Deployment(tp=1))
    assert sizes(found.fitting) == {(1, 1, 1, 1)}
    found = looked("llama-3.1-8b", "h100-sxm", api.Deployment(pp=2, weights="bf16"))
    assert {pp for _, pp, _, _ in sizes(found.fitting)} == {2}
    assert {c.deployment.weights for c in found.fitting} == {"bf16"}


@pytest.mark.parametrize(
    ("model", "hardware", "weights", "caches"),
    [
        ("llama-3.1-8b", "h100-sxm", {"auto", "fp8"}, {"auto", "fp8"}),
        ("llama-3.1-8b", "a100-sxm-80gb", {"auto"}, {"auto"}),  # multiplies no FP8
        ("gpt-oss-120b", "h100-sxm", {"auto"}, {"auto", "fp8"}),  # stored in 4 bits
        ("mamba-codestral-7b", "h100-sxm", {"auto", "fp8"}, {"auto"}),  # has no growing cache
    ],
)
def test_formats_are_those_of_model_and_chip(model, hardware, weights, caches):
    found = looked(model, hardware).fitting
    assert {c.deployment.weights for c in found} == weights
    assert {c.deployment.kv_cache for c in found} == caches


def test_stated_formats_are_looked_at_with_their_risk():
    found = looked("llama-3.1-8b", "h100-sxm", rules=Rules(weights=("auto", "int4"))).fitting
    assert {c.deployment.weights for c in found} == {"auto", "int4"}
    for candidate in found:
        assert (candidate.deployment.weights == "int4") == any(
            risk.startswith("weights int4") for risk in candidate.risks
        )


def test_speculation_is_looked_at_only_with_a_stated_acceptance():
    assert all(c.deployment.speculation is None for c in looked("llama-3.1-8b", "h100-sxm").fitting)
    stated = api.Speculation(method="ngram", tokens=3, acceptance=0.5)
    found = looked("llama-3.1-8b", "h100-sxm", api.Deployment(tp=1, speculation=stated)).fitting
    assert {c.deployment.speculation for c in found} == {None, stated}


def test_prefixes_are_cached_where_classes_share_any():
    def caching(prefix_tokens, engine, **more):
        kind = api.RequestClass(prompt=600, prefix_tokens=prefix_tokens)
        found = looked(
            "llama-3.1-8b", "h100-sxm", api.Deployment(tp=1, engine=engine),
            asked=api.Traffic(rate=1.0, classes=(kind,)), **more,
        )  # fmt: skip
        return {c.serving.prefix_caching for c in found.fitting}

    assert caching(0, "vllm") == {False}
    assert caching(100, "vllm") == {True}  # on by default
    assert caching(100, "vllm-2024") == {False, True}  # off by default
    assert caching(100, "vllm", serving=api.Serving(prefix_caching=False)) == {False}


def test_layouts_span_at_most_the_link_domain_within_a_server():
    model = api.load_model("llama-3.1-8b")
    pair = api.load_hardware("h100-nvl")  # bridges of two
    assert [x["tp"] for x in layouts(model, pair, "vllm", frozenset())] == [1, 2]
    rack = api.load_hardware("gb200")  # 72 in one domain
    assert [x["tp"] for x in layouts(model, rack, "vllm", frozenset())] == [1, 2, 4, 8]
    assert {"tp": 32} in list(wide_layouts(model, rack, "vllm", frozenset()))
    assert list(wide_layouts(model, rack, "vllm", frozenset({"tp"}))) == []
