"""What a sweep's axes take, and what they refuse."""

import numpy as np
import pytest

from perfmodel.errors import InputError
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.speculation import Speculation
from perfmodel.specs.sweep import AXES, load_sweep, parse_sweep

LEAST = {"model": "llama-3.1-8b", "hardware": "h100-sxm"}


def values(**axes):
    spec = parse_sweep(LEAST | axes)
    return {name: spec.values(name) for name in axes}


def test_text_numbers_lists_and_arrays_say_the_same():
    for batch in ("1,2,4", "1:4:x2", [1, 2, 4], ["1:2", 4], np.array([1, 2, 4]), (1, "2", 4)):
        assert values(batch=batch) == {"batch": (1, 2, 4)}, batch
    assert values(weights="bf16, fp8") == {"weights": ("bf16", "fp8")}
    assert values(comm_overlap="0:1:+0.5") == {"comm_overlap": (0.0, 0.5, 1.0)}
    assert values(sequence_parallel="false,true") == {"sequence_parallel": (False, True)}
    assert values(prefill_chunk="none,2k") == {"prefill_chunk": (None, 2048)}


def test_every_field_of_a_deployment_is_an_axis():
    assert set(Deployment.model_fields) < set(AXES)
    for name, field in Deployment.model_fields.items():
        default = field.get_default()
        assert values(**{name: [default]}) == {name: (default,)}


def test_other_names_of_axes():
    spec = parse_sweep(LEAST | {"kv-cache-dtype": "fp8", "tensor_parallel_size": "2"})
    assert spec.values("kv_cache") == ("fp8",)
    assert spec.values("tp") == (2,)


def test_speculation_is_a_record():
    record = {"method": "mtp", "tokens": 2, "acceptance": [0.9, 0.7]}
    (none, some) = values(speculation=[None, record])["speculation"]
    assert none is None
    assert some == Speculation(method="mtp", tokens=2, acceptance=(0.9, 0.7))


def test_a_record_reads_back():
    spec = parse_sweep(
        LEAST | {"context": "1k:4k:x2", "tp": [1, 2], "speculation": [{"method": "ngram",
        "tokens": 3, "acceptance": 0.5}], "where": "fits", "per": "model", "pareto": "tp, batch",
        "best_by": "tpot_ms", "top": 3}
    )  # fmt: skip
    assert parse_sweep(spec.record()) == spec


def test_a_file_and_what_replaces_it(tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text("model: [llama-3.1-8b]\nhardware: h100-sxm\nbatch: 1:8:x2\nprompt: 512\n")
    assert load_sweep(file).values("batch") == (1, 2, 4, 8)
    changed = load_sweep(file, {"batch": "3", "context": "1k"})
    assert changed.values("batch") == (3,)
    assert changed.values("context") == (1024,)
    assert changed.values("prompt") == ()


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"tpp": 2}, "did you mean tp"),
        ({"tp": 0}, "tp: "),
        ({"tp": True}, "tp: "),
        ({"batch": []}, "batch: no value"),
        ({"batch": [1, 0]}, "got 0"),
        ({"batch": 2**25}, "batch: "),
        ({"prompt": 1, "context": 2}, "one of prompt and context"),
        ({"weights": "fp88"}, "weights: "),
        ({"engine": "vllm,"}, "engine: "),
        ({"sequence_parallel": "yes"}, "true or false"),
        ({"speculation": "mtp"}, "speculation: "),
        ({"speculation": {"method": "mtp", "tokens": -1}}, "speculation.tokens"),
        ({"tp": 1, "tensor_parallel_size": 2}, "second time"),
        ({"top": 0}, "top: "),
        ({"where": 3}, "where: "),
        ({"pareto": 3}, "pareto: "),
        ({"model": 3}, "model: "),
    ],
)
def test_faults_are_one_line(axes, said):
    with pytest.raises(InputError, match=said) as caught:
        parse_sweep(LEAST | axes)
    assert "\n" not in str(caught.value)


def test_model_and_hardware_are_needed():
    for missing in LEAST:
        with pytest.raises(InputError, match=missing):
            parse_sweep({name: value for name, value in LEAST.items() if name != missing})
