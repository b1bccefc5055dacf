"""Electric power of GPUs, from TDP, idle share and utilisation; hosts and cooling come on top."""

from __future__ import annotations

from perfmodel.planning.capacity.answer import Energy, Range
from perfmodel.planning.capacity.sizing import HOUR_S
from perfmodel.units import KILO, MEGA

IDLE = Range(0.17, 0.30)
"""Share of TDP of a GPU that holds a model and runs nothing.

Without a process about 0.105 (73.7 W of 700 W, an H200 by nvidia-smi over an idle fleet:
conservemode.com/case-studies.html, taken for all parts); a CUDA context adds 26 to 50 W to parts
with HBM and 66 W to an L40S whatever lies in memory (arXiv 2605.23918): 26/400 = 0.065 on an A100,
66/350 = 0.19 on an L40S.
"""
BUSY = Range(0.43, 1.0)
"""Share of TDP while steps run: 300 W of 700 W, what decoding draws on an H200 at most
(arXiv 2605.11999: 137 to 300 W), up to TDP, near which prefill runs."""
SOURCE = (
    "GPUs alone, without hosts and cooling: TDP × (busy share × 0.43 to 1 + idle share × 0.17 to "
    "0.30); busy: decoding on H200 (arXiv 2605.11999) to TDP; idle: arXiv 2605.23918, "
    "conservemode.com"
)


def energy_of(tdp_w: float, gpus: int, busy: float, tokens_per_s: float) -> Energy:
    """Power and energy of ``gpus`` GPUs that run steps for the share ``busy`` of the time.

    ``tokens_per_s``: prompt and output tokens together. Watts over tokens per hour are the energy
    of a token: W·1 h / (tokens/s · 3600 s) per token, in kWh per 10⁶ tokens.
    """
    per_hour = tokens_per_s * HOUR_S / MEGA
    watts = [
        gpus * tdp_w * (busy * runs + (1 - busy) * rests)
        for runs, rests in ((BUSY.low, IDLE.low), (BUSY.high, IDLE.high))
    ]
    energy = [value / KILO / per_hour for value in watts]
    return Energy(Range(*watts), Range(*energy), SOURCE)
