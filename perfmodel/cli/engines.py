"""`perfmodel engines list`, `show` and `copy`: presets of serving engines, as YAML to change."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from perfmodel.cli.lazy import HELP
from perfmodel.cli.output import console, print_json, table
from perfmodel.cli.text import exact, whole
from perfmodel.errors import InputError, UnknownNameError
from perfmodel.specs.engine import Engine, engine_names, engine_path, load_engine
from perfmodel.whole_file import check_free, write_text

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings=HELP,
    help="Serving engines that perfmodel knows: defaults, host time, memory rule.",
)
Json = Annotated[bool, typer.Option("--json", metavar="", help="One JSON object.")]
Name = Annotated[str, typer.Argument(help="Name of a preset, or a YAML file.")]
NAME_LINE = re.compile(r"^name:.*$", re.MULTILINE)


def engine_record(engine: Engine) -> dict[str, Any]:
    """A preset as plain data: the file's fields, with what it leaves to defaults."""
    return engine.model_dump(mode="json", by_alias=True, exclude_none=True)


def _share(engine: Engine) -> str:
    share = engine.gpu_memory_utilization
    return "by device" if share is None else f"{share:g}"


def _graphs(engine: Engine) -> str:
    graph = engine.graph
    if not graph.decode:
        return "none"
    if any(tier.graph_batch for tier in engine.tiers):
        return "by device"
    return "decode" if graph.decode_batch is None else f"decode to {graph.decode_batch}"


@app.command("list")
def list_engines(as_json: Json = False) -> None:
    """List the presets with what sets them apart."""
    engines = [load_engine(name) for name in engine_names()]
    if as_json:
        print_json({"engines": [engine_record(engine) for engine in engines]})
        return
    made = table(
        None,
        [("Engine", "left"), ("Scheduler", "left"), ("Block", "right"), ("Memory share", "left"),
         ("Graphs", "left")],
    )  # fmt: skip
    for engine in engines:
        policy = "–" if engine.scheduler is None else engine.scheduler.policy
        memory = f"{_share(engine)} ({engine.memory_rule})"
        made.add_row(engine.name, policy, str(engine.block_size), memory, _graphs(engine))
    console().print(made)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(
            f"{key} {_value(item)}" for key, item in value.items() if item != [] and key != "source"
        )
    if isinstance(value, list | tuple):
        return "; ".join(_value(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return whole(value)
    return exact(value) if isinstance(value, float) else str(value)


def _rows(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in record.items():
        if name in {"schema", "name"} or name.endswith("source"):
            continue
        if isinstance(value, dict):
            for key, item in value.items():
                if key != "source":
                    yield f"{name}.{key}", _value(item)
        elif name == "tiers":
            yield from ((f"tier {number}", _value(t)) for number, t in enumerate(value, 1))
        elif value != []:
            yield name, _value(value)


def _sources(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("source", "memory_source"):
        if name in record:
            yield name, record[name]
    yield from _nested(record, "")


def _nested(record: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """Sources of the groups in a record, each by its path: a group may hold others."""
    for name, value in record.items():
        parts = value if isinstance(value, list) else [value]
        for number, part in enumerate(parts, 1):
            if not isinstance(part, dict):
                continue
            path = f"{prefix}{name}" if part is value else f"{prefix}{name} {number}"
            if part.get("source"):
                yield path, part["source"]
            yield from _nested(part, f"{path}.")


def _show(engine: Engine) -> None:
    record = engine_record(engine)
    made = table(engine.name, [("", "left"), ("", "left")])
    made.show_header = False
    for row in _rows(record):
        made.add_row(*row)
    out = console()
    out.print(made)
    out.print("\nSources:")
    for name, source in _sources(record):
        text = f"{name}: {' '.join(source.split())}"
        out.print(textwrap.fill(text, out.width, initial_indent="  ", subsequent_indent="    "))


@app.command("show")
def show(
    engine: Name,
    as_json: Json = False,
    as_yaml: Annotated[
        bool, typer.Option("--yaml", metavar="", help="The file itself, to copy and change.")
    ] = False,
) -> None:
    """Show one preset with the source of each group."""
    if as_json and as_yaml:
        raise InputError("--json and --yaml: one of them at a time")
    loaded = load_engine(engine)
    if as_json:
        print_json(engine_record(loaded))
    elif as_yaml:
        sys.stdout.write(_text(engine))
    else:
        _show(loaded)


def _text(engine: str) -> str:
    path = engine_path(engine) if engine in engine_names() else Path(engine)
    return path.read_text(encoding="utf-8")


@app.command("copy")
def copy(
    engine: Annotated[str, typer.Argument(help="Name of a preset.")],
    file: Annotated[Path, typer.Argument(help="The YAML file to write.")],
    force: Annotated[
        bool, typer.Option("--force", metavar="", help="Overwrite a file that is there.")
    ] = False,
) -> None:
    """Write a preset as a file of one's own: change it and give it to --engine."""
    try:
        text = _text(str(engine_path(engine).stem))
    except UnknownNameError as error:
        raise UnknownNameError(f"engines copy: {error}") from None
    check_free(file, (".yaml", ".yml"), force=force, reads=[engine_path(engine)])
    line = f"name: {json.dumps(file.stem, ensure_ascii=False)}"
    write_text(file, NAME_LINE.sub(lambda _: line, text, count=1))
    print(f"{file}: a copy of {engine}; change it and give it to --engine", file=sys.stderr)
