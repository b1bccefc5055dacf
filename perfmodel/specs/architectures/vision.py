"""Parameters of vision towers and of the projectors that lead to the text model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfmodel.specs.architectures.config import MAX_LAYERS, Config
from perfmodel.specs.architectures.encoders import SIGLIP, block, encoder, linear, siglip

Tower = Callable[[Config, Config, int], int]
"""From the whole config, the vision section and the text model's width to a count."""
MAX_MERGE = 64


def gemma3(config: Config, vision: Config, hidden: int) -> int:
    """SigLIP, an RMSNorm over its width and a bias-free projection."""
    width = vision.integer("hidden_size", default=SIGLIP["hidden_size"])
    return siglip(vision) + width + width * hidden


def paligemma(config: Config, vision: Config, hidden: int) -> int:
    """SigLIP and one projection."""
    width = vision.integer("hidden_size", default=SIGLIP["hidden_size"])
    return siglip(vision) + linear(width, vision.integer("projection_dim", default=hidden))


def llava(config: Config, vision: Config, hidden: int) -> int:
    """Any encoder and a two-layer projector from one of its layers (or several)."""
    tower = encoder(vision)
    bias = config.flag("multimodal_projector_bias", default=True)
    layers = config.data.get("vision_feature_layer")
    taken = len(layers) if isinstance(layers, list) and layers else 1
    width = vision.integer("hidden_size") * taken
    return tower + linear(width, hidden, bias) + linear(hidden, hidden, bias)


def llava_next(config: Config, vision: Config, hidden: int) -> int:
    """Llava's parts, and the vector that ends a row of patches."""
    return llava(config, vision, hidden) + hidden


def mistral3(config: Config, vision: Config, hidden: int) -> int:
    """Pixtral's encoder, a norm, a merger of patches and a two-layer projector."""
    bias = config.flag("multimodal_projector_bias", default=False)
    width = vision.integer("hidden_size", default=1024)
    merged = width * config.integer("spatial_merge_size", default=2, high=MAX_MERGE) ** 2
    projector = linear(width, hidden, bias) + linear(hidden, hidden, bias)
    return encoder(vision) + width + merged * width + projector


def llama4(config: Config, vision: Config, hidden: int) -> int:
    """Llama-4: class token, learned positions, blocks, a pixel-shuffle MLP, a projection."""
    width = vision.integer("hidden_size", default=768)
    patch = vision.integer("patch_size", default=14)
    positions = (vision.integer("image_size", default=448) // patch) ** 2 + 1
    inner = vision.integer("intermediate_size", default=5632)
    layers = vision.integer("num_hidden_layers", default=34, high=MAX_LAYERS) * block(width, inner)
    embedding = vision.integer("num_channels", default=3) * patch**2 * width
    norms = 4 * width  # before and after the blocks
    projected = vision.integer("projector_output_dim", default=4096)
    adapter = inner * vision.integer("projector_input_dim", default=4096) + projected**2
    out = vision.integer("vision_output_dim", default=7680)
    return embedding + (positions + 1) * width + layers + norms + adapter + out * hidden


def qwen2(config: Config, vision: Config, hidden: int) -> int:
    """Qwen2-VL: bias-free 3-D patches, blocks with LayerNorm, a patch merger."""
    width = vision.integer("embed_dim", default=1280)
    inner = int(width * vision.number("mlp_ratio", default=4, low=0.1, high=64))
    blocks = vision.integer("depth", default=32, high=MAX_LAYERS) * block(width, inner)
    out = vision.integer("hidden_size", default=3584)
    return qwen_patches(vision, 14) * width + blocks + 2 * width + qwen_merger(vision, width, out)


def qwen2_5(config: Config, vision: Config, hidden: int) -> int:
    """Qwen2.5-VL: as Qwen2-VL with RMSNorm and a gated MLP."""
    width = vision.integer("hidden_size", default=3584)
    inner = vision.integer("intermediate_size", default=3420)
    mlp = 2 * linear(width, inner) + linear(inner, width)
    blocks = 2 * width + 4 * linear(width, width) + mlp
    depth = vision.integer("depth", default=32, high=MAX_LAYERS)
    merger = qwen_merger(vision, width, vision.integer("out_hidden_size", default=3584))
    return qwen_patches(vision, 14) * width + depth * blocks + width + merger


def qwen3(config: Config, vision: Config, hidden: int) -> int:
    """Qwen3-VL and Qwen3.5: 3-D patches, learned positions, blocks, patch mergers."""
    width = vision.integer("hidden_size", default=1152)
    inner = vision.integer("intermediate_size", default=4304)
    embedding = linear(qwen_patches(vision, 16), width)
    positions = vision.integer("num_position_embeddings", default=2304) * width
    layers = vision.integer("depth", default=27, high=MAX_LAYERS) * block(width, inner)
    merger = qwen_merger(vision, width, vision.integer("out_hidden_size", default=3584))
    # The mergers of inner layers (deep stack) normalise after merging, the last one before.
    merged = width * qwen_merge(vision)
    inner_mergers = qwen3_deepstack(config, vision) * (2 * merged + merger)
    return embedding + positions + layers + 2 * width + merger + inner_mergers


def qwen3_deepstack(config: Config, vision: Config) -> int:
    """How many inner layers feed the text model: three in Qwen3-VL, none in Qwen3.5."""
    if (config.text("model_type") or "").startswith("qwen3_5"):
        return 0
    stated = vision.integers("deepstack_visual_indexes")
    return 3 if stated is None else len(stated)


def qwen_patches(vision: Config, patch: int) -> int:
    """Numbers in one 3-D patch."""
    side = vision.integer("patch_size", default=patch)
    channels = vision.integer("in_channels", "in_chans", default=3)
    return channels * side**2 * vision.integer("temporal_patch_size", default=2)


def qwen_merge(vision: Config) -> int:
    """Patches that are joined into one token."""
    return vision.integer("spatial_merge_size", default=2, high=MAX_MERGE) ** 2


def qwen_merger(vision: Config, width: int, out: int) -> int:
    """The MLP that joins neighbouring patches, its norm apart."""
    merged = width * qwen_merge(vision)
    return linear(merged, merged) + linear(merged, out)


TOWERS: Mapping[str, Tower] = {
    "gemma3": gemma3,
    "llama4": llama4,
    "llava": llava,
    "llava_next": llava_next,
    "mistral3": mistral3,
    "paligemma": paligemma,
    "qwen2_5_vl": qwen2_5,
    "qwen2_vl": qwen2,
    "qwen3_5": qwen3,
    "qwen3_5_moe": qwen3,
    "qwen3_vl": qwen3,
    "qwen3_vl_moe": qwen3,
}


def vision_parameters(config: Config, kind: str, hidden: int) -> int:
    """Parameters of the tower and its projector; 0 where the config describes none."""
    vision = config.section("vision_config")
    return 0 if vision is None else TOWERS[kind](config, vision, hidden)
