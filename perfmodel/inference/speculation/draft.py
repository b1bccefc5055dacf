"""The draft of a deployment: what runs, in which formats and layout, and what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.errors import InputError
from perfmodel.inference.format_choice import resolve_formats
from perfmodel.operators.context import Context, Step
from perfmodel.operators.draft import (
    join_operators,
    join_weights,
    medusa_operators,
    medusa_weights,
)
from perfmodel.operators.format_bytes import Formats
from perfmodel.operators.record import Operator
from perfmodel.operators.sharding import Parallel, check_parallel, local_layer
from perfmodel.operators.step import step_operators
from perfmodel.operators.stored_weights import stage_weight_bytes, stored_bytes
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.loading import load_model
from perfmodel.specs.model import Attention, DenseFfn, LatentAttention, Layer, Model, MoeFfn
from perfmodel.specs.speculation import Speculation
from perfmodel.specs.workload import Workload

JOINED = 2
"""Vectors that MTP modules and EAGLE take per token: an embedding and a hidden state."""
INPUT_NORMS = 2


@dataclass(frozen=True, slots=True)
class Draft:
    """What drafts. ``net`` runs once per depth; Medusa's heads run together; a lookup is free."""

    speculation: Speculation
    target: Model
    net: Model | None
    """A model of the draft's layers; None for Medusa, n-grams and lookahead."""
    joined: int
    """Vectors of the hidden width that enter the net per token; 0: a token alone."""
    input_norms: int
    formats: Formats
    parallel: Parallel
    notes: tuple[str, ...]

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The net's layers with the sizes of one GPU."""
        layers = () if self.net is None else self.net.layers
        return tuple(local_layer(layer, self.parallel) for layer in layers)

    @property
    def per_pass(self) -> Model | None:
        """What one pass runs: MTP modules take turns, or the only one repeats."""
        if self.net is None or self.speculation.method != "mtp":
            return self.net
        return self.net.model_copy(update={"layers": self.net.layers[:1]})

    @property
    def weights_bytes(self) -> float:
        """Weight bytes that the draft adds on one GPU.

        MTP modules and EAGLE read the target's embedding and head.
        """
        if self.speculation.method == "medusa":
            heads = medusa_weights(self.target, self.speculation.depth, self.parallel)
            return stored_bytes(heads, self.formats)
        if self.net is None:
            return 0.0
        own = not self.joined
        total = stage_weight_bytes(
            self.net, self.layers, self.formats, self.parallel, first=own, last=own
        )
        if self.joined:
            modules = len(self.net.layers) if self.speculation.method == "mtp" else 1
            joins = join_weights(self.net, self.joined, self.input_norms)
            total += modules * stored_bytes(joins, self.formats)
        return total

    def operators(self, step: Step, deployment: Deployment) -> tuple[Operator, ...]:
        """One pass of the net over ``step``, or one of Medusa's heads."""
        if self.speculation.method == "medusa":
            m = self.target
            c = Context(step, self.formats, self.parallel, m.hidden, m.norm)
            return tuple(medusa_operators(m, c))
        net = self.per_pass
        if net is None:
            return ()
        return self.join(step) + step_operators(
            net,
            step,
            self.formats,
            self.parallel,
            fused_attention=deployment.attention != "unfused",
            fusion=deployment.fusion,
        )

    def join(self, step: Step) -> tuple[Operator, ...]:
        """What joins the inputs of a step's tokens."""
        if self.net is None or not self.joined:
            return ()
        c = Context(step, self.formats, self.parallel, self.net.hidden, self.net.norm)
        return tuple(join_operators(self.net, self.joined, self.input_norms, c))


def _mtp_net(model: Model) -> Model:
    if model.mtp is None:
        raise InputError(
            f"--speculative-method: {model.name} has no MTP modules; draft, eagle, medusa or "
            "ngram need none"
        )
    name = f"{model.name} MTP"
    return model.model_copy(update={"name": name, "layers": model.mtp.layers, "mtp": None})


def _eagle_net(model: Model) -> Model:
    """EAGLE's own layer: one like the target's last that attends (arXiv 2401.15077, section 4)."""
    attending = [x for x in model.layers if isinstance(x.mixer, Attention | LatentAttention)]
    if not attending or not isinstance(attending[-1].ffn, DenseFfn):
        raise InputError(
            f"--draft-model: {model.name} has no dense layer for EAGLE to be like; give the "
            "config.json of its EAGLE head"
        )
    update = {"name": f"{model.name} EAGLE", "layers": (attending[-1],), "mtp": None}
    return model.model_copy(update=update | {"checkpoint": None})


def _loaded(model: Model, name: str, *, joins: bool) -> Model:
    try:
        net = load_model(name)
    except InputError as error:
        raise InputError(f"--draft-model: {error}") from None
    if net.vocab != model.vocab:
        raise InputError(
            f"--draft-model: {net.name} has a vocabulary of {net.vocab:,} tokens and "
            f"{model.name} one of {model.vocab:,}; take a draft of the same family"
        )
    if joins and net.hidden != model.hidden:
        raise InputError(
            f"--draft-model: {net.name} is {net.hidden:,} wide and {model.name} "
            f"{model.hidden:,}; EAGLE reads the target's hidden states"
        )
    return net


def _net(model: Model, speculation: Speculation) -> Model | None:
    name = speculation.draft_model
    if speculation.method == "mtp":
        return _mtp_net(model)
    if speculation.method == "eagle":
        return _eagle_net(model) if name is None else _loaded(model, name, joins=True)
    return None if name is None else _loaded(model, name, joins=False)


def _check_case(
    model: Model, workload: Workload, deployment: Deployment, s: Speculation, parallel: Parallel
) -> None:
    if deployment.kv_offload or deployment.cpu_offload_gb:
        flag = "--kv-offload" if deployment.kv_offload else "--cpu-offload-gb"
        raise InputError(
            f"{flag}: not with speculative decoding; leave it or --speculative-method out"
        )
    if parallel.pp > 1:
        raise InputError(
            f"--pp: {parallel.pp} stages with speculative decoding, which engines don't combine; "
            "use --tp, or leave --speculative-method out"
        )
    if np.all(np.asarray(workload.output) < 2):
        raise InputError(
            "--output: 1 token comes out of the prefill and leaves none to speculate on; ask for 2"
        )
    recurrent = any(
        x.mixer is not None and not isinstance(x.mixer, Attention | LatentAttention)
        for x in model.layers
    )
    if recurrent and any(nodes > 1 for nodes in s.levels):
        raise InputError(
            f"--tree: {model.name} has recurrent layers, whose states follow one chain; "
            "use --num-speculative-tokens"
        )


def _notes(s: Speculation) -> Iterator[str]:
    if s.draft_cost is not None:
        yield (
            f"the draft's cost is stated: each token adds {s.draft_cost:g} of a plain step, "
            "whatever the batch"
        )
        return
    if s.method in ("ngram", "lookahead"):
        yield "looking up n-grams on the host is taken as free: assumed"
    elif s.method != "medusa" and s.depth:
        yield "a draft's pass takes the host's time per layer and none per step: assumed"
    if s.acceptance is not None and any(children > 1 for children in s.branching):
        yield "alternatives in the tree are accepted independently, at the same rate: assumed"


def resolve_draft(
    model: Model,
    hardware: Hardware,
    workload: Workload,
    deployment: Deployment,
    formats: Formats,
    parallel: Parallel,
) -> Draft | None:
    """The draft of ``deployment``; None without speculation.

    Args:
        model: the target.
        hardware: whose arithmetic the draft's formats come to.
        workload: must ask for tokens after the first.
        deployment: with the speculation and the cache's format.
        formats: the target's, which MTP modules share unless stated otherwise.
        parallel: the target's layout, which the draft shares.

    Raises:
        InputError: a method, draft or layout that doesn't go with the model.
    """
    s = deployment.speculation
    if s is None:
        return None
    _check_case(model, workload, deployment, s, parallel)
    net = _net(model, s)
    experts = net is not None and any(isinstance(x.ffn, MoeFfn) for x in net.layers)
    layout = replace(parallel, ep=parallel.ep if experts else 1)
    if net is not None:
        check_parallel(net, layout)
    own = formats
    if s.method != "mtp" or s.draft_weights != "auto":
        wanted = Deployment(weights=s.draft_weights, kv_cache=formats.cache.name)
        plain = model.model_copy(update={"checkpoint": None})
        own, _, _ = resolve_formats(net or plain, hardware, wanted)
    joins = s.method in ("mtp", "eagle")
    return Draft(
        speculation=s,
        target=model,
        net=net,
        joined=JOINED if joins else 0,
        input_norms=INPUT_NORMS if s.method == "mtp" else 0,
        formats=own,
        parallel=layout,
        notes=tuple(_notes(s)),
    )
