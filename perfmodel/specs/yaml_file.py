"""Strict YAML files: a plain mapping comes out, or an error of one line that names the place."""

from __future__ import annotations

import errno
from collections.abc import Hashable
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from perfmodel.errors import InputError
from perfmodel.units import MIB

MAX_BYTES = MIB
"""The largest file that is read; a profile has a few kilobytes."""
MAX_DEPTH = 32
"""The deepest nesting that is read; a profile has three levels."""
MAX_DIGITS = 100
"""The longest whole number that is read; Python refuses to print one of thousands of digits."""
PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float", "null")}


class Refused(yaml.MarkedYAMLError):
    """Valid YAML that a file of facts has no use for."""


class StrictLoader(yaml.SafeLoader):
    """YAML as a data file uses it: no duplicate keys, no aliases, no tags, dates as text."""

    # Without the resolver of timestamps, 2026-05-18 stays the text that it looks like.
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in resolvers if tag in PLAIN_TAGS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose one node, refusing what a file of facts has no use for."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            # They can make a small file enormous or endless.
            raise refused("anchors and aliases aren't supported: write the value out", event)
        if event.tag is not None:
            raise refused(f"tags such as {event.tag} aren't supported: leave it out", event)
        if self.depth >= MAX_DEPTH:
            raise refused(f"nested more than {MAX_DEPTH} deep", event)
        self.depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Construct a mapping whose keys are text, each written once."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise refused(f"the key {key!r:.40} isn't text: put it in quotes", key_node)
            if key in seen:
                raise refused(f"the key {key!r:.40} is written twice: keep one", key_node)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Construct a whole number that a person may have meant."""
        if len(node.value) > MAX_DIGITS:
            raise refused(f"a number of {len(node.value)} digits", node)
        if ":" in node.value:
            raise refused(f"{node.value} is read as minutes and seconds: put it in quotes", node)
        return int(super().construct_yaml_int(node))


# PyYAML's table of constructors holds functions, so overriding the method isn't enough.
StrictLoader.add_constructor("tag:yaml.org,2002:int", StrictLoader.construct_yaml_int)


def refused(problem: str, place: Any) -> Refused:
    """The error for an event or a node, which knows its line."""
    return Refused(problem=problem, problem_mark=place.start_mark)


def read_yaml(path: str | Path | Traversable) -> dict[str, Any]:
    """The mapping that a YAML file holds.

    Raises:
        InputError: the file is missing, too large, not UTF-8, not YAML, empty, or no mapping;
            one line with the file, the line where it is known, and what would mend it.
    """
    file = Path(path) if isinstance(path, str) else path
    return parse_yaml(read_text(file), str(file))


def read_text(file: Path | Traversable) -> str:
    """The text of a file of at most ``MAX_BYTES`` bytes in UTF-8.

    Raises:
        InputError: one line that names the file.
    """
    shown = one_line(str(file))
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        dangling = isinstance(file, Path) and file.is_symlink()
        what = "a symbolic link that leads nowhere" if dangling else "no such file; check the path"
        raise InputError(f"{shown}: {what}") from None
    except IsADirectoryError:
        raise InputError(f"{shown}: is a folder; name the YAML file in it") from None
    except OSError as error:
        loop = error.errno == errno.ELOOP
        what = "a symbolic link that leads back to itself" if loop else str(error.strerror)
        raise InputError(f"{shown}: can't be read: {what}") from None
    except ValueError as error:  # a null byte in the path
        raise InputError(f"{shown}: can't be read: {one_line(str(error))}") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"{shown}: larger than {MAX_BYTES:,} bytes; this is no profile")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{shown}, line {line}: not UTF-8 text; save it as UTF-8") from None


def parse_yaml(text: str, where: str) -> dict[str, Any]:
    """The mapping that YAML text holds; ``where`` names it in errors.

    Raises:
        InputError: one line, as of `read_yaml`.
    """
    shown = one_line(where)
    try:
        data = yaml.load(text, Loader=StrictLoader)  # noqa: S506 (a SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise InputError(f"{shown}{at_line(error)}: {one_line(fault(error))}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{shown}: not valid YAML: {one_line(str(error))}") from None
    except RecursionError:
        raise InputError(f"{shown}: nested too deep to be read") from None
    except ValueError as error:  # 0x_
        raise InputError(f"{shown}: a number can't be read: {one_line(str(error))}") from None
    if data is None:
        raise InputError(f"{shown}: is empty; write `key: value` lines")
    if not isinstance(data, dict):
        kind = "list" if isinstance(data, list) else "single value"
        raise InputError(f"{shown}: the top level is a {kind}; write `key: value` lines")
    return data


def fault(error: yaml.MarkedYAMLError) -> str:
    """What is wrong, in one phrase; what PyYAML found itself is introduced as such."""
    if isinstance(error, Refused):
        return str(error.problem)
    parts = ", ".join(part for part in (error.context, error.problem) if part)
    return f"not valid YAML: {parts}; check indentation, quotes and colons"


def at_line(error: yaml.MarkedYAMLError) -> str:
    """``, line N`` where the parser knows it, else nothing."""
    mark = error.problem_mark or error.context_mark
    return "" if mark is None else f", line {mark.line + 1}"


def one_line(text: str) -> str:
    """``text`` with every run of white space and unprintable characters as one blank."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.split())
