"""The number format of a checkpoint, from ``quantization_config``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfmodel.specs.architectures.config import Config
from perfmodel.specs.model import CheckpointFormat

BLOCK = [128, 128]


def read_checkpoint(config: Config) -> CheckpointFormat | None:
    """The checkpoint's format; None where it isn't quantised.

    Raises:
        InputError: a method, bit width or block that isn't known.
    """
    section = config.section("quantization_config") or config.section("compression_config")
    if section is None:
        return None
    made = READERS[_method(section)](section)
    updates = {
        "experts_only": made.experts_only or _spares_attention(section),
        "group_size": _group_size(section),
    }
    return made.model_copy(update=updates)


def _spares_attention(section: Config) -> bool:
    """The list of what stays unquantised names attention: only experts are quantised."""
    spared = section.items("modules_to_not_convert", "ignore", "ignored_layers") or ()
    return any("self_attn" in item for item in spared if isinstance(item, str))


def _group_size(section: Config) -> int | None:
    """Elements that share a scale; null, 0 and -1 leave it to the format."""
    size = section.optional("group_size", "q_group_size", low=-1, high=2**20)
    weights = _first_group(section)
    if size is None and weights is not None:
        size = weights.optional("group_size", low=-1, high=2**20)
    return size if size and size > 0 else None


def _first_group(section: Config) -> Config | None:
    """The weights of the first group (compressed-tensors)."""
    groups = section.section("config_groups")
    first = groups.section(next(iter(groups.data), "")) if groups else None
    return first.section("weights") if first else None


def _method(section: Config) -> str:
    """The method's name; older writers leave it out where other keys tell it."""
    default = ""
    if section.states("load_in_8bit", "load_in_4bit"):
        default = "bitsandbytes"
    elif section.states("quant_algo", "quantization"):
        default = "modelopt"
    return section.choice("quant_method", READERS, default=default)


def _fp8(section: Config) -> CheckpointFormat:
    block = section.integers("weight_block_size", low=1, high=2**14)
    if block is None:
        return CheckpointFormat(weights="fp8")
    if block != BLOCK:
        raise section.fault("weight_block_size", f"must be {BLOCK}, not {block}")
    return CheckpointFormat(weights="fp8_block")


def _integers(section: Config) -> CheckpointFormat:
    return _by_bits(section, section.integer("bits", "w_bit", default=4, high=64), "int")


def _mxfp4(section: Config) -> CheckpointFormat:
    return CheckpointFormat(weights="mxfp4", experts_only=True)


def _by_bits(section: Config, bits: int, kind: str) -> CheckpointFormat:
    known = {("int", 4): "int4", ("int", 8): "int8", ("float", 8): "fp8", ("float", 4): "nvfp4"}
    if (kind, bits) not in known:
        allowed = ", ".join(f"{name} of {width}" for name, width in known)
        key = "num_bits" if section.states("num_bits") else "bits"
        raise section.fault(key, f"{kind} of {bits} isn't supported; known: {allowed}")
    return CheckpointFormat(weights=known[kind, bits])


def _bitsandbytes(section: Config) -> CheckpointFormat:
    if section.flag("load_in_8bit", default=False):
        return CheckpointFormat(weights="int8")
    return CheckpointFormat(weights="int4")


def _compressed(section: Config) -> CheckpointFormat:
    weights = _first_group(section)
    if weights is None:
        raise section.fault("config_groups", "missing; its first group must describe weights")
    if (section.text("format") or "").startswith("mxfp4"):
        return CheckpointFormat(weights="mxfp4")
    kind = weights.choice("type", ("int", "float"), default="int")
    return _by_bits(weights, weights.integer("num_bits", high=64), kind)


def _modelopt(section: Config) -> CheckpointFormat:
    inner = section.section("quantization") or section
    algorithm = (inner.text("quant_algo", default="nvfp4") or "nvfp4").upper()
    if algorithm.startswith("FP8"):
        return CheckpointFormat(weights="fp8")
    if "NVFP4" in algorithm:
        return CheckpointFormat(weights="nvfp4")
    raise inner.fault("quant_algo", f"must be FP8 or NVFP4, not {algorithm!r}")


READERS: Mapping[str, Callable[[Config], CheckpointFormat]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "mxfp4": _mxfp4,
    "awq": _integers,
    "gptq": _integers,
    "compressed-tensors": _compressed,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "nvfp4": _modelopt,
    "bitsandbytes": _bitsandbytes,
}
