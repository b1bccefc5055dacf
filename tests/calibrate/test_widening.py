"""What the assumed cost of widening rests on: vLLM's Marlin experts against its 16-bit experts."""

import pytest

from perfmodel.inference.dequantise import BLACKWELL, HOPPER
from perfmodel.kernels.calibration import load_calibration
from perfmodel.kernels.choice import choose_calibration
from perfmodel.kernels.timing import DeviceModel
from perfmodel.operators.record import ExpertLayer, GroupedGemm
from perfmodel.specs.hardware import load_hardware
from tests.data import REASON, data_dir

FOLDER = data_dir()
TABLE = FOLDER / "measurements" / "moe.parquet" if FOLDER else None
ROWS = 256
"""Rows per expert from which arithmetic decides."""

pytestmark = pytest.mark.skipif(TABLE is None or not TABLE.exists(), reason=REASON)


def marlin_rows(gpu):
    """Balanced calls of Marlin with many rows per expert; bf16 wasn't measured at their shapes."""
    pandas = pytest.importorskip("pandas")
    table = pandas.read_parquet(TABLE)
    many = table.tokens * table.topk / table.experts >= ROWS
    chosen = table.kernel.str.contains("marlin") & (table.distribution == "balanced") & many
    return table[chosen & (table.gpu == gpu)]


def bf16_seconds(device, row):
    """Both projections of the same layer by the calibrated 16-bit experts."""
    layer = ExpertLayer(
        row.tokens, row.hidden, row.inter, row.topk, row.experts, row.moe_tp, row.moe_ep, True
    )
    inter = row.inter // row.moe_tp
    return sum(
        device.time(
            GroupedGemm(
                name="experts", layer=layer, rows=row.tokens * row.topk / row.moe_ep,
                active_experts=row.experts / row.moe_ep, experts=row.experts // row.moe_ep,
                n=n, k=k,
            )
        ).time_s
        for n, k in ((2 * inter, row.hidden), (row.hidden, inter))
    )  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "low", "high"),
    [
        ("l40s", 0.6, 1.0),  # Marlin's own instructions
        ("h100-sxm", 1.25, HOPPER.most),
        ("h200-sxm", 1.25, HOPPER.most),
        ("b200-sxm", 3.0, BLACKWELL.most),
    ],
)
def test_marlin_against_16_bits(gpu, low, high):
    hardware = load_hardware(gpu)
    device = DeviceModel(hardware, load_calibration(), "graph", choose_calibration(hardware))
    for _, rows in marlin_rows(gpu).groupby("dtype"):
        ratios = rows.apply(lambda r: r.latency_us / 1e6 / bf16_seconds(device, r), axis=1)
        assert len(rows) >= 8
        assert low < ratios.median() < high
