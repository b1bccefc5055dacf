"""Settings of the KV store that don't go together, or that a model or device can't take."""

from __future__ import annotations

import numpy as np

from perfmodel.errors import InputError
from perfmodel.inference.offload import rate_to
from perfmodel.operators.cache import layer_state, layer_window, token_bytes
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.engine import Engine
from perfmodel.specs.hardware import Hardware
from perfmodel.specs.model import LatentAttention, Model
from perfmodel.specs.workload import Workload


def check_kv_store(
    model: Model, hardware: Hardware, workload: Workload, deployment: Deployment, engine: Engine
) -> None:
    """Refuse what engines don't combine.

    Raises:
        InputError: one line that names the flag, its value and what would do.
    """
    _check_eviction(model, workload, deployment, engine)
    _check_manager(model, workload, deployment, engine)
    _check_offload(model, hardware, deployment)


def _eviction_flag(deployment: Deployment) -> str | None:
    """The flag by which full attention forgets tokens, with its value."""
    if deployment.kv_window is not None:
        return f"--kv-window {deployment.kv_window}"
    return None if deployment.kv_budget is None else f"--kv-budget {deployment.kv_budget}"


def _check_eviction(
    model: Model, workload: Workload, deployment: Deployment, engine: Engine
) -> None:
    flag = _eviction_flag(deployment)
    if deployment.kv_sinks is not None and deployment.kv_window is None:
        raise InputError(
            f"--kv-sinks {deployment.kv_sinks}: sinks are kept beside a window; add --kv-window"
        )
    if flag is None:
        return
    if deployment.kv_window is not None and deployment.kv_budget is not None:
        raise InputError(f"{flag}: a cache has one policy; leave out --kv-budget or --kv-window")
    mixers = {layer.mixer for layer in model.layers}
    if any(isinstance(mixer, LatentAttention) for mixer in mixers):
        raise InputError(f"{flag}: {model.name} keeps latents (MLA), which engines don't evict")
    if any(any(layer_state(mixer)) for mixer in mixers):
        raise InputError(
            f"{flag}: {model.name} has recurrent layers; engines evict in models of attention alone"
        )
    if not any(token_bytes(m) and layer_window(m) is None for m in mixers):
        raise InputError(f"{flag}: every layer of {model.name} has a window already")
    if np.any(np.asarray(workload.cached_prefix) > 0):
        raise InputError(
            f"{flag}: evicted tokens can't serve another prompt; leave out --cached-prefix"
        )
    chunk = workload.prefill_chunk or engine.kernels.micro_batch_tokens
    if deployment.kv_budget is not None and chunk is not None:
        whose = "--prefill-chunk" if workload.prefill_chunk else f"--engine {engine.name}"
        raise InputError(
            f"{flag}: what to keep is known when the whole prompt is read at once, not in "
            f"chunks of {chunk}; leave out {whose}"
        )


def _check_manager(
    model: Model, workload: Workload, deployment: Deployment, engine: Engine
) -> None:
    layout = deployment.kv_layout or engine.kv_layout
    if workload.prefix_share is not None and layout == "contiguous":
        raise InputError(
            "--prefix-share: a contiguous cache shares nothing; use --kv-layout paged or flat"
        )
    if deployment.kv_manager == "ideal":
        return
    flag = f"--kv-manager {deployment.kv_manager}"
    if layout != "paged":
        raise InputError(f"{flag}: it hands out blocks; use --kv-layout paged, not {layout}")
    _check_shared(flag, deployment)
    evicts = _eviction_flag(deployment)
    if evicts is not None:
        raise InputError(f"{flag}: it keeps what {evicts} evicts; use --kv-manager ideal")
    states = any(any(layer_state(layer.mixer)) for layer in model.layers)
    attends = any(token_bytes(layer.mixer) for layer in model.layers)
    if deployment.kv_manager == "uniform" and states and attends:
        raise InputError(
            f"{flag}: states of {model.name} and keys don't fit one pool; use --kv-manager hybrid"
        )


def _check_shared(flag: str, deployment: Deployment) -> None:
    """Refuse what is told of one GPU's cache where several ranks share its tokens."""
    for name, ranks in (("--cp", deployment.cp), ("--dcp", deployment.dcp)):
        if ranks > 1:
            raise InputError(f"{flag}: not with a cache that {name} {ranks} shares; use {name} 1")


def _check_offload(model: Model, hardware: Hardware, deployment: Deployment) -> None:
    to_ssd = deployment.kv_offload_to == "ssd"
    if deployment.ssd_gb_s is not None and not to_ssd:
        raise InputError(
            f"--ssd-gb-s {deployment.ssd_gb_s:g}: nothing lies on an SSD; add --kv-offload-to ssd"
        )
    if to_ssd and deployment.ssd_gb_s is None:
        raise InputError(
            "--kv-offload-to ssd: no profile states an SSD's bandwidth; say it with --ssd-gb-s"
        )
    share, weights = deployment.kv_offload, deployment.cpu_offload_gb
    if share:
        _check_shared(f"--kv-offload {share:g}", deployment)
    if share and not any(token_bytes(layer.mixer) for layer in model.layers):
        raise InputError(f"--kv-offload {share:g}: {model.name} caches no keys and values")
    flag = f"--kv-offload {share:g}" if share else f"--cpu-offload-gb {weights:g}"
    if (share or weights) and rate_to("host", hardware, deployment) is None:
        raise InputError(
            f"{flag}: the profile of {hardware.name} has no way to the host; "
            "add pcie.gb_s_per_direction"
        )


def kv_notes(deployment: Deployment, engine: str) -> list[str]:
    """What a reader of the answer must know of the KV store's settings."""
    notes = []
    flag = _eviction_flag(deployment)
    if flag is not None:
        risk = (
            "answers that need the tokens between sinks and window get worse"
            if deployment.kv_window is not None
            else "answers that need an evicted token get worse"
        )
        notes.append(
            f"{flag}: {risk}, which no number here shows; {engine}'s kernels are priced as if they "
            "read the kept tokens alone"
        )
    if deployment.kv_offload or deployment.cpu_offload_gb:
        share = f"{100 * deployment.offload_overlap:.0f} %"
        notes.append(
            f"offload is priced at the nominal rate of its link, {share} of it beside the kernels"
        )
    return notes
