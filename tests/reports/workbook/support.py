"""Plans with hand-made loads: every figure that a workbook needs, without a simulation."""

import math

from perfmodel.planning.capacity.answer import Choice, Month, Plan, Range, Rejected, Terms
from perfmodel.planning.capacity.question import needs_of
from perfmodel.planning.capacity.sizing import Level, Seen, best_level, size_fleet
from perfmodel.serving.serve import Serving
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.hardware import load_hardware
from perfmodel.specs.loading import load_model
from perfmodel.specs.traffic import RequestClass, ServiceLevel, Traffic

CHAT = RequestClass(
    name="chat", share=3, prompt="lognormal:1000:0.6:8000", output=200,
    level=ServiceLevel(ttft_s=0.5, tpot_s=0.04),
)  # fmt: skip
BATCH = RequestClass(
    name="batch", share=1, prompt=3000, output="uniform:1:801", level=ServiceLevel(e2e_s=60)
)
TRAFFIC = Traffic(rate=20, classes=(CHAT, BATCH), peak=1.7, growth=0.06, months=12)
PRICES = {"h100-sxm": Range(1.9, 4.1), "l40s": Range(0.8, 1.6)}


def loads(scale: float, outputs: list[str | int]) -> tuple[Level, ...]:
    """Eight loads of a replica that is ``scale`` times as fast: latencies grow with each."""
    made = []
    for step in range(1, 9):
        busy = step / 8
        seen = tuple(
            Seen(
                ttft_s=(0.05 + 0.02 * each + 0.6 * busy**3) / scale,
                tpot_s=None if output == 1 else (0.008 + 0.05 * busy**2) / scale,
                e2e_s=(3 + 10 * each + 25 * busy**2) / scale,
            )
            for each, output in enumerate(outputs)
        )
        made.append(Level(2.5 * scale * step, 60 * busy**1.5, min(1, 1.1 * busy),
                          0.7 * busy, step // 8, seen))  # fmt: skip
    return tuple(made)


def choice(traffic, terms, hardware, deployment, scale, share=0.3, serving=None) -> Choice:
    """A choice with hand-made loads, sized as the program does."""
    levels = loads(scale, [c.output for c in traffic.classes])
    best = best_level(levels, [c.level for c in traffic.classes]) or levels[0]
    serving = serving or Serving()
    instances = sum(serving.disaggregate or (1,))
    gpus = deployment.tp * deployment.pp * instances
    price = terms.usd_per_gpu_hour.get(hardware)
    usd = math.nan if price is None else price.middle
    months = tuple(
        Month(m, traffic.rate_at(m),
              size_fleet(best.rate, gpus, share, needs_of(traffic, terms, usd, m)))
        for m in range(traffic.months + 1)
    )  # fmt: skip
    return Choice(
        hardware=load_hardware(hardware), deployment=deployment, serving=serving,
        gpus_per_replica=gpus, levels=levels, level=best, load_limit="", prefill_share=share,
        fleet=months[0].fleet, usd_per_hour=None, usd_per_million_prompt_tokens=None,
        usd_per_million_output_tokens=None, energy=None, months=months,
        calibration="fitted (vllm 0.24.0) calibration", front=True, label=f"TP {deployment.tp}",
        settings=("--tensor-parallel-size", str(deployment.tp)),
    )  # fmt: skip


def plan(model="llama-3.1-8b", traffic=TRAFFIC, choices=None, prices=None, **terms) -> Plan:
    """A plan of some choices: (hardware, deployment, speed of a replica)."""
    prices = PRICES if prices is None else prices
    made = Terms(terms.get("target", 0.7), terms.get("spare", 1), prices,
                 dict.fromkeys(prices, "profile, 2026-05"))  # fmt: skip
    choices = choices or (
        ("h100-sxm", Deployment(weights="fp8", max_num_seqs=256), 1.0),
        ("l40s", Deployment(tp=2, weights="fp8", max_num_seqs=128), 0.6),
        ("h100-sxm", Deployment(tp=2, max_num_seqs=256), 1.4),
    )
    return Plan(
        model=load_model(model), traffic=traffic, terms=made,
        choices=tuple(choice(traffic, made, *each) for each in choices),
        rejected=(Rejected("l40s", "1 GPU, bf16", "TPOT of chat: 61 ms at the least load"),),
        nearest=None, considered=48,
    )  # fmt: skip
