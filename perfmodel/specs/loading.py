"""Models by name, file, folder or hub id."""

from __future__ import annotations

import difflib
import functools
import logging
import os
from importlib import resources
from pathlib import Path
from typing import Any

from perfmodel.errors import InputError, UnknownNameError
from perfmodel.specs.architectures import build_model
from perfmodel.specs.json_file import label, parse_json, read_json
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


def load_model(name_or_path: str | os.PathLike[str]) -> Model:
    """A model of the catalogue, of a file or folder, or of the hub.

    A bare name (no slash, no ``.json``) means the catalogue's model before a file that is called
    so; ``./name`` and path objects mean the file.

    Raises:
        InputError: a file that can't be read or a config that is wrong.
        UnknownNameError: no such model.
    """
    given = _as_text(name_or_path)
    path = Path(given)
    is_path = not isinstance(name_or_path, str) or "/" in given or given.endswith(".json")
    known = _catalogue_name(given.strip().lower())
    if not is_path and known in model_names():
        return load_catalogue(known)
    if _exists(path):
        return _from_path(path)
    if _is_link(path):
        raise InputError(f"{label(path)}: a symbolic link that leads nowhere or to itself")
    if not isinstance(name_or_path, os.PathLike) and _is_hub_id(given):
        return _from_hub(given)
    raise UnknownNameError(_unknown(given, is_path=is_path))


def load_catalogue(name: str) -> Model:
    """The catalogue's model of that name, or of what people say for it; never a file.

    Raises:
        UnknownNameError: no such model.
    """
    known = _catalogue_name(name.strip().lower())
    if known not in model_names():
        raise UnknownNameError(_unknown(name, is_path=False))
    text = (_catalog() / f"{known}.json").read_text(encoding="utf-8")
    return build_model(parse_json(text, f"{known}.json"), known, f"{known}.json")


def _as_text(name_or_path: object) -> str:
    """What was given as text.

    Raises:
        InputError: it is empty, or neither text nor a path.
    """
    given = os.fspath(name_or_path) if isinstance(name_or_path, os.PathLike) else name_or_path
    if not isinstance(given, str):
        kind = type(given).__name__
        raise InputError(f"model: a name or a path is needed, not {kind}")
    if not given.strip():
        raise InputError("model: the name is empty; `perfmodel models list` shows the catalogue")
    return given


def _printable(text: str) -> bool:
    return text.isprintable() and len(text) < 4096


def _is_hub_id(given: str) -> bool:
    owner, _, name = given.partition("/")
    plain = _printable(given) and "/" not in name and not name.endswith(".json")
    return bool(plain and name and owner.strip(".~ "))


def _unknown(given: str, *, is_path: bool) -> str:
    """One line for what is no model, with the closest names."""
    said = given.strip().lower().rpartition("/")[2].removesuffix(".json")
    known = _catalogue_name(said)
    close = difflib.get_close_matches(said, [*model_names(), *ALIASES], 3)
    if known in model_names():
        hint = f"; the catalogue has {known}"
    else:
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
    if is_path:
        return f"{given[:80]!r}: no such file or folder{hint}"
    return f"unknown model {given[:80]!r}: no catalogue name, file, folder or hub id{hint}"


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


def _is_link(path: Path) -> bool:
    try:
        return path.is_symlink()
    except (OSError, ValueError):
        return False


def _from_path(path: Path) -> Model:
    name = path.name.removesuffix(".json")
    if path.is_dir():
        name = path.resolve().name
        path = path / "config.json"
        if not _exists(path):
            raise InputError(f"{label(path.parent)}: the folder has no config.json")
    data = read_json(path)
    _refuse_other_files(data, label(path))
    return build_model(data, name, label(path))


OTHER_FILES = {
    "base_model_name_or_path": ", but an adapter's: give that of its base model",
    "peft_type": ", but an adapter's: give that of its base model",
    "weight_map": ", but an index of weights: give the config.json beside it",
    "tokenizer_class": ", but a tokenizer's: give the config.json beside it",
    "n_layers": ", but the original release's parameters: give that of the Hugging Face copy",
    "eos_token_id": ", but a generation config: give the config.json beside it",
}
"""Keys that tell the files which lie beside a ``config.json`` and are taken for it."""
WIDTHS = {"hidden_size", "n_embd", "d_model", "n_embed", "text_config"}
"""Keys of which every model's ``config.json`` has one."""


def _refuse_other_files(data: dict[str, Any], where: str) -> None:
    """Say of a file that describes no model what it is, where that can be told.

    Raises:
        InputError: the file isn't a model's ``config.json``.
    """
    if data.keys() & {"model_type", *WIDTHS}:
        return  # a model's, complete or not
    what = next((said for key, said in OTHER_FILES.items() if key in data), "")
    raise InputError(f"{where}: this isn't a model's config.json{what} (it has no model_type)")


def _from_hub(repository: str) -> Model:
    known = _catalogue_name(repository.rpartition("/")[2].lower())
    hint = f"; the catalogue has {known}" if known in model_names() else ""
    try:
        from huggingface_hub import hf_hub_download  # noqa: PLC0415  (optional)
    except ImportError:
        raise InputError(
            f"{repository}: no such folder, and not in the catalogue{hint}; "
            f"to fetch it from the Hugging Face hub: {INSTALL}"
        ) from None
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries are no answer
    try:
        path = hf_hub_download(repository, "config.json")
    except Exception as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(
            f"{repository}: config.json can't be fetched from the hub{hint} "
            f"({type(error).__name__}: {reason})"
        ) from None
    return build_model(read_json(Path(path)), repository, f"{repository}/config.json")
