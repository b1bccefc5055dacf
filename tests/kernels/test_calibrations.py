"""Shipped calibrations: they load, say their errors, and price what an estimate asks."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import yaml

import perfmodel
from perfmodel.errors import InputError
from perfmodel.kernels.calibration import load_calibration
from perfmodel.kernels.calibration_file import (
    decode,
    encode,
    kernels_of,
    load_calibrated,
    measured_nearest,
    read_calibration,
)
from perfmodel.kernels.choice import available, choose_calibration
from perfmodel.kernels.forms.routing import UNIFORM, with_load
from perfmodel.kernels.kernel_time import LATENCY_S, bound_times
from perfmodel.kernels.timing import DeviceModel
from perfmodel.operators.context import Step
from perfmodel.operators.record import Collective, Elementwise, Gemm
from perfmodel.operators.sharding import Parallel
from perfmodel.operators.step import step_operators
from perfmodel.specs.hardware import load_hardware
from tests.data import REASON, data_dir

FILES = [(h, s, p) for h, stacks in available().items() for s, p in stacks.items()]
VLLM = [name for name, stack, _ in FILES if stack == "vllm"]


def device(name, stack=None, execution="graph"):
    hardware = load_hardware(name)
    return DeviceModel(hardware, load_calibration(), execution, choose_calibration(hardware, stack))


def test_the_five_devices_are_calibrated():
    assert {"a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200-sxm", "l40s"} <= set(VLLM)


@pytest.mark.parametrize(("hardware", "stack", "path"), FILES)
def test_a_file_loads_and_says_its_errors(hardware, stack, path):
    file = read_calibration(path)
    assert (file.hardware, file.stack) == (hardware, stack)
    for name, record in file.sets.items():
        assert record.rows <= 300, name
        assert record.errors["all"].rows > 0, name
    assert load_calibrated(path).sets.keys() == file.sets.keys()


@pytest.mark.parametrize("hardware", VLLM)
def test_no_kernel_beats_the_roof_and_none_is_sure(hardware):
    model = perfmodel.load_model("llama-3.1-8b")
    d = device(hardware)
    for batch, new, phase in ((1, 1, "decode"), (64, 1, "decode"), (1, 4096, "prefill")):
        for op in step_operators(model, Step(phase, batch, new, 1000), parallel=Parallel(tp=2)):
            kernel = d.time(op)
            assert np.isfinite(kernel.time_s)
            assert kernel.roof_s <= kernel.low_s <= kernel.time_s <= kernel.high_s
            assert kernel.high_s > kernel.time_s


@pytest.mark.parametrize("hardware", VLLM)
@pytest.mark.parametrize("size", ["m", "n", "k"])
def test_gemms_grow_up_to_the_tiles_steps(hardware, size):
    """Doubling a size never saves more than 10 %: kernels change, and rows say so."""
    d = device(hardware)
    shapes = {"m": 64, "n": 4096, "k": 4096}
    times = []
    for value in 2.0 ** np.arange(5, 16):
        s = shapes | {size: int(value)}
        op = Gemm(name="g", weight_bytes=2 * s["n"] * s["k"], **s)
        times.append(float(d.time(op).time_s))
    assert np.all(np.diff(np.log(times)) > -0.1)


def test_arrays_are_as_scalars():
    model = perfmodel.load_model("mixtral-8x7b")
    d = device("h100-sxm")
    batches = np.array([1.0, 7.0, 64.0])
    many = step_operators(model, Step("decode", batches, 1, 1000), parallel=Parallel(tp=4))
    for i, batch in enumerate(batches):
        one = step_operators(model, Step("decode", int(batch), 1, 1000), parallel=Parallel(tp=4))
        for a, b in zip(many, one, strict=True):
            at = np.broadcast_to(d.time(a).time_s, batches.shape)[i]
            assert at == pytest.approx(float(d.time(b).time_s), rel=1e-12), a.name


def test_a_relative_prices_what_was_not_measured():
    own, other = choose_calibration(load_hardware("h100-sxm")), None
    assert own is not None
    assert own.origin == "fitted"
    other = choose_calibration(load_hardware("h800-sxm"))  # the same chip, other links
    assert other is not None
    assert other.origin == "transferred"
    assert other.calibrated.hardware in {"h100-sxm", "h200-sxm"}
    assert choose_calibration(load_hardware("mi300x")) is None
    gemm = Gemm(name="g", weight_bytes=2 * 4096 * 4096, m=64, n=4096, k=4096)
    a, b = device("h100-sxm").time(gemm), device("h800-sxm").time(gemm)
    assert (a.source, b.source) == ("fitted", "transferred")
    assert b.high_s / b.time_s > a.high_s / a.time_s


def test_generic_and_unknown_stacks():
    deployment = perfmodel.Deployment(stack="generic")
    assert perfmodel.estimate("llama-3.1-8b", "h100-sxm", None, deployment).calibration == "assumed"
    with pytest.raises(InputError, match="--stack"):
        perfmodel.estimate("llama-3.1-8b", "h100-sxm", None, perfmodel.Deployment(stack="tensorrt"))


def test_what_a_fused_kernel_does_takes_no_time_of_its_own():
    model = perfmodel.load_model("mixtral-8x7b")
    d = device("h100-sxm")
    for op in step_operators(model, Step("decode", 8, 1, 1000)):
        if isinstance(op, Elementwise) and op.part_of == "experts":
            assert d.time(op).time_s == 0
            assert d.time(op).source == "in experts"


def test_exchanges_between_nodes_are_not_priced_by_those_inside():
    d = device("h100-sxm")
    inside = Collective(name="a", kind="all_reduce", message_bytes=1e6, ranks=8, span=8)
    assert d.time(inside).source == "fitted"
    assert d.time(dataclasses.replace(inside, ranks=16, span=16)).source == "assumed"


def test_an_eager_launch_comes_on_top():
    gemm = Gemm(name="g", weight_bytes=2 * 64 * 64, m=1, n=64, k=64)
    graph, eager = device("h100-sxm"), device("h100-sxm", execution="eager")
    assert eager.time(gemm).time_s == pytest.approx(graph.time(gemm).time_s + eager.launch_s)


def test_encoding_keeps_single_precision():
    values = np.random.default_rng(0).normal(size=(7, 3))
    np.testing.assert_allclose(decode(encode(values), (7, 3)), values, rtol=1e-6)


STATED = [
    ("a100-sxm-80gb", "attention_decode"),
    ("h100-sxm", "attention_prefill"),
    ("l40s", "moe"),
]


@pytest.mark.skipif(data_dir() is None, reason=REASON)
@pytest.mark.parametrize(("name", "family"), STATED)
def test_a_file_is_as_good_as_it_says(name, family):
    """All rows together, of which at most 300 were fitted, show the errors of those left over."""
    from calibrate.tables import read_table
    from calibrate.validate import validate_table

    hardware = load_hardware(name)
    found = choose_calibration(hardware)
    table = read_table(data_dir() / "measurements" / f"{family}.parquet", hardware)
    kept = (table.rows["dtype"] == "bfloat16").to_numpy()
    rows = table.rows[kept].reset_index(drop=True)
    table = dataclasses.replace(table, rows=rows, numbers=table.numbers[kept])
    stated = read_calibration(available()[name]["vllm"]).sets
    scores = validate_table(table, hardware, found).scores
    (score,) = (s.score for s in scores if (s.dtype, s.regime) == ("bfloat16", "all"))
    held_out = stated[f"{family.replace('moe', 'experts')}.bf16"].errors["all"]
    assert score.median == pytest.approx(held_out.median, abs=0.5)
    assert score.p90 == pytest.approx(held_out.p90, abs=1.5)


def test_narrower_experts_are_not_slower():
    """ModelOpt's FP8 kernel, slow on Hopper, doesn't stand for what a server would run."""
    deployment = perfmodel.Deployment(tp=2, weights="fp8")
    times = perfmodel.estimate("mixtral-8x7b", "h100-sxm", None, deployment)
    wide = perfmodel.estimate("mixtral-8x7b", "h100-sxm", None, perfmodel.Deployment(tp=2))
    assert times.tpot_s <= wide.tpot_s
    assert times.ttft_s <= wide.ttft_s


def test_experts_take_the_kernel_that_was_measured_so():
    """vLLM on Hopper: block-scaled FP8 experts run Triton's kernel unless they are spread (ep)."""
    d = device("h200-sxm")
    sets = d.choice.calibrated.sets
    own = kernels_of("experts.fp8_block", sets)
    assert own[0] == "experts.fp8_block"
    assert len(own) == 2
    shapes = {
        "tokens": np.array([8.0, 8.0, 512.0, 512.0]), "hidden": 7168.0, "inter": 2048.0,
        "topk": 8.0, "experts": 256.0, "weight_bytes": 1.0, "gated": 1.0, "routing": UNIFORM,
        "moe_tp": np.array([8.0, 1.0, 8.0, 1.0]), "moe_ep": np.array([1.0, 8.0, 1.0, 8.0]),
    }  # fmt: skip
    flat = with_load({n: np.broadcast_to(np.asarray(v), (4,)) for n, v in shapes.items()})
    names = measured_nearest(flat, {n: (sets[n], d.chip("fp8")) for n in own})
    assert list(names) == [own[1], own[0]] * 2
    assert "triton" in own[1]
    model = perfmodel.load_model("deepseek-v3")
    for ep, name in ((1, own[1]), (8, own[0])):
        deployment = perfmodel.Deployment(tp=8, ep=ep)
        step = perfmodel.estimate(model, "h200-sxm", perfmodel.Workload(batch=8), deployment)
        (row,) = (o for o in step.decode.cost.operators if o.name == "experts.down_proj")
        asked = flat | {"moe_tp": np.full(4, 8.0 / ep), "moe_ep": np.full(4, float(ep))}
        kept = {n: v for n, v in asked.items() if n in shapes}
        layer = sets[name].kernels.predict(d.chip("fp8"), with_load(kept | {"weight_bytes":
            np.full(4, 1 + 4 / 128**2)}))[0][0]  # fmt: skip
        assert row.cost.time_s / row.count == pytest.approx(layer / 3, rel=0.02)


@pytest.mark.parametrize("hardware", ["h100-sxm", "b200-sxm"])
@pytest.mark.parametrize("model", ["gpt-oss-120b", "deepseek-v3", "mixtral-8x7b"])
def test_more_tokens_than_were_measured_bring_in_no_other_kernel(hardware, model):
    """A layer's time grows with its tokens, beyond the measured range as within it."""
    made = perfmodel.Deployment(tp=8 if model == "deepseek-v3" else 2)
    batches = np.array([8, 16, 24, 32, 48, 64, 96, 128, 256])
    load = perfmodel.Workload(batch=batches, prompt=1024, output=2)
    found = perfmodel.estimate(model, hardware, load, made)
    (row,) = (o for o in found.prefill.cost.operators if o.name == "experts.down_proj")
    per_token = row.cost.time_s / batches
    assert np.all(np.diff(row.cost.time_s) > 0)
    assert np.all(np.abs(np.diff(np.log(per_token))) < 0.25)


def test_a_slow_kernel_is_not_launch_bound():
    """Three roofs and more, but milliseconds: no launch takes so long."""
    d = device("h100-sxm")
    whole = Gemm(name="g", weight_bytes=2 * 64 * 64, m=1, n=64, k=64)
    assert bound_times(d.time(whole))["launch"] > 0
    short = dataclasses.replace(d.time(whole), time_s=1e-3, compute_s=1e-4, latency_s=LATENCY_S)
    assert bound_times(short)["launch"] == 0


def test_what_no_set_prices_is_counted():
    own = perfmodel.estimate("llama-3.1-8b", "h100-sxm")
    assert 0 < own.decode.cost.assumed_share < 0.5
    none = perfmodel.estimate(
        "llama-3.1-8b", "h100-sxm", None, perfmodel.Deployment(stack="generic")
    )
    assert none.prefill.cost.assumed_share > 0.9


WRONG = {
    "intervals": ("intervals", {"all": {"low": -0.1, "high": 0.1, "rows": 9}}),
    "box_low": ("box_low", [0.0]),
    "box_high": ("box_high", [float("nan")] * 4),
    "residual": (
        "residual",
        {"variance": 1.0, "lengths": [1.0], "rows": -1, "points": "", "weights": ""},
    ),
    "form": ("form", "gemm-tyles"),
    "facts": ("facts", {"library": "cublas", "tiles": 3}),
    "parameters": ("parameters", {}),
    "at_bound": ("at_bound", "none"),
}


@pytest.mark.parametrize("field", WRONG)
def test_a_wrong_field_is_named(tmp_path, field):
    path = available()["h100-sxm"]["vllm"]
    data = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    key, value = WRONG[field]
    data["sets"] = {"gemm.bf16": data["sets"]["gemm.bf16"] | {key: value}}
    broken = tmp_path / "h100-sxm.vllm.yaml"
    broken.write_text(yaml.safe_dump(data))
    with pytest.raises(InputError, match=key) as caught:
        load_calibrated(broken)
    assert "\n" not in str(caught.value)
    assert "h100-sxm.vllm.yaml" in str(caught.value)


def test_the_docs_table_is_what_the_files_say():
    from calibrate.error_table import with_table

    page = Path(__file__).resolve().parents[2] / "docs" / "kernels.md"
    text = page.read_text(encoding="utf-8")
    assert with_table(text) == text
