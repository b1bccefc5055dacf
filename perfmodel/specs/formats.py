"""Number formats: bits of an element, and the scales and zero points stored beside it."""

from __future__ import annotations

import re
from typing import Literal

from perfmodel.errors import UnknownNameError
from perfmodel.specs.base import Spec

Arithmetic = Literal["fp32", "bf16", "fp16", "fp8", "int8", "fp4"]
"""The kinds of multiply-add that a profile gives a peak for."""


class NumberFormat(Spec):
    """How values are stored. A scale covers a group of elements of one row (or a block of rows)."""

    name: str
    bits: float
    """Bits of one element, its scales not counted."""
    arithmetic: Arithmetic
    """The multiply-add that computes with it natively."""
    grouping: Literal["none", "tensor", "channel", "block", "token", "tokens"] = "none"
    """What one scale covers: nothing has one, the whole tensor, one output channel of a weight
    (one token and head of a cache), or a block. Of caches alone: a token over all its heads, or
    one channel over ``block`` tokens (``tokens``)."""
    block_rows: int = 1
    """Output channels in a block."""
    block: int = 1
    """Elements along the contracted dimension in a block."""
    scale_bits: float = 0.0
    zero_bits: float = 0.0
    note: str = ""


FORMATS: dict[str, NumberFormat] = {
    item.name: item
    for item in (
        NumberFormat(name="fp32", bits=32, arithmetic="fp32"),
        NumberFormat(name="bf16", bits=16, arithmetic="bf16"),
        NumberFormat(name="fp16", bits=16, arithmetic="fp16"),
        NumberFormat(
            name="fp8", bits=8, arithmetic="fp8", grouping="tensor", scale_bits=32,
            note="e4m3, one fp32 scale per tensor",
        ),
        NumberFormat(
            name="fp8_channel", bits=8, arithmetic="fp8", grouping="channel", scale_bits=32,
            note="e4m3, one fp32 scale per output channel",
        ),
        NumberFormat(
            name="fp8_block", bits=8, arithmetic="fp8", grouping="block", block_rows=128,
            block=128, scale_bits=32, note="e4m3, one fp32 scale per 128×128 block (DeepSeek-V3)",
        ),
        NumberFormat(
            name="int8", bits=8, arithmetic="int8", grouping="channel", scale_bits=16,
            note="one 16-bit scale per output channel",
        ),
        NumberFormat(
            name="int8_wo", bits=8, arithmetic="bf16", grouping="channel", scale_bits=16,
            note="W8A16: int8 weights, widened and multiplied in 16 bits",
        ),
        NumberFormat(
            name="int4", bits=4, arithmetic="bf16", grouping="block", block=128, scale_bits=16,
            zero_bits=4, note="AWQ: groups of 128 with a 16-bit scale, a 4-bit zero point",
        ),
        NumberFormat(
            name="nf4", bits=4, arithmetic="bf16", grouping="block", block=64, scale_bits=32,
            note="bitsandbytes: one fp32 scale per 64",
        ),
        NumberFormat(
            name="nf4_double", bits=4, arithmetic="bf16", grouping="block", block=64,
            scale_bits=8.125, note="bitsandbytes: 8-bit scales, one fp32 per 256 of them",
        ),
        NumberFormat(
            name="mxfp4", bits=4, arithmetic="fp4", grouping="block", block=32, scale_bits=8,
            note="OCP MX: e2m1 with one 8-bit exponent per 32",
        ),
        NumberFormat(
            name="nvfp4", bits=4, arithmetic="fp4", grouping="block", block=16, scale_bits=8,
            note="e2m1 with one fp8 scale per 16",
        ),
        NumberFormat(
            name="q4_0", bits=4, arithmetic="bf16", grouping="block", block=32, scale_bits=16,
            note="GGUF Q4_0 and MLC q4f16: one 16-bit scale per 32",
        ),
        NumberFormat(
            name="q8_0", bits=8, arithmetic="bf16", grouping="block", block=32, scale_bits=16,
            note="GGUF Q8_0: one 16-bit scale per 32, multiplied in 16 bits",
        ),
        NumberFormat(
            name="q5_0", bits=5, arithmetic="bf16", grouping="block", block=32, scale_bits=16,
            note="GGUF Q5_0: one 16-bit scale per 32",
        ),
        NumberFormat(
            name="q5_1", bits=5, arithmetic="bf16", grouping="block", block=32, scale_bits=16,
            zero_bits=16, note="GGUF Q5_1: a 16-bit scale and minimum per 32",
        ),
        NumberFormat(
            name="q4_k", bits=4, arithmetic="bf16", grouping="block", block=32, scale_bits=16,
            note="GGUF Q4_K: 6-bit scale and minimum per 32, two of 16 bits per 256",
        ),
        NumberFormat(
            name="q5_k", bits=5, arithmetic="bf16", grouping="block", block=32, scale_bits=16,
            note="GGUF Q5_K: scales as Q4_K's",
        ),
        NumberFormat(
            name="q6_k", bits=6, arithmetic="bf16", grouping="block", block=16, scale_bits=9,
            note="GGUF Q6_K: an 8-bit scale per 16, one of 16 bits per 256",
        ),
    )
}  # fmt: skip
ALIASES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "fp8_e4m3": "fp8",
    "w4a16": "int4",
    "awq": "int4",
    "gptq": "int4",
    "w8a8": "int8",
    "w8a16": "int8_wo",
}
FILE_TYPES = ("q4_0", "q8_0", "q4_k_m")
"""GGUF files that `perfmodel.operators.gguf` knows: rules over the block formats above."""
GROUPED = re.compile(r"int([248])_(?:g([1-9]\d{0,5})|channel)(?:_z(2|4|8|16))?")
"""``int4_g64``, ``int4_channel``; with the bits of a zero point, if any: ``int4_g32_z4``."""


def grouped(bits: int, group: int | None, zero_bits: int = 0) -> NumberFormat:
    """Whole numbers with a 16-bit scale per ``group`` elements of a row, or per channel (None).

    ``zero_bits`` are those of the zero point beside each scale; symmetric schemes have none.
    The formats that carry names of their own (``int4``, ``int8``) are returned as such.

    >>> grouped(4, 32).name, grouped(4, 64, 4).name, grouped(4, None).name, grouped(4, 128, 4).name
    ('int4_g32', 'int4_g64_z4', 'int4_channel', 'int4')
    """
    if (bits, group, zero_bits) == (4, 128, 4):
        return FORMATS["int4"]
    if (bits, group, zero_bits) == (8, None, 0):
        return FORMATS["int8"]
    covered = "channel" if group is None else f"g{group}"
    zeros = f", a {zero_bits}-bit zero point" if zero_bits else ""
    return NumberFormat(
        name=f"int{bits}_{covered}" + (f"_z{zero_bits}" if zero_bits else ""),
        bits=bits,
        arithmetic="bf16",
        grouping="channel" if group is None else "block",
        block=group or 1,
        scale_bits=16,
        zero_bits=zero_bits,
        note=f"a 16-bit scale{zeros} per {group or 'output channel'}, multiplied in 16 bits",
    )


EXL2 = re.compile(r"exl2_([2-8](?:\.\d{1,2})?)")
"""``exl2_4.0``: ExLlamaV2's mixed format by its bits per weight."""


def number_format(name: str, field: str = "format") -> NumberFormat:
    """The format called ``name``; ``field`` says in the error what was being set.

    Raises:
        UnknownNameError: with the names that are known; a mix of formats isn't one.
    """
    key = ALIASES.get(name.lower(), name.lower())
    if (exl2 := EXL2.fullmatch(key)) is not None:
        return NumberFormat(
            name=key, bits=float(exl2[1]), arithmetic="bf16", note="EXL2: bits as stated, in all"
        )
    if (found := GROUPED.fullmatch(key)) is not None:
        return grouped(int(found[1]), int(found[2]) if found[2] else None, int(found[3] or 0))
    if key in FILE_TYPES and key not in FORMATS:
        raise UnknownNameError(f"{field}: {key} is a mix of formats, which only --weights takes")
    if key not in FORMATS:
        known = ", ".join([*FORMATS, "int4_g32 (any group size; _z4 with zero points)"])
        raise UnknownNameError(f"{field}: unknown number format {name!r}; known: {known}")
    return FORMATS[key]
