"""GenZ (``pip install genz-llm``): ``prefill_moddeling`` and ``decode_moddeling``."""

from benchmarks.peers.case import Answer, Case, Estimate

SYSTEMS = {"h100-sxm": "H100_GPU", "a100-sxm-80gb": "A100_80GB_GPU"}


def load() -> Estimate:
    """The estimate of a case; decode is one step at the mean context.

    Raises:
        ImportError: GenZ isn't installed.
    """
    from GenZ import decode_moddeling, prefill_moddeling  # noqa: PLC0415  (a peer may be absent)

    def estimate(case: Case) -> Answer:
        same = {
            "model": case.hub.replace("Meta-", ""),
            "batch_size": case.batch,
            "system_name": SYSTEMS[case.hardware],
            "bits": "bf16",
            "tensor_parallel": case.tp,
        }
        prefill = prefill_moddeling(input_tokens=case.prompt, **same)
        decode = decode_moddeling(
            input_tokens=case.prompt, output_tokens=case.output // 2, Bb=1, **same
        )
        return Answer(prefill["Latency"], decode["Latency"])

    return estimate
