"""What a simulation found: one frozen record, its JSON, and each metric's definition."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from perfmodel.serving.metrics import Distribution
from perfmodel.serving.occupancy import Timeline
from perfmodel.serving.sequence import Sequence

DEFINITIONS: dict[str, str] = {
    "ttft_s": "time to first token: from a request's arrival to its first token, queueing included",
    "tpot_s": "time per output token: (last token − first token)/(output − 1) of each request, so "
    "without the first token; requests of one token have none",
    "itl_s": "inter-token latency: each gap between two tokens of a request, over all tokens; the "
    "time to the first is none",
    "e2e_s": "from a request's arrival to its last token",
    "queue_s": "from a request's arrival to the step that begins its prefill; part of TTFT. "
    "Waiting again after a preemption, or for a decoding instance, counts in TPOT instead",
    "requests_per_s": "requests that ended, over the time from the first arrival to the last end: "
    "filling and draining included",
    "output_tokens_per_s": "output tokens of those requests over the same time",
    "total_tokens_per_s": "their prompt and output tokens over the same time, cached prefixes too",
    "preemptions": "times that a sequence lost its cache because others grew",
    "kv_utilisation": "share of all instances' KV cache in use, averaged over time",
    "kv_utilisation_peak": "the largest share of one instance's KV cache in use at any time",
    "utilisation": "share of the time in which an instance runs a step, averaged over instances",
    "mean_running": "sequences in prefill or decode over all instances, averaged over time",
    "mean_waiting": "requests in the instances' queues, preempted ones too, averaged over time",
    "requests": "requests that ended, those of the warm-up too",
    "simulated_s": "simulated time from the first arrival to the last end",
    "wall_s": "time that the simulation took",
}
"""What each figure means. With a warm-up, distributions leave its requests out, and rates and
averages over time count from the arrival of the first request after them."""
LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s")


@dataclass(frozen=True, slots=True)
class Pool:
    """What one pool of instances did."""

    name: str
    """``prefill``, ``decode``, or ``engine`` for instances that do both."""
    instances: int
    gpus: int
    utilisation: float
    kv_utilisation: float
    kv_utilisation_peak: float
    mean_running: float
    mean_waiting: float
    prefill_tokens: int
    """Prompt tokens that were computed: fewer than were sent where prefixes were cached, more
    where preempted sequences were computed again."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """What users and the machine saw; `DEFINITIONS` says what each figure means."""

    ttft_s: Distribution
    tpot_s: Distribution
    itl_s: Distribution
    e2e_s: Distribution
    queue_s: Distribution
    requests: int
    warmup: int
    prompt_tokens: int
    """Of the requests that the rates count."""
    output_tokens: int
    longest_tokens: int
    """Prompt and output of the longest request, those of the warm-up included."""
    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    preemptions: int
    kv_utilisation: float
    kv_utilisation_peak: float
    utilisation: float
    mean_running: float
    mean_waiting: float
    instances: int
    gpus: int
    pools: tuple[Pool, ...]
    simulated_s: float
    wall_s: float
    timeline: Timeline = field(repr=False, compare=False)

    @property
    def output_tokens_per_s_per_gpu(self) -> float:
        """Output tokens per second and GPU."""
        return self.output_tokens_per_s / self.gpus

    @property
    def total_tokens_per_s_per_gpu(self) -> float:
        """Prompt and output tokens per second and GPU."""
        return self.total_tokens_per_s / self.gpus


def _number(value: float) -> float | None:
    return value if isfinite(value) else None


def _distribution(values: Distribution) -> dict[str, float | None]:
    return {name: _number(getattr(values, name)) for name in ("mean", "p50", "p90", "p99")}


def simulation_record(result: Simulation) -> dict[str, Any]:
    """The record as plain data; a figure that doesn't exist (TPOT of one token) is None."""
    line = result.timeline
    return {
        **{name: _distribution(getattr(result, name)) for name in LATENCIES},
        "requests_per_s": _number(result.requests_per_s),
        "output_tokens_per_s": _number(result.output_tokens_per_s),
        "total_tokens_per_s": _number(result.total_tokens_per_s),
        "output_tokens_per_s_per_gpu": _number(result.output_tokens_per_s_per_gpu),
        "total_tokens_per_s_per_gpu": _number(result.total_tokens_per_s_per_gpu),
        "preemptions": result.preemptions,
        "kv_utilisation": result.kv_utilisation,
        "kv_utilisation_peak": result.kv_utilisation_peak,
        "utilisation": result.utilisation,
        "mean_running": result.mean_running,
        "mean_waiting": result.mean_waiting,
        "requests": result.requests,
        "warmup": result.warmup,
        "prompt_tokens": result.prompt_tokens,
        "output_tokens": result.output_tokens,
        "longest_tokens": result.longest_tokens,
        "instances": result.instances,
        "gpus": result.gpus,
        "pools": [
            {name: getattr(pool, name) for name in Pool.__dataclass_fields__}
            for pool in result.pools
        ],
        "simulated_s": result.simulated_s,
        "wall_s": result.wall_s,
        "timeline": {name: getattr(line, name).tolist() for name in Timeline.__dataclass_fields__},
        "definitions": dict(DEFINITIONS),
    }


def request_record(sequence: Sequence) -> dict[str, Any]:
    """One request that has ended: a row of ``--csv``; TPOT of one token is None."""
    several = sequence.output > 1
    decode_s = sequence.finish_s - sequence.first_s
    return {
        "number": sequence.number,
        "arrival_s": sequence.arrival_s,
        "prompt_tokens": sequence.prompt,
        "output_tokens": sequence.output,
        "queue_s": sequence.admitted_s - sequence.arrival_s,
        "ttft_s": sequence.first_s - sequence.arrival_s,
        "tpot_s": decode_s / (sequence.output - 1) if several else None,
        "e2e_s": sequence.finish_s - sequence.arrival_s,
        "preemptions": sequence.preemptions,
    }
