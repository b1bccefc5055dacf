"""Models by name, file, folder or hub id."""

from __future__ import annotations

import difflib
import functools
import json
from importlib import resources
from pathlib import Path
from typing import Any

from perfmodel.errors import InputError, UnknownNameError
from perfmodel.specs.architectures import build_model
from perfmodel.specs.model import Model

ALIASES = {
    "bloom": "bloom-176b",
    "chatglm3": "chatglm3-6b",
    "command-r": "command-r-35b",
    "command-r-plus": "command-r-plus-104b",
    "deepseek-v3-0324": "deepseek-v3",
    "gpt2": "gpt-2",
    "gpt2-medium": "gpt-2-medium",
    "gpt2-xl": "gpt-2-xl",
    "gpt-j": "gpt-j-6b",
    "jamba": "jamba-v0.1",
    "kimi-k2": "kimi-k2-instruct",
    "llama-7b": "llama-1-7b",
    "llama-13b": "llama-1-13b",
    "llama-4-scout": "llama-4-scout-17b-16e",
    "mamba-codestral": "mamba-codestral-7b",
    "mistral-7b": "mistral-7b-v0.3",
    "mistral-large": "mistral-large-2407",
    "mistral-nemo": "mistral-nemo-12b-2407",
    "mistral-nemo-12b": "mistral-nemo-12b-2407",
    "mistral-small": "mistral-small-24b-2501",
    "mistral-small-24b": "mistral-small-24b-2501",
    "mixtral-8x7b": "mixtral-8x7b-v0.1",
    "mixtral-8x22b": "mixtral-8x22b-v0.1",
    "nemotron-3-nano": "nemotron-3-nano-30b-a3b",
    "phi-3-mini": "phi-3-mini-4k",
    "qwen3-next": "qwen3-next-80b-a3b",
}
TUNED = ("-instruct", "-chat", "-it", "-base", "-hf")
MAX_BYTES = 16 * 2**20
INSTALL = "pip install 'perfmodel[hub]'"


def _catalog() -> Any:
    return resources.files("perfmodel") / "catalog"


@functools.cache
def model_names() -> list[str]:
    """The catalogue's names, sorted."""
    return sorted(
        item.name.removesuffix(".json")
        for item in _catalog().iterdir()
        if item.name.endswith(".json")
    )


def load_model(name_or_path: str) -> Model:
    """The model called ``name_or_path``: a path that exists, a catalogue name, or a hub id.

    Raises:
        InputError: a file that can't be read or a config that is wrong.
        UnknownNameError: no such model.
    """
    path = Path(name_or_path)
    if _exists(path):
        return _from_path(path)
    name = name_or_path.strip().lower()
    name = _catalogue_name(name)
    if name in model_names():
        text = (_catalog() / f"{name}.json").read_text(encoding="utf-8")
        return build_model(parse_json(text, f"{name}.json"), name, f"{name}.json")
    if name_or_path.count("/") == 1 and all(name_or_path.split("/")):
        return _from_hub(name_or_path)
    close = difflib.get_close_matches(name, [*model_names(), *ALIASES], 3)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    raise UnknownNameError(
        f"unknown model {name_or_path[:80]!r}: no file, folder, catalogue name or hub id{hint}"
    )


def _catalogue_name(said: str) -> str:
    """The catalogue's name for what people say; tuned versions have their base's shape."""
    for name in (said, *(said.removesuffix(suffix) for suffix in TUNED)):
        found = ALIASES.get(name, name)
        if found in model_names():
            return found
    return said


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _from_path(path: Path) -> Model:
    name = path.stem
    if path.is_dir():
        name = path.resolve().name
        path = path / "config.json"
        if not _exists(path):
            raise InputError(f"{_label(path.parent)}: the folder has no config.json")
    return build_model(read_json(path), name, _label(path))


def _label(path: Path) -> str:
    """A path on one line."""
    return str(path) if str(path).isprintable() else repr(str(path))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        InputError: one line, if it can't be read or isn't one JSON object.
    """
    where = _label(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{where}: larger than {MAX_BYTES} bytes; this is no config.json")
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise InputError(f"{where}: can't be read: {error.strerror}") from None
    return parse_json(text, where)


def parse_json(text: str, where: str) -> dict[str, Any]:
    """The object that ``text`` holds; ``where`` names it in errors.

    Raises:
        InputError: broken JSON, a duplicate key, NaN, or something that isn't an object.
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) < len(items):
            seen: set[str] = set()
            twice = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise InputError(f"{where}: {twice!r:.60}: the key is there twice")
        return made

    def constant(name: str) -> Any:
        raise InputError(f"{where}: {name} is no JSON number")

    try:
        data = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{where}: line {error.lineno}, column {error.colno}: broken JSON: {error.msg}"
        ) from None
    except (RecursionError, ValueError) as error:
        raise InputError(f"{where}: can't be read as JSON: {type(error).__name__}") from None
    if not isinstance(data, dict):
        raise InputError(f"{where}: must hold one JSON object, not {type(data).__name__}")
    return data


def _from_hub(repository: str) -> Model:
    try:
        from huggingface_hub import hf_hub_download  # noqa: PLC0415  (optional)
    except ImportError:
        raise InputError(
            f"{repository}: not in the catalogue; to fetch it from the Hugging Face hub: {INSTALL}"
        ) from None
    try:
        path = hf_hub_download(repository, "config.json")
    except Exception as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(
            f"{repository}: config.json can't be fetched from the hub: "
            f"{type(error).__name__}: {reason}"
        ) from None
    return build_model(read_json(Path(path)), repository, f"{repository}/config.json")
