"""Parameters of vision towers and of the projectors that lead to the text model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfmodel.specs.architectures.config import Config

Tower = Callable[[Config, Config, int], int]
"""From the whole config, the vision section and the text model's width to a count."""


def linear(inputs: int, outputs: int, bias: bool = True) -> int:
    """Elements of a matrix and its bias."""
    return inputs * outputs + (outputs if bias else 0)


def block(hidden: int, width: int, bias: bool = True) -> int:
    """A pre-norm encoder layer: two LayerNorms, four projections, a two-matrix MLP."""
    attention = 4 * linear(hidden, hidden, bias)
    return 4 * hidden + attention + linear(hidden, width, bias) + linear(width, hidden, bias)


def siglip(vision: Config, defaults: Mapping[str, int]) -> int:
    """SigLIP's encoder without its pooling head: patches, learned positions, blocks, a norm."""
    size = {key: vision.integer(key, default=value) for key, value in defaults.items()}
    hidden = size["hidden_size"]
    patches = (size["image_size"] // size["patch_size"]) ** 2
    embedding = linear(size["num_channels"] * size["patch_size"] ** 2, hidden)
    layers = size["num_hidden_layers"] * block(hidden, size["intermediate_size"])
    return embedding + patches * hidden + layers + 2 * hidden


SIGLIP = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 16,
}


def gemma3(config: Config, vision: Config, hidden: int) -> int:
    """SigLIP, an RMSNorm over its width and a bias-free projection."""
    width = vision.integer("hidden_size", default=SIGLIP["hidden_size"])
    return siglip(vision, SIGLIP) + width + width * hidden


def llama4(config: Config, vision: Config, hidden: int) -> int:
    """Llama-4's tower: class token, learned positions, blocks, a pixel-shuffle MLP, a projection."""
    width = vision.integer("hidden_size", default=768)
    patch = vision.integer("patch_size", default=14)
    patches = (vision.integer("image_size", default=448) // patch) ** 2 + 1
    inner = vision.integer("intermediate_size", default=5632)
    layers = vision.integer("num_hidden_layers", default=34, high=4096) * block(width, inner)
    embedding = vision.integer("num_channels", default=3) * patch**2 * width
    norms = 4 * width  # before and after the blocks
    projected = vision.integer("projector_output_dim", default=4096)
    adapter = inner * vision.integer("projector_input_dim", default=4096) + projected**2
    out = vision.integer("vision_output_dim", default=7680)
    return embedding + (patches + 1) * width + layers + norms + adapter + out * hidden


def qwen3(config: Config, vision: Config, hidden: int) -> int:
    """Qwen3-VL's and Qwen3.5's tower: 3-D patches, learned positions, blocks, patch mergers."""
    width = vision.integer("hidden_size", default=1152)
    inner = vision.integer("intermediate_size", default=4304)
    pixels = vision.integer("in_channels", default=3) * vision.integer("patch_size", default=16)
    pixels *= vision.integer("patch_size", default=16)
    embedding = linear(pixels * vision.integer("temporal_patch_size", default=2), width)
    positions = vision.integer("num_position_embeddings", default=2304) * width
    layers = vision.integer("depth", default=27, high=4096) * block(width, inner)
    merged = width * vision.integer("spatial_merge_size", default=2) ** 2
    out = vision.integer("out_hidden_size", default=3584)
    projections = linear(merged, merged) + linear(merged, out)
    main = 2 * width + projections
    # Deep-stack mergers (Qwen3-VL) normalise after merging; Qwen3.5 has none of them.
    deep = len(vision.integers("deepstack_visual_indexes") or ()) * (2 * merged + projections)
    return embedding + positions + layers + main + deep


TOWERS: Mapping[str, Tower] = {
    "gemma3": gemma3,
    "llama4": llama4,
    "qwen3_5": qwen3,
    "qwen3_5_moe": qwen3,
}


def vision_parameters(config: Config, kind: str, hidden: int) -> int:
    """Parameters of the tower and its projector; 0 where the config describes none."""
    vision = config.section("vision_config")
    return 0 if vision is None else TOWERS[kind](config, vision, hidden)
