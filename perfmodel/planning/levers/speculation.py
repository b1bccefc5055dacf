"""Speculative decoding: what drafts, with an acceptance that is assumed where none is stated.

Acceptance depends on text and model, which no number of a deployment says. So each setting takes a
published one, says so in its price, and says the acceptance from which it pays here. None of them
is combined with other changes.
"""

from __future__ import annotations

from perfmodel.errors import InputError
from perfmodel.inference.speculation.acceptance import implied_rate
from perfmodel.planning.lever import Change, Idle, Lever, Price, View
from perfmodel.specs.speculation import Speculation

MTP_RATES = (0.92, 0.72, 0.36)
"""DeepSeek-R1's module by depth on 8 B200 (docs/speculation-check.md)."""
MTP_TOKENS = (1, 3)
EAGLE = {"tree": (5, 1, 1, 1, 1), "accepted_length": 3.39}
"""25 tokens in 5 depths; the least of Spec-Bench's rows of EAGLE (docs/speculation-check.md)."""
NGRAM = {"tokens": 10, "accepted_length": 1.54}
"""Spec-Bench's setting of prompt lookup, and the least of its four rows."""
TRAINED = "a trained draft layer for this model"


def _speculative(speculation: Speculation) -> tuple[tuple[str, Speculation], ...]:
    return (("speculation", speculation),)


def _needed(view: View, speculation: Speculation) -> str:
    """From which acceptance on a round gains, at this batch and context."""
    changed = view.situation.with_values({"speculation": speculation})
    try:
        told = view.estimator.of(changed).speculation
    except InputError:
        return ""  # the setting as a whole is refused, and says why
    if told is None:
        return ""
    least = float(told.round_s / told.plain.time_s)
    if least > 1 + speculation.depth:
        return f"pays here at no acceptance: a round takes {least:.2f} plain steps"
    said = f"pays here from {least:.2f} tokens a round on"
    if speculation.tree is None and least > 1:
        rate = implied_rate(least, speculation.branching)
        said += f" (each token accepted with {100 * rate:.0f} %)"
    return said


def _change(view: View, name: str, setting: str, price: Price, chosen: Speculation,
            assumed: str) -> Change:  # fmt: skip
    told = (f"assumed: {assumed}", _needed(view, chosen))
    return Change(
        name, setting, price, deployment=_speculative(chosen), supposes=True,
        remark="; ".join(part for part in told if part),
    )  # fmt: skip


def _on(view: View) -> Idle | None:
    """Where something drafts already: what it gains, and from which acceptance on."""
    own = view.situation.deployment.speculation
    if own is None:
        return None
    none = Change("speculation", "no speculation", Price(), deployment=(("speculation", None),))
    needed = _needed(view, own)
    return Idle(f"{own.method} drafts already{needed and ', and '}{needed}", without=none)


def _unable(view: View) -> Idle | None:
    """Reasons that hold for whatever drafts."""
    load, deployment = view.situation.workload, view.situation.deployment
    if load.output == 1:
        return Idle("one output token leaves nothing to draft")
    if deployment.pp > 1:
        return Idle(f"engines don't draft over pipeline stages, and there are {deployment.pp}")
    return None


def _changes_mtp(view: View) -> tuple[Change, ...] | Idle:
    idle = _on(view) or _unable(view)
    if idle is not None:
        return idle
    model = view.base.model
    if model.mtp is None:
        return Idle(f"{model.name} comes without MTP modules")
    price = Price(accuracy="none: each token is verified", memory="the module and its cache",
                  complexity="the checkpoint's own module")  # fmt: skip
    found = []
    for tokens in MTP_TOKENS:
        rates = MTP_RATES[:tokens]
        chosen = Speculation(method="mtp", tokens=tokens, acceptance=rates)
        said = "acceptance of DeepSeek-R1's module, " + ", ".join(f"{rate:g}" for rate in rates)
        found.append(_change(view, "MTP", f"MTP, {tokens} drafted", price, chosen, said))
    return tuple(found)


def _changes_eagle(view: View) -> tuple[Change, ...] | Idle:
    idle = _already(view) or _unable(view)
    if idle is not None:
        return idle
    chosen = Speculation.model_validate({"method": "eagle"} | EAGLE)
    price = Price(accuracy="none: each token is verified", memory="a layer and its cache",
                  complexity=TRAINED)  # fmt: skip
    said = (
        f"{chosen.accepted_length:g} tokens a round (Vicuna, Spec-Bench); against its speed-ups "
        "trees come out 45 to 65 % too fast, for the host's work on them"
    )
    setting = f"EAGLE, {chosen.nodes} drafted"
    return (_change(view, "EAGLE", setting, price, chosen, said),)


def _changes_ngram(view: View) -> tuple[Change, ...] | Idle:
    idle = _already(view) or _unable(view)
    if idle is not None:
        return idle
    chosen = Speculation.model_validate({"method": "ngram"} | NGRAM)
    price = Price(accuracy="none: each token is verified",
                  complexity="answers that repeat the prompt")  # fmt: skip
    said = f"{chosen.accepted_length:g} tokens a round (prompt lookup, Spec-Bench)"
    setting = f"n-grams, {chosen.tokens} drafted"
    return (_change(view, "n-gram drafts", setting, price, chosen, said),)


def _already(view: View) -> Idle | None:
    own = view.situation.deployment.speculation
    return None if own is None else Idle(f"{own.method} drafts already")


def _changes_draft(view: View) -> tuple[Change, ...] | Idle:
    return _already(view) or Idle(
        "needs a smaller model of the same vocabulary and its acceptance: estimate "
        "--speculative-method draft --draft-model NAME --acceptance RATE"
    )


LEVERS = (
    Lever("MTP", "speculation", _changes_mtp),
    Lever("EAGLE", "speculation", _changes_eagle),
    Lever("n-gram drafts", "speculation", _changes_ngram),
    Lever("draft model", "speculation", _changes_draft),
)
