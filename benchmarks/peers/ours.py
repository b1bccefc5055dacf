"""perfmodel itself."""

import perfmodel
from benchmarks.peers.case import Answer, Case, Estimate


def load() -> Estimate:
    """The estimate of a case by `perfmodel.estimate`."""

    def estimate(case: Case) -> Answer:
        found = perfmodel.estimate(
            case.model,
            case.hardware,
            perfmodel.Workload(batch=case.batch, prompt=case.prompt, output=case.output),
            perfmodel.Deployment(tp=case.tp),
        )
        return Answer(1e3 * float(found.ttft_s), 1e3 * float(found.tpot_s))

    return estimate
