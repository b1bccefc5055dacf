"""The Model sheet: what the model is, and how each choice's memory is used."""

from __future__ import annotations

from collections.abc import Iterable

from perfmodel.inference.estimate import Estimate
from perfmodel.operators.summary import model_record
from perfmodel.specs.model import Attention, LatentAttention, Model, MoeFfn
from perfmodel.units import GIB
from reports.workbook.case import Case
from reports.workbook.cells import Column, Content, Formula, Place, Table, plain
from reports.workbook.page import Page

SHEET = "Model"
TOP = 4
FACTS = (
    Column("name", "Model", "right", unit=""),
    Column("architecture", "Architecture", "right", unit=""),
    Column("parameters", "Parameters", "int", unit="exact"),
    Column("active_parameters", "Active per token", "int", unit="exact"),
    Column("mtp_parameters", "Of prediction modules (MTP), besides", "int", unit="exact"),
    Column("layers", "Layers", "int"),
    Column("hidden", "Hidden width", "int"),
    Column("heads", "Attention heads", "right"),
    Column("kv_heads", "KV heads", "right"),
    Column("head_dim", "Width of a head", "right"),
    Column("window", "Sliding window", "right", unit="tokens"),
    Column("experts", "Experts of a layer", "right"),
    Column("experts_per_token", "Experts per token", "right"),
    Column("vocabulary", "Vocabulary", "int", unit="tokens"),
    Column("max_positions", "Made for contexts up to", "int", unit="tokens"),
    Column("checkpoint_format", "Checkpoint's format", "right"),
    Column("kv_bytes_per_token", "KV cache in 16 bits, whole context", "int",
           unit="bytes per token"),
    Column("kv_bytes_per_token_beyond_window", "… beyond the window", "int",
           unit="bytes per token"),
    Column("state_bytes_per_sequence", "Recurrent state", "int", unit="bytes per sequence"),
    Column("weight_bytes", "Weights in 16 bits", "int", unit="bytes"),
)  # fmt: skip
MEMORY = (
    Column("label", "Deployment", "words"),
    Column("weights", "Format of the weights", "right"),
    Column("kv_cache", "Format of the cache", "right"),
    Column("capacity_gib", "Capacity", "n2", unit="GiB per GPU"),
    Column("weights_gib", "Weights", "n2", unit="GiB per GPU"),
    Column("activation_gib", "Activation peak", "n2", unit="GiB per GPU"),
    Column("reserved_gib", "Reserved by engine and driver", "n2", unit="GiB per GPU"),
    Column("kv_room_gib", "Left for the KV cache", "n2", unit="GiB per GPU"),
    Column("kv_bytes_per_token_gpu", "KV cache of a token", "n1", unit="bytes per GPU"),
    Column("kv_room_tokens", "Tokens that it holds", "int", unit="below any window"),
    Column("max_sequences", "Sequences of mean length that fit", "int", unit="sequences"),
)
NONE_OF = ""


def _either(values: Iterable[int | None]) -> Content:
    """One number where all layers agree, else all of them as text; nothing where none has any."""
    found = sorted({value for value in values if value is not None})
    if not found:
        return NONE_OF
    return found[0] if len(found) == 1 else " or ".join(str(value) for value in found)


def _geometry(model: Model) -> dict[str, Content]:
    """What layers have of heads, windows and experts."""
    mixers = {layer.mixer for layer in model.layers}
    attention = [m for m in mixers if isinstance(m, Attention)]
    latent = [m for m in mixers if isinstance(m, LatentAttention)]
    experts = [x.ffn for x in model.layers if isinstance(x.ffn, MoeFfn)]
    return {
        "heads": _either([*(m.heads for m in attention), *(m.heads for m in latent)]),
        "kv_heads": _either(m.kv_heads for m in attention),
        "head_dim": _either(m.head_dim for m in attention),
        "window": _either(m.window for m in attention),
        "experts": _either(f.experts for f in experts),
        "experts_per_token": _either(f.top_k for f in experts),
    }


def model_table(case: Case) -> Table:
    """One record: the model."""
    model = case.plan.model
    facts = model_record(model) | _geometry(model)
    if facts["kv_bytes_per_token_beyond_window"] == facts["kv_bytes_per_token"]:
        facts["kv_bytes_per_token_beyond_window"] = None  # no window: nothing more to say
    known = tuple(column for column in FACTS if facts[column.key] not in {None, NONE_OF, 0})
    row = [plain(facts[column.key]) for column in known]
    return Table.of("model", Place(SHEET, TOP, 0, known, across=True), [row])


def _memory_row(place: Place, record: int, label: str, result: Estimate) -> list[Content]:
    m, d = result.memory, result.plan.deployment

    def at(key: str) -> str:
        return place.at(record, key)

    def gib(amount: object) -> float:
        return float(amount) / GIB  # type: ignore[arg-type]

    parts = "-".join(at(key) for key in ("weights_gib", "activation_gib", "reserved_gib"))
    room, each = gib(m.kv_room_bytes), m.kv_bytes_per_token
    tokens: Content = ""
    if each:
        text = f"MAX(0,{at('kv_room_gib')})*1024^3/{at('kv_bytes_per_token_gpu')}"
        tokens = Formula(text, max(0.0, room) * GIB / each)
    return [
        label, d.weights, d.kv_cache, gib(m.capacity_bytes), gib(m.weights_bytes),
        gib(m.activation_bytes), gib(m.reserved_bytes),
        Formula(f"{at('capacity_gib')}-{parts}", room), each, tokens, plain(m.max_sequences),
    ]  # fmt: skip


def memory_table(case: Case, facts: Table) -> Table:
    """Memory of the fullest GPU at each choice's load, below the model's ``facts``."""
    place = Place(SHEET, TOP + len(facts.place.columns) + 4, 0, MEMORY, across=True)
    rows = [
        _memory_row(place, number, each.label, each.typical)
        for number, each in enumerate(case.facts)
    ]
    return Table.of("memory", place, rows)


def model_page(case: Case, facts: Table, memory: Table) -> Page:
    """The sheet."""
    page = Page(SHEET)
    page.head(
        f"Model: {case.plan.model.name}",
        "Counted from its config.json, not measured: parameters to the last one, the KV cache "
        "layer by layer.",
    )
    for column, title in enumerate(("Fact", "Unit", "Value")):
        page.put(TOP - 1, column, title, "head")
    page.table(facts)
    top = memory.place.top
    page.section(top - 2, "Memory of the fullest GPU, at each choice's mean batch", 3)
    for column, title in enumerate(("Part", "Unit")):
        page.put(top - 1, column, title, "head")
    for number in range(len(case.facts)):
        page.put(top - 1, 2 + number, f"Choice {number + 1}", "head")
    page.table(memory)
    page.heights[top] = 45
    page.widths |= {0: 36, 1: 20} | {2 + number: 24 for number in range(len(case.facts))}
    page.frozen, page.pages = (TOP, 2), 1
    return page
