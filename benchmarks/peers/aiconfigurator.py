"""AIConfigurator (``pip install aiconfigurator``): ``cli_estimate`` in its static mode."""

from benchmarks.peers.case import Answer, Case, Estimate


def load() -> Estimate:
    """The estimate of a case on its database of vLLM's kernels.

    Raises:
        ImportError: AIConfigurator isn't installed.
    """
    from aiconfigurator.cli.api import cli_estimate  # noqa: PLC0415  (a peer may be absent)

    def estimate(case: Case) -> Answer:
        found = cli_estimate(
            case.hub, case.hardware.replace("-", "_"), mode="static", backend_name="vllm",
            isl=case.prompt, osl=case.output, batch_size=case.batch, tp_size=case.tp,
        )  # fmt: skip
        return Answer(found.ttft, found.tpot)

    return estimate
