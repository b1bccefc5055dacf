"""A wrong file of truths is refused with the truth's id and the field."""

import pytest
import yaml

from conformance.errors import ConformanceError
from conformance.truths_file import read_truths

MODELS = {"m": {"hub": "a/m", "config": {"model_type": "llama"}}}
GOOD = {
    "id": "m/kv",
    "question": {"kind": "kv_bytes_per_token", "model": "m"},
    "answer": 8,
    "unit": "B",
    "tolerance": 0,
    "derivation": "2 · 4",
    "source": "config.json",
}


def written(folder, truths, models=MODELS):
    path = folder / "truths.yaml"
    path.write_text(yaml.safe_dump({"models": models, "truths": truths}), encoding="utf-8")
    return path


def refusal(path):
    with pytest.raises(ConformanceError) as caught:
        read_truths(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_good_file_is_read(tmp_path):
    (truth,) = read_truths(written(tmp_path, [GOOD]))
    assert truth.answer == 8
    assert truth.question.model.hub == "a/m"
    assert truth.question["tp"] == 1  # filled in
    assert truth.question["cache"] == "bf16"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("answer", "4.8e12"),  # PyYAML reads it as text
        ("answer", True),
        ("answer", float("nan")),
        ("answer", None),
        ("unit", "FLOP"),
        ("unit", ""),
        ("tolerance", "none"),
        ("tolerance", -0.1),
        ("tolerance", 1),
        ("derivation", "2 · 5"),
        ("derivation", "2 · heads"),
        ("derivation", 8),
        ("source", "  "),
        ("question", "kv_bytes_per_token"),
    ],
)
def test_a_wrong_field_is_named_with_the_truth(field, value, tmp_path):
    said = refusal(written(tmp_path, [{**GOOD, field: value}]))
    assert "m/kv" in said
    assert f": {field}" in said


@pytest.mark.parametrize(
    ("field", "question"),
    [
        ("kind", {"model": "m"}),
        ("kind", {"kind": "beauty", "model": "m"}),
        ("model", {"kind": "kv_bytes_per_token"}),
        ("model", {"kind": "kv_bytes_per_token", "model": "unknown"}),
        ("tp", {"kind": "kv_bytes_per_token", "model": "m", "tp": 0}),
        ("tp", {"kind": "kv_bytes_per_token", "model": "m", "tp": 2.0}),
        ("cache", {"kind": "kv_bytes_per_token", "model": "m", "cache": 8}),
        ("batch", {"kind": "kv_bytes_per_token", "model": "m", "batch": 8}),
    ],
)
def test_a_wrong_input_is_named_with_the_truth(field, question, tmp_path):
    said = refusal(written(tmp_path, [{**GOOD, "question": question}]))
    assert "m/kv" in said
    assert f"question.{field}" in said


@pytest.mark.parametrize("field", GOOD)
def test_a_missing_field_is_named(field, tmp_path):
    said = refusal(written(tmp_path, [{k: v for k, v in GOOD.items() if k != field}]))
    assert f"{field}: " in said


def test_an_unknown_field_is_named(tmp_path):
    said = refusal(written(tmp_path, [{**GOOD, "tolerence": 0}]))
    assert "m/kv: tolerence" in said


def test_an_id_stands_once(tmp_path):
    assert "m/kv: id" in refusal(written(tmp_path, [GOOD, GOOD]))


@pytest.mark.parametrize(
    "model", [{"hub": "a/m"}, {"hub": 3, "config": {"model_type": "x"}}, {"hub": "a", "config": {}}]
)
def test_a_wrong_model_is_named(model, tmp_path):
    assert "models: m" in refusal(written(tmp_path, [GOOD], {"m": model}))


@pytest.mark.parametrize(
    "text", ["", "[]", "truths: []", "truths: {}", "truths: [1]", "a: b", "models: 3\ntruths: [1]",
             "truths: [", "a: 1\na: 2", "? [x]\n: 1", "\x00", "!!python/name:os.system"]
)  # fmt: skip
def test_what_is_no_file_of_truths_is_refused(text, tmp_path):
    path = tmp_path / "truths.yaml"
    path.write_text(text, encoding="utf-8")
    assert "truths.yaml" in refusal(path)


def test_what_cant_be_read_is_refused(tmp_path):
    assert "absent.yaml" in refusal(tmp_path / "absent.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"truths: \xff")
    assert "latin.yaml" in refusal(tmp_path / "latin.yaml")
    assert str(tmp_path) in refusal(tmp_path)
