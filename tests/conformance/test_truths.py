"""The truths themselves: that their arithmetic holds, and that independent counters agree."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from importlib import resources
from math import comb

import pytest

from conformance.arithmetic import evaluate
from conformance.kinds import KINDS, MODEL
from conformance.perfmodel_adapter import PerfmodelAdapter, by_config
from conformance.run import run
from conformance.truths_file import read_truths
from perfmodel.specs.loading import model_names
from tests.data import REASON, model_rows

TRUTHS = read_truths()


def of_kind(*kinds):
    return [truth for truth in TRUTHS if truth.question.kind in kinds]


def name_of(truth):
    return truth.id


def test_there_are_enough_of_every_kind():
    assert len(TRUTHS) >= 150
    assert len({t.question.model.name for t in TRUTHS if t.question.model}) >= 60
    assert Counter(t.question.kind for t in TRUTHS).keys() == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_the_derivation_gives_the_answer(kind):
    for truth in of_kind(kind):
        value = evaluate(truth.derivation)
        if truth.tolerance == 0:
            assert value == truth.answer, truth.id
        else:  # the answer is rounded to twelve digits, however wide the tolerance
            assert float(value) == pytest.approx(truth.answer, rel=1e-11), truth.id


def test_a_derivation_is_worked_out_and_not_the_answer_itself():
    bare = [t.id for t in TRUTHS if not re.search(r"[-+−·*×/÷^(]", t.derivation)]
    assert bare == []


def test_loose_tolerances_are_few_and_say_why():
    for truth in TRUTHS:
        if truth.tolerance > 1e-9:
            assert truth.question.kind in {"weight_bytes", "bits_per_weight"}
            assert truth.question["format"] in {"checkpoint", "nvfp4", "q4_0", "q8_0", "q4_k_m"}
            assert truth.tolerance <= 5e-4


def test_perfmodel_passes_all():
    outcomes = run(TRUTHS, PerfmodelAdapter().answer)
    assert [(o.truth.id, o.got, o.problem) for o in outcomes if o.verdict != "passed"] == []


def test_perfmodel_passes_all_from_the_configs_of_the_questions():
    outcomes = run(TRUTHS, PerfmodelAdapter(by_config).answer)
    assert [(o.truth.id, o.got, o.problem) for o in outcomes if o.verdict != "passed"] == []


@pytest.mark.oracle
@pytest.mark.slow
def test_transformers_agrees_where_it_can_count():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from conformance.examples.transformers_adapter import TransformersCounter

    logging.getLogger("transformers").setLevel(logging.ERROR)
    least = {"parameters": 80, "text_parameters": 7, "active_parameters": 20}
    least |= {"kv_bytes_per_token": 70, "linear_flops_per_token": 10, "lm_head_flops": 5}
    truths = sorted(of_kind(*least), key=lambda t: t.question.model.name)  # one model at a time
    counter = TransformersCounter()
    outcomes = run(truths, lambda q: getattr(counter, q.kind)(q))
    assert [(o.truth.id, o.got, o.problem) for o in outcomes if o.verdict == "failed"] == []
    passed = Counter(o.truth.question.kind for o in outcomes if o.verdict == "passed")
    assert all(passed[kind] >= count for kind, count in least.items())


def contains(whole, part):
    """Whether every fact of ``part`` stands in ``whole``."""
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    return whole == part


CATALOGUED = sorted({t.question.model.name for t in TRUTHS if t.question.model} & {*model_names()})


@pytest.mark.parametrize("name", CATALOGUED)
def test_facts_are_those_of_the_catalogue(name):
    config = next(m.config for t in TRUTHS if (m := t.question.model) and m.name == name)
    path = resources.files("perfmodel") / "catalog" / f"{name}.json"
    assert contains(json.loads(path.read_text(encoding="utf-8")), config)


ROWS = {row["model"].lower(): row for row in model_rows()}


@pytest.mark.skipif(not ROWS, reason=REASON)
@pytest.mark.parametrize("truth", of_kind("parameters"), ids=name_of)
def test_published_counts_are_met_or_their_difference_is_told(truth):
    row = ROWS.get(truth.question.model.name)
    if row is None or not row["published_exact"]:
        pytest.skip("no exact count was published")
    published = int(float(row["published_exact"]))
    assert f"{published:,}" in truth.source
    if published != truth.answer:
        assert row["delta_explained"] == "yes" or "than anyone explains" in truth.source


def brute_pairs(new, cached, window, chunk):
    """Pairs counted query by query, by position."""
    total = 0
    for at in range(cached, cached + new):
        first = 0 if window is None else max(0, at - window + 1)
        first = first if chunk is None else at // chunk * chunk
        total += at - first + 1
    return total


@pytest.mark.parametrize("truth", of_kind("causal_pairs"), ids=name_of)
def test_pairs_are_those_of_a_mask_drawn_out(truth):
    q = truth.question
    assert truth.answer == brute_pairs(q["new"], q["cached"], q["window"], q["chunk"])


@pytest.mark.parametrize("truth", of_kind("expected_experts"), ids=name_of)
def test_experts_are_those_of_combinations(truth):
    """An expert is among a token's k of E in C(E−1, k−1) of C(E, k) choices."""
    q = truth.question
    experts, top_k = q["experts"], q["top_k"]
    chosen = comb(experts - 1, top_k - 1) / comb(experts, top_k)
    assert truth.answer == pytest.approx(experts * (1 - (1 - chosen) ** q["tokens"]), rel=1e-9)


@pytest.mark.parametrize("truth", of_kind("tokens_per_round"), ids=name_of)
def test_rounds_are_those_of_each_outcome(truth):
    """Σ over the number accepted: i tokens and a miss give i + 1, all n give n + 1."""
    a, n = truth.question["acceptance"], truth.question["draft_tokens"]
    mean = sum((i + 1) * a**i * (1 - a) for i in range(n)) + (n + 1) * a**n
    assert truth.answer == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_of_a_kind_are_known(kind):
    from conformance.kinds import INPUTS

    assert {*KINDS[kind].needs, *KINDS[kind].takes} <= INPUTS.keys()
    assert KINDS[kind].unit
    assert MODEL not in KINDS[kind].takes
