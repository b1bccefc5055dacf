"""Run a demand through engines, whatever their step times are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from perfmodel.errors import InputError
from perfmodel.serving.arrivals import Demand
from perfmodel.serving.cluster import Cluster, serve_alone
from perfmodel.serving.engine import Engine, Transfer
from perfmodel.serving.recorder import Ended, Recorder, Watch
from perfmodel.serving.results import Pool, Simulation
from perfmodel.serving.router import router_named
from perfmodel.serving.shared_prefix import whole_number

MOST = 65_536
"""Instances: as many as a deployment may have ranks."""


@dataclass(frozen=True, slots=True)
class Disaggregation:
    """Instances that only prefill, and others that only decode.

    A request's first token is sent by the instance that prefills it (DistServe, Zhong et al.,
    OSDI 2024); the transfer and the wait for the decoding instance lie between its first and
    second token.
    """

    prefill: int
    decode: int
    transfer: Transfer
    decode_engine: Engine | None = None
    """What the decoding instances are; None: the same as the prefilling ones."""


def simulate_engines(
    demand: Demand,
    engine: Engine,
    *,
    replicas: int = 1,
    router: str = "round_robin",
    disaggregation: Disaggregation | None = None,
    warmup: int = 0,
    ended: Ended | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Simulation:
    """Simulate ``demand`` on instances of ``engine``.

    Args:
        demand: the requests.
        engine: what each instance is.
        replicas: instances behind the router; not with ``disaggregation``.
        router: how a request's instance is chosen, of a pool that decodes too:
            ``round_robin``, ``least_loaded`` or ``prefix_aware``.
        disaggregation: pools that prefill and decode apart.
        warmup: requests that the statistics leave out, in the order of arrival. Published
            closed-loop benchmarks start all users at once and average over everything: with 0 the
            means contain that burst, as theirs do.
        ended: is given the sequences that have just ended, in the order of their ends, so that
            they can be written as they come: none is kept.
        progress: is told now and then how many requests of how many have ended.

    Raises:
        InputError: a request can never be served, a trace's row is wrong, or a number is.
    """
    started = perf_counter()
    source = demand.source(_misfit(engine, disaggregation))
    if warmup < 0:
        raise InputError(f"--warmup: must be 0 or more requests (got {warmup})")
    if warmup >= source.total:
        raise InputError(
            f"--warmup: leaves no request of {source.total} (got {warmup}): ask for fewer"
        )
    total = source.total
    recorder = Recorder(warmup, ended, (lambda done: progress(done, total)) if progress else None)
    if disaggregation:
        if replicas != 1:
            raise InputError("--replicas: not with --disaggregate, which gives both pools' sizes")
        whole_number("--disaggregate", disaggregation.prefill, 1, MOST)
        whole_number("--disaggregate", disaggregation.decode, 1, MOST)
        decode = disaggregation.decode_engine or engine
        Cluster(
            recorder, router_named(router), engine, disaggregation.prefill,
            (decode, disaggregation.decode, router_named(router)), disaggregation.transfer,
        ).run(source)  # fmt: skip
        parts = [("prefill", engine.gpus), ("decode", decode.gpus)]
    else:
        whole_number("--replicas", replicas, 1, MOST)
        chosen = router_named(router)
        if replicas == 1 and not source.think_s:
            serve_alone(engine, source, recorder)
        else:
            Cluster(recorder, chosen, engine, replicas).run(source)
        parts = [("engine", engine.gpus)]
    recorder.flush()
    return _result(recorder, parts, perf_counter() - started)


def _misfit(
    engine: Engine, disaggregation: Disaggregation | None
) -> Callable[[int, int], str | None]:
    if disaggregation is None:
        return engine.misfit()
    entrance, decode = engine.misfit(), (disaggregation.decode_engine or engine).misfit()
    return lambda prompt, output: entrance(prompt, 1) or decode(prompt, output)


def _pool(name: str, gpus: int, watch: Watch, seconds: float) -> Pool:
    held = watch.occupancy
    engine_seconds = held.engines * seconds
    return Pool(
        name=name,
        instances=held.engines,
        gpus=gpus * held.engines,
        utilisation=_over(held.busy_s, engine_seconds),
        kv_utilisation=_over(held.blocks_s, held.blocks * engine_seconds),
        kv_utilisation_peak=held.peak / held.blocks,
        mean_running=_over(held.running_s, seconds),
        mean_waiting=_over(held.waiting_s, seconds),
        prefill_tokens=watch.prefill_tokens,
    )


def _over(value: float, whole: float) -> float:
    return value / whole if whole > 0 else float("nan")


def _result(recorder: Recorder, parts: list[tuple[str, int]], wall_s: float) -> Simulation:
    seconds = recorder.last_end - recorder.begin
    watches = recorder.pools
    pools = tuple(
        _pool(name, gpus, watch, seconds)
        for (name, gpus), watch in zip(parts, watches, strict=True)
    )
    instances = sum(pool.instances for pool in pools)
    held = [watch.occupancy for watch in watches]
    blocks = sum(part.blocks * part.engines for part in held)
    prompt = recorder.prompt_tokens + recorder.extra_prompt
    output = recorder.output_tokens + recorder.extra_output
    return Simulation(
        ttft_s=recorder.ttft.distribution(),
        tpot_s=recorder.tpot.distribution(),
        itl_s=recorder.itl.distribution(),
        e2e_s=recorder.e2e.distribution(),
        queue_s=recorder.queue.distribution(),
        requests=recorder.all_ended,
        warmup=recorder.warmup,
        prompt_tokens=prompt,
        output_tokens=output,
        longest_tokens=recorder.longest_tokens,
        requests_per_s=_over(recorder.requests + recorder.extra, seconds),
        output_tokens_per_s=_over(output, seconds),
        total_tokens_per_s=_over(prompt + output, seconds),
        preemptions=sum(watch.preemptions for watch in watches),
        kv_utilisation=_over(sum(part.blocks_s for part in held), blocks * seconds),
        kv_utilisation_peak=max(pool.kv_utilisation_peak for pool in pools),
        utilisation=_over(sum(part.busy_s for part in held), instances * seconds),
        mean_running=sum(pool.mean_running for pool in pools),
        mean_waiting=sum(pool.mean_waiting for pool in pools),
        instances=instances,
        gpus=sum(pool.gpus for pool in pools),
        pools=pools,
        simulated_s=recorder.last_end - recorder.first_arrival,
        wall_s=wall_s,
        timeline=held[0].timeline(tuple(held[1:])),
    )
