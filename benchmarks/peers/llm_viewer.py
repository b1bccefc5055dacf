"""LLM-Viewer (a checkout of github.com/hahnyuan/LLM-Viewer, named by ``LLM_VIEWER``)."""

import os
import sys

from benchmarks.peers.case import Answer, Case, Estimate

HARDWARE = {"h100-sxm": "nvidia_H100", "a100-sxm-80gb": "nvidia_A100_80G"}
MILLISECONDS = 1e3


def load() -> Estimate:
    """The estimate of a case; decode is one step at the mean context.

    Raises:
        ImportError: no checkout is named, or it lacks what it needs.
    """
    folder = os.environ.get("LLM_VIEWER")
    if not folder:
        raise ImportError("set LLM_VIEWER to a checkout of its repository")
    sys.path.insert(0, folder)
    from model_analyzer import ModelAnalyzer  # noqa: PLC0415  (a peer may be absent)

    def estimate(case: Case) -> Answer:
        here = os.getcwd()  # noqa: PTH109  (it reads files relative to its own folder)
        os.chdir(folder)
        try:
            analyzer = ModelAnalyzer(case.hub, HARDWARE[case.hardware])
            same = {"batchsize": case.batch, "use_flashattention": True, "tp_size": case.tp}
            first = analyzer.analyze(seqlen=case.prompt, **same)
            later = analyzer.analyze(seqlen=case.prompt + case.output // 2, **same)
        finally:
            os.chdir(here)
        return Answer(
            MILLISECONDS * first["total_results"]["prefill"]["inference_time"],
            MILLISECONDS * later["total_results"]["decode"]["inference_time"],
        )

    return estimate
