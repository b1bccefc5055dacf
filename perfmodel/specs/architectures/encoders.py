"""Parameters of vision encoders that several models share: SigLIP, CLIP, Pixtral."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfmodel.specs.architectures.config import MAX_LAYERS, Config

SIGLIP = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 16,
}


def linear(inputs: int, outputs: int, bias: bool = True) -> int:
    """Elements of a matrix and its bias."""
    return inputs * outputs + (outputs if bias else 0)


def block(width: int, inner: int) -> int:
    """A pre-norm encoder layer: two LayerNorms, four projections, a two-matrix MLP."""
    return 4 * width + 4 * linear(width, width) + linear(width, inner) + linear(inner, width)


def siglip(vision: Config) -> int:
    """SigLIP's encoder: patches, learned positions, blocks, a norm, and a pooling head if any."""
    size = {key: vision.integer(key, default=value) for key, value in SIGLIP.items()}
    width, inner = size["hidden_size"], size["intermediate_size"]
    patches = (size["image_size"] // size["patch_size"]) ** 2
    embedding = linear(size["num_channels"] * size["patch_size"] ** 2, width)
    layers = size["num_hidden_layers"] * block(width, inner)
    # The head: a probe that attends to all patches, one norm and an MLP.
    head = width + block(width, inner) - 2 * width
    has_head = vision.flag("vision_use_head", default=True)
    return embedding + patches * width + layers + 2 * width + (head if has_head else 0)


def clip(vision: Config) -> int:
    """CLIP's encoder: class token, bias-free patches, learned positions, blocks, two norms."""
    width = vision.integer("hidden_size", default=768)
    patch = vision.integer("patch_size", default=32)
    positions = (vision.integer("image_size", default=224) // patch) ** 2 + 1
    layers = vision.integer("num_hidden_layers", default=12, high=MAX_LAYERS)
    blocks = layers * block(width, vision.integer("intermediate_size", default=3072))
    pixels = vision.integer("num_channels", default=3) * patch**2
    return width + pixels * width + positions * width + blocks + 4 * width


def pixtral(vision: Config) -> int:
    """Pixtral's encoder: bias-free patches and blocks with a gated MLP, RMSNorms, 2-D rotary."""
    width = vision.integer("hidden_size", default=1024)
    pixels = vision.integer("num_channels", default=3)
    pixels *= vision.integer("patch_size", default=16) ** 2
    inner = vision.integer("intermediate_size", default=4096)
    layers = vision.integer("num_hidden_layers", default=24, high=MAX_LAYERS)
    return pixels * width + width + layers * (2 * width + 4 * width**2 + 3 * width * inner)


ENCODERS: Mapping[str, Callable[[Config], int]] = {
    "clip_vision_model": clip,
    "siglip_vision_model": siglip,
    "pixtral": pixtral,
}


def encoder(vision: Config) -> int:
    """Parameters of the encoder that ``vision_config`` names.

    Raises:
        InputError: one that isn't known.
    """
    return ENCODERS[vision.choice("model_type", ENCODERS, default="")](vision)
