"""The number formats of a checkpoint, from ``quantization_config``: what its writer states.

Scales are counted as engines hold them: one per group, channel or block, and a zero point beside
it only where the scheme is asymmetric. (GPTQ's files pack the constant zero points of a symmetric
scheme too, 4 bits per group; engines drop them.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perfmodel.specs.architectures.config import Config, shown
from perfmodel.specs.architectures.quantised_layers import Group, Recipe
from perfmodel.specs.formats import grouped
from perfmodel.specs.model import Scheme

BLOCK = [128, 128]
WEIGHT_ONLY = "bf16"
SPARED = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules",
          "llm_int8_skip_modules")  # fmt: skip


def read_recipe(config: Config) -> Recipe | None:
    """What the checkpoint's ``quantization_config`` says; None where it isn't quantised.

    Raises:
        InputError: a method, bit width or block that isn't known.
    """
    section = config.section("quantization_config") or config.section("compression_config")
    return None if section is None else READERS[_method(section)](section)


def _method(section: Config) -> str:
    """The method's name; older writers leave it out where other keys tell it."""
    default = ""
    if section.states("load_in_8bit", "load_in_4bit"):
        default = "bitsandbytes"
    elif section.states("quant_algo", "quantization"):
        default = "modelopt"
    return section.choice("quant_method", READERS, default=default)


def _recipe(section: Config, *groups: Group, **fields: Any) -> Recipe:
    """The lists and the place of ``section``, with what a method's reader found."""
    key, _ = section.find(*SPARED)
    stated: dict[str, Any] = {
        "spared": tuple(section.items(*SPARED) or ()),
        "spared_field": key,
        "where": f"{section.where}: {section.path}",
    }
    return Recipe(groups, **(stated | fields))


def _whole(section: Config, weights: str, activations: str | None, **fields: Any) -> Recipe:
    """One scheme for every linear layer that isn't spared."""
    return _recipe(section, Group(Scheme(weights=weights, activations=activations)), **fields)


def _fp8(section: Config) -> Recipe:
    block = section.integers("weight_block_size", low=1, high=2**14)
    if block is None:
        return _whole(section, "fp8", "fp8")
    if block != BLOCK:
        raise section.fault("weight_block_size", f"must be {BLOCK}, not {block}")
    return _whole(section, "fp8_block", "fp8")


def _fbgemm(section: Config) -> Recipe:
    return _whole(section, "fp8_channel", "fp8")


def _mxfp4(section: Config) -> Recipe:
    return _whole(section, "mxfp4", None, experts_only=True)


def _group_size(section: Config, default: int | None) -> int | None:
    """Elements that share a scale; None (-1, 0) for an output channel."""
    size = section.optional("group_size", "q_group_size", low=-1, high=10**6 - 1)
    return default if size is None else (size if size > 0 else None)


def _whole_numbers(section: Config, bits: int, group: int | None, asymmetric: bool) -> str:
    if bits not in (4, 8):
        key = "num_bits" if section.states("num_bits") else "bits"
        raise section.fault(key, f"int of {bits} isn't supported; known: 4, 8")
    return grouped(bits, group, bits if asymmetric else 0).name


def _awq(section: Config) -> Recipe:
    bits = section.integer("bits", "w_bit", default=4, high=64)
    asymmetric = section.flag("zero_point", default=True)
    name = _whole_numbers(section, bits, _group_size(section, 128), asymmetric)
    return _whole(section, name, WEIGHT_ONLY)


def _gptq(section: Config) -> Recipe:
    """GPTQ and AutoRound: symmetric unless ``sym`` is false."""
    bits = section.integer("bits", default=4, high=64)
    asymmetric = not section.flag("sym", default=True)
    name = _whole_numbers(section, bits, _group_size(section, 128), asymmetric)
    scheme = Scheme(weights=name, activations=WEIGHT_ONLY)
    listed = section.items("modules_in_block_to_quantize")
    targets = None if listed is None else tuple(_flat(listed))
    fields: dict[str, Any] = {}
    if section.flag("lm_head", default=False):
        fields["head"] = "yes"
    spared, fault = _overrides(section)
    if spared:
        fields |= {"spared": tuple(spared), "spared_field": "dynamic"}
    return _recipe(section, Group(scheme, targets), fault=fault, **fields)


def _flat(listed: list[Any]) -> list[Any]:
    """Names in a list of lists."""
    return [name for item in listed for name in (item if isinstance(item, list) else [item])]


def _overrides(section: Config) -> tuple[list[str], str | None]:
    """GPTQModel's ``dynamic`` and AutoRound's ``extra_config``: spared modules, or a fault."""
    spared, fault = [], None
    dynamic = section.section("dynamic")
    for key in dynamic.data if dynamic else ():
        if key.startswith("-:"):
            spared.append(f"re:{key[2:]}")
        else:
            fault = str(section.fault("dynamic", f"{shown(key)}: formats by module aren't read"))
    extra = section.section("extra_config")
    for key, value in extra.data.items() if extra else ():
        if isinstance(value, Mapping) and value.get("bits") == 16:
            spared.append(key)
        else:
            fault = str(
                section.fault("extra_config", f"{shown(key)}: formats by module aren't read")
            )
    return spared, fault


def _bitsandbytes(section: Config) -> Recipe:
    if section.flag("load_in_8bit", default=False):
        return _whole(section, "int8", "int8")
    double = section.flag("bnb_4bit_use_double_quant", default=False)
    return _whole(section, "nf4_double" if double else "nf4", WEIGHT_ONLY)


def _compressed(section: Config) -> Recipe:
    found = section.section("config_groups")
    parts = [found.section(name) for name in found.data] if found else []
    groups = [_group(section, part) for part in parts if part and part.section("weights")]
    if not groups:
        raise section.fault("config_groups", "missing; its first group must describe weights")
    return _recipe(
        section, *groups, head="listed", spared_field="ignore", kv_cache=_cache_scheme(section)
    )


def _group(section: Config, part: Config) -> Group:
    """One of compressed-tensors' groups: its weights, inputs and targets."""
    weights = part.section("weights")
    assert weights is not None  # noqa: S101  (groups without weights are left out)
    targets = part.items("targets")
    scheme = Scheme(weights=_weights_name(section, part, weights), activations=_activations(part))
    return Group(scheme, None if targets is None else tuple(targets))


def _weights_name(section: Config, part: Config, weights: Config) -> str:
    kind = weights.choice("type", ("int", "float"), default="int")
    bits = weights.integer("num_bits", high=64)
    strategy = weights.text("strategy") or ""
    size = _group_size(weights, None)
    if kind == "int":
        return _whole_numbers(weights, bits, size, not weights.flag("symmetric", default=True))
    written = part.text("format") or section.text("format") or ""
    if bits == 4:
        return "mxfp4" if written.startswith("mxfp4") or size == 32 else "nvfp4"
    if bits != 8:
        raise weights.fault("num_bits", f"float of {bits} isn't supported; known: 4, 8")
    block = weights.integers("block_structure", low=1, high=2**14)
    if strategy == "block" and block != BLOCK:
        raise weights.fault("block_structure", f"must be {BLOCK}, not {block}")
    if strategy == "group":
        raise weights.fault("strategy", "fp8 weights in groups aren't supported; known: block")
    return {"block": "fp8_block", "channel": "fp8_channel"}.get(strategy, "fp8")


def _activations(part: Config) -> str:
    """The inputs that a group states; none means that only weights are quantised."""
    inputs = part.section("input_activations")
    if inputs is None:
        return WEIGHT_ONLY
    kind = inputs.choice("type", ("int", "float"), default="int")
    bits = inputs.integer("num_bits", high=64)
    if bits >= 16:
        return WEIGHT_ONLY
    known = {("int", 8): "int8", ("float", 8): "fp8", ("float", 4): "nvfp4"}
    if (kind, bits) not in known:
        allowed = ", ".join(f"{name} of {width}" for name, width in known)
        raise inputs.fault("num_bits", f"{kind} of {bits} isn't supported; known: {allowed}")
    if kind == "float" and bits == 4 and inputs.optional("group_size", low=-1) == 32:
        return "mxfp4"
    return known[kind, bits]


def _cache_scheme(section: Config) -> str | None:
    """compressed-tensors' ``kv_cache_scheme``."""
    cache = section.section("kv_cache_scheme")
    if cache is None:
        return None
    kind = cache.choice("type", ("int", "float"), default="float")
    bits = cache.integer("num_bits", high=64)
    known = {("float", 8): "fp8", ("int", 8): "int8", ("float", 16): None, ("float", 4): "nvfp4"}
    if (kind, bits) not in known:
        raise cache.fault("num_bits", f"{kind} of {bits} isn't supported for a cache; known: 8")
    return known[kind, bits]


MODELOPT = {
    "FP8": ("fp8", "fp8"),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8_channel", "fp8"),
    "FP8_PB_WO": ("fp8_block", WEIGHT_ONLY),
    "NVFP4": ("nvfp4", "nvfp4"),
    "NVFP4_AWQ": ("nvfp4", "nvfp4"),
    "W4A16_NVFP4": ("nvfp4", WEIGHT_ONLY),
    "NVFP4A16": ("nvfp4", WEIGHT_ONLY),
    "W4A16_AWQ": ("int4", WEIGHT_ONLY),
    "W4A8_AWQ": ("int4", "fp8"),
    "INT8_SQ": ("int8", "int8"),
    "W8A8_SQ_PER_CHANNEL": ("int8", "int8"),
    "W8A16": ("int8", WEIGHT_ONLY),
}
"""ModelOpt's ``quant_algo``: weights and inputs; its int4 is in symmetric groups."""
MODELOPT_CACHE = {"FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8"}


def _modelopt(section: Config) -> Recipe:
    inner = section.section("quantization") or section
    default = "FP8" if section.data.get("quant_method") == "modelopt_fp8" else "NVFP4"
    algorithm = (inner.text("quant_algo", default=default) or default).upper()
    if algorithm not in MODELOPT:
        known = ", ".join(MODELOPT)
        raise inner.fault("quant_algo", f"must be one of {known}, not {algorithm!r:.60}")
    weights, activations = MODELOPT[algorithm]
    if weights == "int4":
        weights = grouped(4, _group_size(inner, 128)).name
    return _whole(inner, weights, activations, kv_cache=_modelopt_cache(inner))


def _modelopt_cache(inner: Config) -> str | None:
    algorithm = inner.text("kv_cache_quant_algo")
    if algorithm is None or algorithm.upper() in {"NONE", ""}:
        return _cache_scheme(inner)
    if algorithm.upper() not in MODELOPT_CACHE:
        known = ", ".join(MODELOPT_CACHE)
        raise inner.fault("kv_cache_quant_algo", f"must be one of {known}, not {algorithm!r:.60}")
    return MODELOPT_CACHE[algorithm.upper()]


READERS: Mapping[str, Callable[[Config], Recipe]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fbgemm,
    "mxfp4": _mxfp4,
    "awq": _awq,
    "gptq": _gptq,
    "auto-round": _gptq,
    "compressed-tensors": _compressed,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "nvfp4": _modelopt,
    "bitsandbytes": _bitsandbytes,
}
