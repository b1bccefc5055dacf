"""Models by name, file, folder and hub id, and what is said where that fails."""

import builtins
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfmodel.errors import InputError, UnknownNameError
from perfmodel.specs.architectures import known_types
from perfmodel.specs.loading import ALIASES, load_catalogue, load_model, model_names

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "intermediate_size": 96,
}


@pytest.fixture
def write(tmp_path):
    """A function that writes a file of text, bytes or JSON, and gives its path."""

    def written(content, name="config.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            text = content if isinstance(content, str) else json.dumps(content)
            path.write_text(text, encoding="utf-8")
        return str(path)

    return written


def complaint(name):
    """The one line that loading ``name`` gives."""
    with pytest.raises(InputError) as caught:
        load_model(name)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_every_catalogue_name_and_alias_loads():
    assert len(model_names()) >= 95
    assert model_names() == sorted(model_names())
    for name in [*model_names(), *ALIASES]:
        assert load_model(name).name in model_names()


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Llama-3.1-8B", "llama-3.1-8b"),
        ("mixtral-8x7b", "mixtral-8x7b-v0.1"),
        ("MIXTRAL-8x22B", "mixtral-8x22b-v0.1"),
        ("kimi-k2", "kimi-k2-instruct"),
        ("mistral-7b", "mistral-7b-v0.3"),
        ("bloom", "bloom-176b"),
        ("gpt-oss-120b", "gpt-oss-120b"),
        ("Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("gemma-3-27b-it", "gemma-3-27b"),
    ],
)
def test_names_are_said_as_people_do(said, name):
    assert load_model(said).name == name


def test_a_file_whatever_its_name(write):
    model = load_model(write(LLAMA, "my.model.v2.cfg"))
    assert model.name == "my.model.v2.cfg"
    assert model.architecture == "llama"


def test_a_byte_order_mark_is_no_fault(write):
    assert load_model(write(b"\xef\xbb\xbf" + json.dumps(LLAMA).encode())).hidden == 64


def test_a_folder(write, tmp_path):
    write(LLAMA, "tiny-llama.v1/config.json")
    assert load_model(str(tmp_path / "tiny-llama.v1")).name == "tiny-llama.v1"


def test_the_name_of_a_file_loses_its_json_only(write):
    assert load_model(write(LLAMA, "llama-3.1-8b.v2.json")).name == "llama-3.1-8b.v2"
    assert load_model(Path(write(LLAMA, "llama-3.1-8b"))).name == "llama-3.1-8b"


def test_a_bare_name_means_the_catalogue_before_a_file(write, tmp_path, monkeypatch):
    write(LLAMA, "qwen3-8b")
    (tmp_path / "qwen3-4b").mkdir()
    write(LLAMA, "my-own")
    monkeypatch.chdir(tmp_path)
    assert load_model("qwen3-8b").hidden == 4096
    assert load_model("qwen3-4b").hidden == 2560
    assert load_catalogue("Qwen3-8B-Instruct").hidden == 4096
    assert load_model("./qwen3-8b").hidden == load_model(Path("qwen3-8b")).hidden == 64
    assert load_model("my-own").hidden == 64


def test_the_catalogue_alone_knows_no_files(write, tmp_path, monkeypatch):
    write(LLAMA, "my-own")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownNameError, match="my-own"):
        load_catalogue("my-own")


def test_an_empty_name_is_no_folder(write, tmp_path, monkeypatch):
    write(LLAMA)
    monkeypatch.chdir(tmp_path)
    for name in ("", "  "):
        assert complaint(name).startswith("model: the name is empty")


def test_what_is_neither_text_nor_path():
    assert complaint(7) == "model: a name or a path is needed, not int"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"dim": 4096, "n_layers": 32}, "the original release's parameters"),
        ({"peft_type": "LORA", "r": 8}, "an adapter's"),
        ({"bos_token_id": 1, "eos_token_id": 2, "do_sample": True}, "a generation config"),
        ({"name": "a"}, "it has no model_type"),
    ],
)
def test_files_beside_a_config_are_told_apart(write, content, said):
    line = complaint(write(content, "other.json"))
    assert "this isn't a model's config.json" in line
    assert said in line


def test_links_that_lead_nowhere(tmp_path):
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("dangling", "loop"):
        assert "a symbolic link that leads nowhere" in complaint(str(tmp_path / name))


def test_a_hub_id_that_the_catalogue_has(monkeypatch):
    def fail(*_):
        raise OSError("no route to host")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=fail))
    assert "; the catalogue has llama-3.1-8b" in complaint("meta-llama/Llama-3.1-8B-Instruct")


def test_a_folder_without_a_config(tmp_path):
    assert complaint(str(tmp_path)) == f"{tmp_path}: the folder has no config.json"


def test_unknown_names_get_the_closest():
    with pytest.raises(UnknownNameError, match=r"llama-3\.1-8b"):
        load_model("llama-3.1-8bb")
    assert "\n" not in complaint("no such\nmodel")


@pytest.mark.parametrize("name", ["", "a/b/c", "/nowhere/config.json", "x/", "\x00", "a" * 5000])
def test_what_is_no_hub_id_is_never_fetched(name, monkeypatch):
    fetch = SimpleNamespace(hf_hub_download=lambda *_: pytest.fail("fetched"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", fetch)
    complaint(name)


def test_a_hub_id(write, monkeypatch):
    path = write(LLAMA)
    fetch = SimpleNamespace(hf_hub_download=lambda repository, file: path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", fetch)
    assert load_model("org/tiny").name == "org/tiny"


def test_a_hub_id_that_cannot_be_fetched(monkeypatch):
    def fail(*_):
        raise OSError("no route\nto host")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=fail))
    assert "org/tiny: config.json can't be fetched from the hub" in complaint("org/tiny")


def test_a_hub_id_without_the_hub_package(monkeypatch):
    real = builtins.__import__

    def absent(name, *rest, **more):
        if name == "huggingface_hub":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "huggingface_hub", raising=False)
    monkeypatch.setattr(builtins, "__import__", absent)
    assert "pip install 'perfmodel[hub]'" in complaint("org/tiny")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"hidden_size": 1,\n  oops}', "line 2, column 3: broken JSON"),
        ("", "line 1, column 1: broken JSON"),
        ('{"a": 1, "b": 2, "a": 3}', "'a': the key is there twice"),
        ('{"rms_norm_eps": NaN}', "NaN is no JSON number"),
        ("[1, 2]", "must hold one JSON object, not list"),
        ('"llama"', "must hold one JSON object, not str"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "a number is too long (5,000 digits)"),
        (" " * (2**24 + 1), "larger than"),
    ],
    ids=["broken", "empty", "twice", "nan", "list", "text", "bytes", "deep", "digits", "large"],
)
def test_files_that_are_no_config(write, content, said):
    path = write(content)
    line = complaint(path)
    assert line.startswith(f"{path}: ")
    assert said in line


def test_a_file_that_cannot_be_read(write, monkeypatch):
    path = write(LLAMA)

    def denied(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", denied)
    assert complaint(path) == f"{path}: can't be read: Permission denied"


def test_an_unknown_architecture(write):
    path = write({**LLAMA, "model_type": "lama"})
    line = complaint(path)
    assert line.startswith(
        f"{path}: model_type: unknown architecture 'lama'; did you mean llama or "
    )
    for kind in known_types():
        assert kind in line


def test_no_architecture_is_not_guessed(write):
    config = {key: value for key, value in LLAMA.items() if key != "model_type"}
    assert "model_type: missing; known: " in complaint(write(config))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": None}, "hidden_size: missing (or n_embd, d_model, n_embed); it must be"),
        ({"hidden_size": "64"}, "hidden_size: must be a whole number, not '64'"),
        ({"hidden_size": 64.0}, "hidden_size: must be a whole number, not 64.0"),
        ({"hidden_size": True}, "hidden_size: must be a whole number, not True"),
        ({"hidden_size": [64]}, "hidden_size: must be a whole number, not [64]"),
        ({"hidden_size": -64}, "hidden_size: must be within 1 and 16777216, not -64"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers: must be within 1 and 4096"),
        ({"vocab_size": 0}, "vocab_size: must be within 1 and"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: must divide the 4 query heads, not 3"),
        ({"num_attention_heads": 5, "num_key_value_heads": 5}, "head_dim: missing, and 5 heads"),
        ({"attention_bias": "no"}, "attention_bias: must be true or false, not 'no'"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings: must be true or false, not 1"),
        (
            {"layer_types": ["full_attention"]},
            "layer_types: must have one item per layer (2), not 1",
        ),
        (
            {"layer_types": ["full_attention", "other"]},
            "layer_types.1: must be one of full_attention",
        ),
        (
            {"layer_types": ["full_attention", "sliding_attention"]},
            "sliding_window: missing, though layer_types has sliding_attention",
        ),
        ({"quantization_config": 8}, "quantization_config: must be an object, not 8"),
        (
            {"quantization_config": {"quant_method": "magic"}},
            "quantization_config.quant_method: must be one of fp8, ",
        ),
        (
            {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 9},
            "num_experts_per_tok: must be at most the 8 experts, not 9",
        ),
        ({"model_type": "gemma3"}, "text_config: missing; it must be an object"),
        (
            {"model_type": "gemma3", "text_config": {"hidden_size": "x"}},
            "text_config.hidden_size: must be a whole number, not 'x'",
        ),
        (
            {"model_type": "gemma3", "text_config": {}, "vision_config": {"patch_size": -1}},
            "vision_config.patch_size: must be within 1 and",
        ),
        (
            {"model_type": "llava", "text_config": {}, "vision_config": {"model_type": "dino"}},
            "vision_config.model_type: must be one of clip_vision_model",
        ),
    ],
)
def test_wrong_fields_are_named(write, change, said):
    path = write({**LLAMA, **change})
    line = complaint(path)
    assert line.startswith(f"{path}: {said}")
