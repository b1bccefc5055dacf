"""CPU time of a million kernel predictions with a shipped calibration.

Run: ``python benchmarks/kernels.py``. Goal: a million GEMMs in under 5 CPU-seconds.
"""

import platform
import time

import numpy as np

from perfmodel.kernels.calibration import load_calibration
from perfmodel.kernels.choice import choose_calibration
from perfmodel.kernels.timing import DeviceModel
from perfmodel.operators.record import Attention, Gemm
from perfmodel.specs.hardware import load_hardware

COUNT = 1_000_000


def main() -> None:
    """Predict random shapes and print CPU-seconds."""
    print(f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")  # noqa: T201
    hardware = load_hardware("h100-sxm")
    device = DeviceModel(hardware, load_calibration(), "graph", choose_calibration(hardware))
    rng = np.random.default_rng(0)
    m = np.exp(rng.uniform(0, 11, COUNT)).round()
    length = np.exp(rng.uniform(3, 11, COUNT)).round()
    operators = (
        Gemm(name="gemm", m=m, n=4096, k=4096, weight_bytes=2.0 * 4096 * 4096),
        Attention(
            name="decode attention", phase="decode", sequences=8, queries=1, keys=length,
            pairs=length, context=length, heads=32, kv_heads=8, qk_dim=128, value_dim=128,
            key_bytes=4096.0,
        ),
    )  # fmt: skip
    for operator in operators:
        device.time(operator)
        start = time.process_time()
        device.time(operator)
        print(f"{operator.name:18} {time.process_time() - start:6.2f} CPU-s for {COUNT:,}")  # noqa: T201


if __name__ == "__main__":
    main()
