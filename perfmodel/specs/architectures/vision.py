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


SIGLIP = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 16,
}


def siglip(vision: Config, head: bool = True) -> int:
    """SigLIP's encoder: patches, learned positions, blocks, a norm, and a pooling head if any."""
    size = {key: vision.integer(key, default=value) for key, value in SIGLIP.items()}
    width, inner = size["hidden_size"], size["intermediate_size"]
    patches = (size["image_size"] // size["patch_size"]) ** 2
    embedding = linear(size["num_channels"] * size["patch_size"] ** 2, width)
    layers = size["num_hidden_layers"] * block(width, inner)
    # The head: a probe that attends to all patches, a norm and an MLP.
    pooling = width + block(width, inner) - 2 * width
    has_head = head and vision.flag("vision_use_head", default=True)
    return embedding + patches * width + layers + 2 * width + (pooling if has_head else 0)


def gemma3(config: Config, vision: Config, hidden: int) -> int:
    """SigLIP, an RMSNorm over its width and a bias-free projection."""
    width = vision.integer("hidden_size", default=SIGLIP["hidden_size"])
    return siglip(vision) + width + width * hidden


def paligemma(config: Config, vision: Config, hidden: int) -> int:
    """SigLIP without its head, and one projection."""
    width = vision.integer("hidden_size", default=SIGLIP["hidden_size"])
    return siglip(vision, head=False) + linear(width, hidden)


def clip(vision: Config) -> int:
    """CLIP's encoder: class token, patches, learned positions, blocks, two norms."""
    width = vision.integer("hidden_size", default=1024)
    patch = vision.integer("patch_size", default=14)
    positions = (vision.integer("image_size", default=336) // patch) ** 2 + 1
    layers = vision.integer("num_hidden_layers", default=24, high=4096)
    blocks = layers * block(width, vision.integer("intermediate_size", default=4096))
    pixels = vision.integer("num_channels", default=3) * patch**2
    return width + pixels * width + positions * width + blocks + 4 * width


def pixtral(vision: Config) -> int:
    """Pixtral's encoder: bias-free patches and blocks with a gated MLP, RMSNorms, 2-D rotary."""
    width = vision.integer("hidden_size", default=1024)
    pixels = (
        vision.integer("num_channels", default=3) * vision.integer("patch_size", default=16) ** 2
    )
    inner = vision.integer("intermediate_size", default=4096)
    layers = vision.integer("num_hidden_layers", default=24, high=4096)
    return pixels * width + width + layers * (2 * width + 4 * width**2 + 3 * width * inner)


ENCODERS: Mapping[str, Callable[[Config], int]] = {
    "clip_vision_model": clip,
    "siglip_vision_model": lambda vision: siglip(vision),
    "pixtral": pixtral,
}


def encoder(vision: Config, default: str) -> int:
    """The encoder that ``vision_config`` names.

    Raises:
        InputError: one that isn't known.
    """
    return ENCODERS[vision.choice("model_type", ENCODERS, default=default)](vision)


def llava(config: Config, vision: Config, hidden: int) -> int:
    """Any encoder and a two-layer projector."""
    bias = config.flag("multimodal_projector_bias", default=True)
    count = (
        len(config.data["vision_feature_layer"])
        if isinstance(config.data.get("vision_feature_layer"), list)
        else 1
    )
    width = vision.integer("hidden_size", default=1024) * count
    projector = linear(width, hidden, bias) + linear(hidden, hidden, bias)
    return encoder(vision, "clip_vision_model") + projector


def mistral3(config: Config, vision: Config, hidden: int) -> int:
    """Pixtral's encoder, a norm, a merger of patches and a two-layer projector."""
    bias = config.flag("multimodal_projector_bias", default=False)
    width = vision.integer("hidden_size", default=1024)
    merged = width * config.integer("spatial_merge_size", default=2, high=64) ** 2
    projector = linear(width, hidden, bias) + linear(hidden, hidden, bias)
    return encoder(vision, "pixtral") + width + merged * width + projector


def qwen2(config: Config, vision: Config, hidden: int) -> int:
    """Qwen2-VL's tower: bias-free 3-D patches, blocks with LayerNorm, a patch merger."""
    width = vision.integer("embed_dim", default=1280)
    inner = int(width * vision.number("mlp_ratio", default=4, high=64))
    blocks = vision.integer("depth", default=32, high=4096) * block(width, inner)
    out = vision.integer("hidden_size", default=3584)
    return qwen_patches(vision, 14) * width + blocks + 2 * width + qwen_merger(vision, width, out)


def qwen2_5(config: Config, vision: Config, hidden: int) -> int:
    """Qwen2.5-VL's tower: as Qwen2-VL's with RMSNorm and a gated MLP."""
    width = vision.integer("hidden_size", default=3584)
    inner = vision.integer("intermediate_size", default=3420)
    mlp = 2 * linear(width, inner) + linear(inner, width)
    blocks = 2 * width + 4 * linear(width, width) + mlp
    depth = vision.integer("depth", default=32, high=4096)
    merger = qwen_merger(vision, width, vision.integer("out_hidden_size", default=3584))
    return qwen_patches(vision, 14) * width + depth * blocks + width + merger


def qwen_patches(vision: Config, patch: int) -> int:
    """Numbers in one 3-D patch."""
    side = vision.integer("patch_size", default=patch)
    channels = vision.integer("in_channels", "in_chans", default=3)
    return channels * side**2 * vision.integer("temporal_patch_size", default=2)


def qwen_merger(vision: Config, width: int, out: int) -> int:
    """The MLP that joins neighbouring patches, its norm apart."""
    merged = width * vision.integer("spatial_merge_size", default=2, high=64) ** 2
    return linear(merged, merged) + linear(merged, out)


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
    embedding = linear(qwen_patches(vision, 16), width)
    positions = vision.integer("num_position_embeddings", default=2304) * width
    layers = vision.integer("depth", default=27, high=4096) * block(width, inner)
    merged = width * vision.integer("spatial_merge_size", default=2, high=64) ** 2
    projections = qwen_merger(vision, width, vision.integer("out_hidden_size", default=3584))
    main = 2 * width + projections
    return embedding + positions + layers + main + deepstack(vision) * (2 * merged + projections)


def deepstack(vision: Config) -> int:
    """Mergers of Qwen3-VL's inner layers, which normalise after merging (Qwen3.5 has none)."""
    if vision.text("model_type", default="") in ("qwen3_5", "qwen3_5_moe"):
        return 0
    return len(vision.integers("deepstack_visual_indexes") or ())


TOWERS: Mapping[str, Tower] = {
    "gemma3": gemma3,
    "llama4": llama4,
    "llava": llava,
    "mistral3": mistral3,
    "paligemma": paligemma,
    "qwen2_vl": qwen2,
    "qwen2_5_vl": qwen2_5,
    "qwen3_vl": qwen3,
    "qwen3_vl_moe": qwen3,
    "qwen3_5": qwen3,
    "qwen3_5_moe": qwen3,
}


def vision_parameters(config: Config, kind: str, hidden: int) -> int:
    """Parameters of the tower and its projector; 0 where the config describes none."""
    vision = config.section("vision_config")
    return 0 if vision is None else TOWERS[kind](config, vision, hidden)
