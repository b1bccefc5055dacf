"""Exchanges in fewer bits: the message quantised before, summed in 16 bits, widened after.

An all-reduce is done in two shots, as TensorRT-LLM's low-precision all-reduce and FlashInfer's
``quantized_all_reduce`` do: each rank quantises its message, gets its share of all others' and sums
it in 16 bits, quantises the sum, and gets those of all others. Engines fuse the passes into the
exchange where they can; here each is an elementwise operator of its own, so that its traffic is
seen: an upper bound of their cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from perfmodel.operators.format_bytes import BASE, vector_bytes
from perfmodel.operators.record import Collective, Elementwise, Operator
from perfmodel.specs.formats import NumberFormat
from perfmodel.units import BITS_PER_BYTE

HALF = BASE.bits / BITS_PER_BYTE

Pass = Callable[..., Elementwise]
"""`Context.elementwise`: name, bytes read and written per row, rows."""


def element_bytes(stored: NumberFormat, hidden: int) -> float:
    """Bytes on the wire of an element of a row of ``hidden``, scales included."""
    return vector_bytes(stored, 1, hidden) / hidden


def compressed(
    exchange: Collective,
    stored: NumberFormat,
    hidden: int,
    elementwise: Pass,
    sent_bytes: float = HALF,
) -> Iterator[Operator]:
    """``exchange`` of rows of ``hidden`` elements in ``stored``, with the passes that it needs.

    Args:
        exchange: as it would be at ``sent_bytes`` per element.
        stored: the format on the wire; one that isn't narrower changes nothing.
        hidden: elements of a row.
        elementwise: makes a pass over so many rows.
        sent_bytes: bytes of an element in ``exchange``.
    """
    narrow = element_bytes(stored, hidden)
    if stored.bits >= BASE.bits or narrow >= sent_bytes:
        yield exchange
        return
    rows = exchange.message_bytes / (sent_bytes * hidden)
    wide, thin = sent_bytes * hidden, narrow * hidden
    gathers, reduces = exchange.kind == "all_gather", exchange.kind.endswith("reduce")
    scatters = exchange.kind == "reduce_scatter"
    share = 1 / exchange.ranks
    own = rows * share if gathers else rows
    name = exchange.name
    yield elementwise(f"{name}.quantise", wide, thin, own)
    yield replace(exchange, message_bytes=thin * rows)
    if reduces:
        yield elementwise(f"{name}.sum", thin, thin * share, rows)
    if scatters:
        yield elementwise(f"{name}.sum", thin, wide * share, rows)
    else:
        yield elementwise(f"{name}.dequantise", thin, wide, rows)
