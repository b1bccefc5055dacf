"""The page of published and predicted speed-ups; computes errors and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

NEAR = 0.10
"""Relative error up to which a prediction is said to agree."""
MTP_BOUND = 0.03
"""The same for the MTP sweep with a measured cost."""


def _error(value: float, published: float) -> str:
    return f"{100 * (value / published - 1):+.1f}"


def _agrees(value: float, published: float, bound: float = NEAR) -> str:
    return "agrees" if abs(value / published - 1) <= bound else "**doesn't**"


def _sweep(r: dict[str, Any]) -> Iterator[str]:
    yield "## DeepSeek-R1, MTP sweep on 8 B200 (TensorRT-LLM, batch 1, 1,024 + 2,048 tokens)"
    yield ""
    rates = ", ".join(f"{rate:.2f}" for rate in r["rates"])
    yield (
        "Acceptance by depth, from the published mean lengths (each depth's gain over that of the "
        f"one before): {rates}. A round is priced as 1 + c·γ plain steps with one **measured** "
        f"c = {r['cost']:.3f} (`--draft-cost`), fitted on these five speed-ups: one number, in "
        f"sample. With c = {r['first']:.3f} from one drafted token alone, the other four rows are "
        "a check. *Operators*: nothing of the sweep but the acceptance, the kernels as the engine "
        "preset prices them. *One rate*: the acceptance of the first depth at all depths, same c."
    )
    yield ""
    yield (
        "| γ | tokens per round | speed-up | c fitted | error % | c of γ = 1 | operators, trtllm "
        "| operators, vllm | tokens by one rate | its speed-up |"
    )
    yield "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for point, made in r["sweep"]:
        gain = {name: float(answer.speedup) for name, answer in made.items()}
        cells = [
            f"{point.tokens}", f"{point.length:.2f}", f"{point.speedup:.3f}",
            f"{gain['fitted']:.3f}", _error(gain["fitted"], point.speedup),
            _error(gain["first"], point.speedup), _error(gain["trtllm"], point.speedup),
            _error(gain["vllm"], point.speedup),
            f"{made['constant'].expected_tokens:.2f}",
            _error(gain["constant"], point.speedup),
        ]  # fmt: skip
        yield "| " + " | ".join(cells) + " |"
    yield ""
    worst = max(abs(float(made["fitted"].speedup) / p.speedup - 1) for p, made in r["sweep"])
    costs = {
        name: [float(made[name].draft_cost) for _, made in r["sweep"]]
        for name in ("trtllm", "vllm")
    }
    said = "; ".join(f"{min(c):.3f} to {max(c):.3f} with {name}" for name, c in costs.items())
    word = "agrees" if worst <= MTP_BOUND else "does not agree"
    yield (
        f"The sweep **{word}** within 3 % with the fitted c (worst {100 * worst:.1f} %). The "
        f"operators' own c is {said}: draft layer, head and exchanges, and the growth of "
        "verification; what is missing is time between kernels of the draft's loop and of "
        "acceptance, which nothing here measured."
    )


def _bench(r: dict[str, Any]) -> Iterator[str]:
    yield "## Spec-Bench (PyTorch eager, batch 1)"
    yield ""
    yield (
        "Tokens per round are the published ones, so that only the cost of a round is tested: "
        "round/step is that ratio as published. *Operators*: preset `eager-2023` (fitted on "
        "Splitwise's host), lengths 512 + 512 assumed. *Carried*: the method's median round/step "
        "on its other models and devices, as one would state `--draft-cost`. Errors of the "
        "speed-up in per cent; agreement is within 10 %."
    )
    yield ""
    yield ("| method | model | device | tokens | speed-up | round/step | operators | | carried | |")
    yield "|---|---|---|--:|--:|--:|--:|---|--:|---|"
    for bench, ours, carried in sorted(r["bench"], key=lambda item: item[0].method):
        cells = [bench.method, bench.model, bench.gpu, f"{bench.length:.2f}",
                 f"{bench.speedup:.2f}", f"{bench.ratio:.2f}"]  # fmt: skip
        for value in (ours, carried):
            known = value is not None
            cells.append(_error(value, bench.speedup) if known else "–")
            cells.append(_agrees(value, bench.speedup) if known else "")
        yield "| " + " | ".join(cells) + " |"
    yield ""
    for name, column in (("Operators", 1), ("Carried", 2)):
        errors = [
            abs(item[column] / item[0].speedup - 1)
            for item in r["bench"] if item[column] is not None
        ]  # fmt: skip
        near = sum(error <= NEAR for error in errors)
        yield (
            f"{name}: median {100 * np.median(errors):.1f} %, 90th percentile "
            f"{100 * np.quantile(errors, 0.9):.0f} %; {near} of {len(errors)} agree."
        )
        yield ""
    yield (
        "Why the operators don't agree: in eager Python a plain step waits for the host, whose "
        "time for building and checking a tree, sampling and the draft's loop isn't in any "
        "operator; PLD, which has no loop, agrees. Hydra, REST, Recycling and SAMD aren't "
        "methods here; Vicuna-33B isn't in the catalogue."
    )


def _gpt_fast(r: dict[str, Any]) -> Iterator[str]:
    published, whole, needed, rate = r["gpt_fast"]
    yield "## gpt-fast (Llama-2-70B int4 with a 7B int4 draft, γ = 4, one A100)"
    yield ""
    yield (
        f"Published {published:.2f}×, acceptance not printed. A round takes "
        f"{float(whole.round_s / whole.plain.time_s):.2f} plain steps by the operators (c = "
        f"{float(whole.draft_cost):.3f}), so that {needed:.2f} tokens per round are needed, an "
        f"acceptance of {rate:.2f}: plausible for code, neither confirmed nor refuted."
    )


def _others(r: dict[str, Any]) -> Iterator[str]:
    counts: dict[str, int] = {}
    for row in r["others"]:
        counts[row.source] = counts.get(row.source, 0) + 1
    listed = ", ".join(f"{name} ({count})" for name, count in counts.items())
    yield "## Rows that can't be checked"
    yield ""
    yield (
        f"{listed}: bar labels and abstracts without device, acceptance or length, ratios between "
        "two drafts, and drafts that run in parallel, which isn't a method here. Such a speed-up "
        "only says that at least as many tokens came out of a round."
    )


def page(results: dict[str, Any]) -> str:
    """The page in Markdown."""
    lines = [
        "# Speculative decoding on published speed-ups",
        "",
        "Written by `python -m calibrate.speculation --out docs/speculation-check.md`; don't edit.",
        "How rounds are priced: docs/speculation.md. Errors are predicted/published − 1.",
        "",
    ]
    for part in (_sweep, _bench, _gpt_fast, _others):
        lines += [*part(results), ""]
    return "\n".join(lines).rstrip() + "\n"
