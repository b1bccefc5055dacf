"""`perfmodel models list` and `show`: the catalogue, and one model's exact counts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from perfmodel.cli.lazy import HELP
from perfmodel.cli.output import console, print_json, table
from perfmodel.cli.text import binary, binary_exact, digits, whole
from perfmodel.operators.summary import model_record
from perfmodel.specs.architectures.registry import known_types
from perfmodel.specs.loading import load_catalogue, load_model, model_names
from perfmodel.specs.model import CheckpointFormat, Model

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings=HELP,
    help="Models that perfmodel knows.",
)
Json = Annotated[bool, typer.Option("--json", metavar="", help="One JSON object.")]


def _list_architectures(as_json: bool) -> None:
    if as_json:
        print_json({"architectures": known_types()})
        return
    for kind in known_types():
        print(kind)


@app.command("list")
def list_models(
    architectures: Annotated[
        bool,
        typer.Option(
            "--architectures", metavar="", help="Every model_type that can be read, instead."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """List the catalogue with parameter counts and KV bytes per token."""
    if architectures:
        _list_architectures(as_json)
        return
    records = [model_record(load_catalogue(name)) for name in model_names()]
    if as_json:
        print_json({"models": records})
        return
    made = table(
        None,
        [("Model", "left"), ("Architecture", "left"), ("Parameters", "right"),
         ("Active", "right"), ("KV per token", "right")],
    )  # fmt: skip
    for record in records:
        made.add_row(
            record["name"],
            record["architecture"],
            f"{digits(record['parameters'] / 1e9)} B",
            f"{digits(record['active_parameters'] / 1e9)} B",
            binary(record["kv_bytes_per_token"]),
        )
    console().print(made)


def _stored(checkpoint: CheckpointFormat) -> str:
    """A checkpoint's format, with the roles that are stored otherwise."""
    roles: dict[Literal["linear", "expert", "head"], str] = {
        "linear": "linear layers",
        "expert": "experts",
        "head": "head",
    }
    named = {label: checkpoint.of_role(role).weights for role, label in roles.items()}
    others = [f"{label} {name}" for label, name in named.items() if name != checkpoint.weights]
    cache = [f"cache {checkpoint.kv_cache}"] if checkpoint.kv_cache else []
    rest = ", ".join([*others, *cache])
    return f"{checkpoint.weights} ({rest})" if rest else checkpoint.weights


def _show(model: Model, record: dict[str, Any]) -> None:
    made = table(f"{record['name']} ({record['architecture']})", [("", "left"), ("", "right")])
    made.show_header = False
    for label, key in (
        ("Parameters", "parameters"),
        ("Parameters of the text model", "text_parameters"),
        ("Active per token", "active_parameters"),
        ("Prediction modules (MTP), besides", "mtp_parameters"),
    ):
        made.add_row(label, whole(record[key]))
    for label, key in (
        ("Weights in bf16", "weight_bytes"),
        ("KV cache per token in bf16", "kv_bytes_per_token"),
        ("KV growth per token beyond the window", "kv_bytes_per_token_beyond_window"),
        ("State per sequence", "state_bytes_per_sequence"),
    ):
        made.add_row(label, binary_exact(record[key]))
    made.add_row("Layers", whole(len(model.layers)))
    made.add_row("Hidden width", whole(model.hidden))
    made.add_row("Vocabulary", whole(model.vocab))
    if model.max_positions:
        made.add_row("Made for contexts up to", whole(model.max_positions))
    if model.checkpoint:
        made.add_row("Checkpoint's format", _stored(model.checkpoint))
    console().print(made)


@app.command("show")
def show(
    model: Annotated[str, typer.Argument(help="Catalogue name, config.json, folder or hub id.")],
    as_json: Json = False,
) -> None:
    """Show one model's exact counts."""
    loaded = load_model(model)
    record = model_record(loaded)
    if as_json:
        print_json(record)
    else:
        _show(loaded, record)
