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
    grouping: Literal["none", "tensor", "channel", "block"] = "none"
    """What one scale covers: nothing has one, the whole tensor, one output channel of a weight
    (one token of a cache), or a block."""
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
            name="fp8_block", bits=8, arithmetic="fp8", grouping="block", block_rows=128,
            block=128, scale_bits=32, note="e4m3, one fp32 scale per 128×128 block (DeepSeek-V3)",
        ),
        NumberFormat(
            name="int8", bits=8, arithmetic="int8", grouping="channel", scale_bits=16,
            note="one 16-bit scale per output channel",
        ),
        NumberFormat(
            name="int4", bits=4, arithmetic="bf16", grouping="block", block=128, scale_bits=16,
            zero_bits=4, note="AWQ and GPTQ: groups of 128 with a 16-bit scale, a 4-bit zero point",
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
            name="int4_g32", bits=4, arithmetic="bf16", grouping="block", block=32, scale_bits=16,
            zero_bits=16, note="gpt-fast: groups of 32 with a 16-bit scale and zero point",
        ),
        NumberFormat(
            name="int8_g128", bits=8, arithmetic="bf16", grouping="block", block=128,
            scale_bits=16, zero_bits=8, note="GPTQ in 8 bits, multiplied in 16",
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
            name="q4_k_m", bits=4.87, arithmetic="bf16",
            note="GGUF Q4_K_M: Q4_K (4.5) with half of v and down and the head in Q6_K (6.56); "
            "mean over Llama-3 8B (4.92) and 70B (4.82) with the head",
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
}


EXL2 = re.compile(r"exl2_([2-8](?:\.\d{1,2})?)")
"""``exl2_4.0``: ExLlamaV2's mixed format by its bits per weight."""


def number_format(name: str, field: str = "format") -> NumberFormat:
    """The format called ``name``; ``field`` says in the error what was being set.

    Raises:
        UnknownNameError: with the names that are known.
    """
    key = ALIASES.get(name.lower(), name.lower())
    if (exl2 := EXL2.fullmatch(key)) is not None:
        return NumberFormat(
            name=key, bits=float(exl2[1]), arithmetic="bf16", note="EXL2: bits as stated, in all"
        )
    if key not in FORMATS:
        known = ", ".join(FORMATS)
        raise UnknownNameError(f"{field}: unknown number format {name!r}; known: {known}")
    return FORMATS[key]
