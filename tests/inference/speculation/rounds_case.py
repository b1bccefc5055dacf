"""What test_rounds.py and test_best.py share."""

from __future__ import annotations

from perfmodel import Deployment, Speculation, Workload, estimate
from perfmodel.inference.estimate import Estimate

CASE = Workload(batch=4, prompt=300, output=40)


def run(
    speculation: Speculation | None, model: str = "llama-3.1-8b", case: Workload = CASE, tp: int = 1
) -> Estimate:
    deployment = Deployment(stack="generic", tp=tp, speculation=speculation)
    return estimate(model, "h100-sxm", case, deployment)


def ngram(tokens: int = 4, acceptance: float = 0.6) -> Speculation:
    return Speculation(method="ngram", tokens=tokens, acceptance=acceptance)


METHODS = {
    "draft": Speculation(method="draft", draft_model="llama-3.2-1b", tokens=3, acceptance=0.7),
    "eagle": Speculation(method="eagle", tree=(3, 2, 1), acceptance=0.7),
    "medusa": Speculation(method="medusa", tree=(4, 2), acceptance=0.6),
    "ngram": ngram(),
    "lookahead": Speculation(method="lookahead", tree=(5, 1, 1), acceptance=0.3),
}
