"""A profile fact by fact."""

import pytest

from perfmodel.specs.hardware import hardware_names, load_hardware
from perfmodel.specs.hardware_facts import hardware_facts


def test_a_fact_has_its_words_unit_and_origin():
    facts = {fact.label: fact for fact in hardware_facts(load_hardware("h100-sxm"))}
    assert facts["memory bandwidth"].shown == "3,350 GB/s"
    assert facts["peaks bf16"].shown == "989.4 TFLOP/s"
    assert facts["year"].shown == "2022"  # a year isn't a quantity
    assert facts["year"].recalled
    assert facts["network per gpu"].recalled
    assert not facts["memory bandwidth"].recalled


@pytest.mark.parametrize("name", hardware_names())
def test_every_figure_of_a_profile_is_a_fact_once(name):
    profile = load_hardware(name).model_dump(mode="json", exclude_none=True)
    groups = {key: value for key, value in profile.items() if isinstance(value, dict)}
    figures = sum(len(value.keys() - {"source", "recalled"}) for value in groups.values())
    about = {"vendor", "architecture", "compute_capability", "year"} & profile.keys()
    facts = list(hardware_facts(load_hardware(name)))
    assert len(facts) == figures + len(about)
    assert len({fact.label for fact in facts}) == len(facts)
    recalled = sum(len(value.get("recalled", ())) for value in groups.values())
    # Of what stands outside the groups, the name and the title aren't facts.
    outside = {"vendor", "architecture", "compute_capability", "year"}
    recalled += len(outside & set(profile.get("recalled", ())))
    assert sum(fact.recalled for fact in facts) == recalled
