"""The walk from a model and a step to the operators that one GPU executes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from perfmodel.operators.context import HALF, Context, Step
from perfmodel.operators.feed_forward import dense_operators, moe_operators
from perfmodel.operators.format_bytes import Formats, matrix_bytes
from perfmodel.operators.fusion import Fusion
from perfmodel.operators.mixers import attention_operators, latent_operators, named
from perfmodel.operators.quantity import ceil_div
from perfmodel.operators.record import Operator
from perfmodel.operators.recurrent import delta_operators, mamba1_operators, mamba2_operators
from perfmodel.operators.sharding import Parallel, local_layer, stage_layers
from perfmodel.operators.weights import Weight, embedding_weights, head_weights, norm_elements
from perfmodel.specs.model import (
    Attention,
    DenseFfn,
    Ffn,
    GatedDeltaNet,
    LatentAttention,
    Layer,
    Mamba1,
    Mamba2,
    Mixer,
    Model,
    MoeFfn,
)

UNQUANTISED = Formats()
ONE_GPU = Parallel()


def _mixer_operators(mixer: Mixer, c: Context) -> Iterator[Operator]:
    if isinstance(mixer, Attention):
        yield from attention_operators(mixer, c)
    elif isinstance(mixer, LatentAttention):
        yield from latent_operators(mixer, c)
    elif isinstance(mixer, GatedDeltaNet):
        yield from delta_operators(mixer, c)
    elif isinstance(mixer, Mamba2):
        yield from mamba2_operators(mixer, c)
    elif isinstance(mixer, Mamba1):
        yield from mamba1_operators(mixer, c)


def _ffn_operators(ffn: Ffn, c: Context) -> Iterator[Operator]:
    if isinstance(ffn, DenseFfn):
        yield from dense_operators(ffn, c)
    elif isinstance(ffn, MoeFfn):
        yield from moe_operators(ffn, c)


def _norm_operators(layers: tuple[Layer, ...], c: Context) -> Iterator[Operator]:
    """Norms; each residual addition is fused into one, as engines do."""
    fused = plain = additions = 0
    for layer in layers:
        blocks = (layer.mixer is not None) + (layer.ffn is not None)
        adds = 1 if layer.parallel else blocks
        joined = min(layer.norms, adds)
        fused += joined
        plain += layer.norms - joined
        additions += adds - joined
    if c.fusion == "none":
        fused, plain, additions = 0, plain + fused, additions + fused
    row = HALF * c.hidden
    weight_bytes = HALF * norm_elements(c.norm, c.hidden)
    tokens = ceil_div(c.tokens, c.parallel.tp) if c.parallel.sequence_parallel else c.tokens
    if fused:
        yield c.times(fused).elementwise(
            "norm_residual", 2 * row, 2 * row, tokens, weight_bytes=weight_bytes
        )
    if plain:
        yield c.times(plain).elementwise("norm", row, row, tokens, weight_bytes=weight_bytes)
    if additions:
        yield c.times(additions).elementwise("residual", 2 * row, row, tokens)


def _layer_operators(layers: tuple[Layer, ...], c: Context) -> Iterator[Operator]:
    """Blocks that are equal stand once in the list, with their count."""
    yield from _norm_operators(layers, c)
    mixers = Counter(
        (layer.mixer, layer.parallel, layer.mixer_stored)
        for layer in layers
        if layer.mixer is not None
    )
    for (mixer, parallel, stored), count in mixers.items():
        here = c.times(count).storing(stored)
        yield from _mixer_operators(mixer, here)
        if not parallel:  # a parallel block's one all-reduce follows its feed-forward part
            yield from here.all_reduce("mixer")
    blocks = Counter((layer.ffn, layer.ffn_stored) for layer in layers if layer.ffn is not None)
    for (ffn, stored), count in blocks.items():
        here = c.times(count).storing(stored)
        yield from _ffn_operators(ffn, here)
        whole = isinstance(ffn, MoeFfn) and ffn.shared is None
        if whole and c.parallel.expert_replicas > 1:  # each rank got its tokens' sums back
            yield from here.all_gather("ffn")
        else:
            yield from here.all_reduce("ffn")


def _embedding_operators(model: Model, c: Context) -> Iterator[Operator]:
    weights = named(embedding_weights(model))
    width = model.embedding_width or model.hidden
    row = matrix_bytes(c.formats.of_role("embedding"), width, 1)
    rows = row + (HALF * model.hidden if model.position_rows else 0)
    yield c.elementwise("embedding", rows, HALF * width)
    if model.embedding_width:
        yield from c.linear(weights["embedding_in"])
    if model.embedding_norms:
        row = HALF * model.hidden
        norm = c.vectors(weights["embedding_norm"])
        yield c.elementwise("embedding_norm", row, row, weight_bytes=norm)
    yield from c.all_reduce("embedding")


def _head_operators(model: Model, c: Context) -> Iterator[Operator]:
    weights = named(head_weights(model))
    if model.final_norm:
        row = HALF * model.hidden
        norm = c.vectors(weights["final_norm"])
        if c.fusion == "none":
            yield c.elementwise("final.residual", 2 * row, row)
            yield c.elementwise("final.norm", row, row, weight_bytes=norm)
        else:
            yield c.elementwise("final_norm", 2 * row, row, weight_bytes=norm)
    if not model.head:
        return
    rows = c.step.logit_rows
    if model.embedding_width:
        yield from c.linear(named(embedding_weights(model))["embedding_out"], rows)
    tp = c.parallel.tp
    columns = int(ceil_div(model.vocab, tp))
    width = model.embedding_width or model.hidden
    head = Weight("lm_head", "head", width, columns, columns if model.head_bias else 0)
    yield from c.linear(head, rows)
    yield from c.across_tp("lm_head", "all_gather", HALF * model.vocab * rows)
    yield c.elementwise("sampling", HALF * model.vocab, 4.0, rows)


def body_operators(
    model: Model,
    step: Step,
    formats: Formats = UNQUANTISED,
    parallel: Parallel = ONE_GPU,
    *,
    fused_attention: bool = True,
    stage: int | None = None,
    fusion: Fusion = "engine",
) -> tuple[Operator, ...]:
    """Embedding, layers and the exchanges between stages; see `step_operators`.

    ``stage``: what one pipeline stage of them executes; None: all stages, one after the other.
    """
    c = Context(
        step,
        formats,
        parallel,
        model.hidden,
        model.norm,
        fused_attention,
        model.state_dtype,
        fusion,
    )
    own = model.layers if stage is None else stage_layers(model, parallel.pp)[stage]
    layers = tuple(local_layer(layer, parallel) for layer in own)
    operators = [] if stage else [*_embedding_operators(model, c)]
    operators += _layer_operators(layers, c)
    sends = parallel.pp - 1 if stage is None else int(stage < parallel.pp - 1)
    if sends:
        message = HALF * model.hidden * c.tokens
        gpus = parallel.tp * parallel.cp * parallel.pp
        hand_over = c.times(sends)
        exchange = hand_over.collective(
            "stage.send_recv", "send_recv", message, 2, gpus, stages=parallel.pp
        )
        operators.extend(hand_over.sent(exchange))
    return tuple(operators)


def head_operators(
    model: Model,
    step: Step,
    formats: Formats = UNQUANTISED,
    parallel: Parallel = ONE_GPU,
    *,
    fusion: Fusion = "engine",
) -> tuple[Operator, ...]:
    """Final norm, LM head and sampling of the tokens whose logits are needed."""
    c = Context(step, formats, parallel, model.hidden, model.norm, fusion=fusion)
    return tuple(_head_operators(model, c))


def step_operators(
    model: Model,
    step: Step,
    formats: Formats = UNQUANTISED,
    parallel: Parallel = ONE_GPU,
    *,
    fused_attention: bool = True,
    stage: int | None = None,
    fusion: Fusion = "engine",
) -> tuple[Operator, ...]:
    """The operators of one step of one replica, along its pipeline stages.

    Sizes are those of one GPU of each stage; ``step`` counts one replica's sequences.
    ``stage``: one pipeline stage alone, the head with the last.

    Raises:
        InputError: a layout that the model can't take (`sharding.check_parallel` says why).
    """
    body = body_operators(
        model,
        step,
        formats,
        parallel,
        fused_attention=fused_attention,
        stage=stage,
        fusion=fusion,
    )
    if stage is not None and stage < parallel.pp - 1:
        return body
    return body + head_operators(model, step, formats, parallel, fusion=fusion)
