"""Number formats of a cache: keys and values may differ, the newest tokens may stay in 16 bits.

Names are those of `perfmodel.specs.formats` where a format serves weights and caches alike, and:

* ``fp8_token``, ``int8_token_z16``: one scale per token over all its heads;
* ``int4_channel_g32_z16``: one scale per channel over 32 tokens (KIVI's keys);
* ``int8_tensor``: one for the whole tensor, no bytes per token (``fp8`` is so by itself);
* ``fp8_per_token_head``, ``int8_per_token_head``, ``int4_per_token_head``: vLLM's, a 32-bit scale
  per token and head;
* ``KEYS/VALUES``, two of these (llama.cpp's ``--cache-type-k q8_0 --cache-type-v q4_0``);
* ``kivi2``, ``kivi4``: Liu et al. 2024 (arXiv 2402.02750) with its defaults: keys per channel over
  32 tokens, values per token in groups of 32, a 16-bit scale and zero point each, the last 128
  tokens in 16 bits.
"""

from __future__ import annotations

import re

from perfmodel.errors import UnknownNameError
from perfmodel.specs.base import Spec
from perfmodel.specs.formats import ALIASES, FORMATS, NumberFormat, number_format


class CacheFormat(Spec):
    """How cached keys and values are stored."""

    name: str
    keys: NumberFormat
    values: NumberFormat
    recent: int = 0
    """The newest tokens of a sequence that stay in 16 bits."""

    @property
    def bits(self) -> float:
        """Bits of an element of the wider half, scales not counted."""
        return max(self.keys.bits, self.values.bits)

    @property
    def narrow_bits(self) -> float:
        """Bits of an element of the narrower half."""
        return min(self.keys.bits, self.values.bits)


KIVI_RECENT = 128
KIVI = re.compile(r"kivi([24])")
OWN = re.compile(
    r"(fp8|int[248])_(?:(token|tensor|per_token_head)|channel_g([1-9]\d{0,5}))(?:_z(16))?"
)
VLLM_ALIASES = {"fp8_e5m2": "fp8", "fp8_inc": "fp8"}
"""Other codes of eight bits with the same bytes."""
KINDS = (
    "fp8, int8, int4, int4_g32_z16, int8_per_token_head, int4_channel_g32_z16, KEYS/VALUES, kivi4"
)
"""What a refusal lists, beside `FORMATS`."""
WEIGHTS_ONLY = ("fp32", "fp8_block", "int8_wo", "nf4", "nf4_double", "q4_k", "q5_k", "q6_k")
"""Formats whose blocks no cache is stored in; fp32 isn't used for one."""


def _own(found: re.Match[str]) -> NumberFormat:
    """A format that only caches have."""
    element, covered, tokens, zeros = found.groups()
    bits = 8 if element == "fp8" else int(element[3:])
    wide = element == "fp8" or covered == "per_token_head"
    grouping = {"token": "token", "tensor": "tensor", "per_token_head": "channel"}
    return NumberFormat.model_validate(
        {
            "name": found[0],
            "bits": bits,
            "arithmetic": {"fp8": "fp8", "int8": "int8"}.get(element, "bf16"),
            "grouping": grouping.get(covered, "tokens"),
            "block": int(tokens or 1),
            "scale_bits": 32 if wide else 16,
            "zero_bits": int(zeros or 0),
        }
    )


def _half(name: str, field: str) -> NumberFormat:
    key = VLLM_ALIASES.get(name, ALIASES.get(name, name))
    if (found := OWN.fullmatch(key)) is not None:
        return _own(found)
    usable = key in FORMATS or key.startswith("int")
    if not usable or key in WEIGHTS_ONLY:
        raise UnknownNameError(f"{field}: no cache is stored in {name!r:.40}; known: {KINDS}")
    return number_format(key, field)


def cache_format(name: str, field: str = "cache") -> CacheFormat:
    """The format of a cache called ``name``; ``field`` says in the error what was being set.

    Raises:
        UnknownNameError: with names that are known.

    >>> cache_format("q8_0/q4_0").values.name, cache_format("kivi4").keys.name
    ('q4_0', 'int4_channel_g32_z16')
    """
    text = name.strip().lower()
    if (kivi := KIVI.fullmatch(text)) is not None:
        keys, values = (f"int{kivi[1]}_{group}_z16" for group in ("channel_g32", "g32"))
        return CacheFormat(
            name=text, keys=_half(keys, field), values=_half(values, field), recent=KIVI_RECENT
        )
    parts = [part.strip() for part in text.split("/")]
    if len(parts) > 2:
        raise UnknownNameError(f"{field}: {name!r:.60} has more than KEYS/VALUES")
    halves = [_half(part, field) for part in parts]
    same = halves[0] == halves[-1]
    label = halves[0].name if same else "/".join(half.name for half in halves)
    return CacheFormat(name=label, keys=halves[0], values=halves[-1])


def as_cache(stored: NumberFormat | CacheFormat) -> CacheFormat:
    """One format of keys and values alike as a cache's."""
    if isinstance(stored, CacheFormat):
        return stored
    return CacheFormat(name=stored.name, keys=stored, values=stored)
