"""What an engine adds to its kernels' time: work of the host, and kernels unlike the library's."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from perfmodel.specs.base import Spec

Microseconds = Annotated[float, Field(ge=0, le=1e6)]
Scale = Annotated[float, Field(ge=0.2, le=20)]
"""A factor on time: 1.2 is 20 % slower than the calibrated kernel."""
Spread = Annotated[float, Field(ge=1, le=20)]

EIGHT_BIT_LIMIT = 12.0
"""Bits per weight, scales included, below which a matrix counts as one of 8 bits."""
FOUR_BIT_LIMIT = 6.2
"""Bits per weight below which it counts as one of 4 (GGUF and EXL2 mixes reach 5.5)."""


class Host(Spec):
    """Time of the host in a step: Python, scheduler, sampling, what waits for them.

    A step takes max(kernels + serial, floor), with serial = step + layer · layers + sequence ·
    sequences, and floor = floor + floor_layer · layers, all times ``speed``.
    """

    step_us: Microseconds = 0.0
    """In every step, with nothing running on the device."""
    layer_us: Microseconds = 0.0
    """For each layer, beside the launches that the calibration's kernels carry themselves."""
    sequence_us: Microseconds = 0.0
    """For each sequence in the step: sampling, detokenising, block tables."""
    floor_us: Microseconds = 0.0
    """A step is never faster than this: the host needs it to issue the kernels."""
    floor_layer_us: Microseconds = 0.0
    """What each layer adds to the floor."""
    speed: Annotated[float, Field(ge=0.1, le=10)] = 1.0
    """Factor on all of these: 0.7 is a host that needs 0.7 of the time of the one fitted on."""
    spread: Spread = 2.0
    """True host times lie between time/spread and time·spread in about nine cases of ten."""
    source: str
    """What the numbers were fitted on, or ``assumed``."""


class GemmScale(Spec):
    """Matrix products of one weight width, relative to the calibrated kernels."""

    compute: Scale = 1.0
    """Where arithmetic limits."""
    memory: Scale = 1.0
    """Where reading the weights limits."""
    weights_per_clock: Annotated[float, Field(gt=0, le=1e4)] | None = None
    """Weights that one SM unpacks per clock; None: not a limit. Needs a device with SMs."""


class OwnAllReduce(Spec):
    """An engine's own all-reduce of small messages, over the direct link of one node.

    t = start + rank · (ranks − 2) + ring bytes / (share · link); it is used where it is quicker
    than the library's and the message isn't above ``most_bytes``.
    """

    start_us: Microseconds
    """Of 2 GPUs."""
    rank_us: Microseconds
    """More of it for each further GPU."""
    link_share: Annotated[float, Field(gt=0, le=1)]
    """Of the link's rate per direction."""
    most_bytes: Annotated[int, Field(ge=1, le=2**40)]
    source: str


class Kernels(Spec):
    """An engine's kernels relative to the calibrated library, and facts with a large effect."""

    gemm: GemmScale = GemmScale()
    gemm_8bit: GemmScale | None = None
    """Weights in 8 bits; as ``gemm`` where None."""
    gemm_4bit: GemmScale | None = None
    """Weights in 4 bits; as ``gemm`` where None."""
    attention: Scale = 1.0
    collective: Scale = 1.0
    collective_us: Microseconds = 0.0
    """Added to each exchange."""
    all_reduce: OwnAllReduce | None = None
    """None: the library's for every message."""
    decode_flops_per_clock: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """FLOPs that one SM reaches per clock in decode attention without tensor cores: set for
    kernels that don't share keys and values over a group of query heads."""
    fp16_accumulate: bool = False
    """Products accumulate in FP16, at the doubled rate of chips that have one."""
    attention_scores: Literal["fused", "unfused"] = "fused"
    """Unfused kernels write the scores to memory."""
    score_bytes: Literal[2, 4] = 2
    """Bytes of a score that is written."""
    causal_skip: bool = True
    """Whether prefill leaves out the pairs that the mask drops."""
    dequantise_rows: Annotated[int, Field(ge=1, le=2**20)] | None = None
    """Tokens from which quantised weights are written out in 16 bits before the product."""
    micro_batch_tokens: Annotated[int, Field(ge=1, le=2**24)] | None = None
    """A prefill step takes at most so many tokens of a sequence."""
    static_cache: bool = False
    """Decode attention runs over the cache's whole length, not over what it holds."""
    source: str = "assumed: the calibrated kernels as they are"

    def gemm_of(self, bits: float) -> GemmScale:
        """The scale for weights of ``bits`` each, scales included."""
        if bits < FOUR_BIT_LIMIT:
            return self.gemm_4bit or self.gemm
        if bits < EIGHT_BIT_LIMIT:
            return self.gemm_8bit or self.gemm
        return self.gemm
