"""Small measured tables made from a form's own predictions, and calibrations to match."""

import numpy as np
import pandas as pd
import yaml

from calibrate.table_work import shapes_of
from perfmodel.kernels.calibration_file import Calibrated, LoadedSet, form_facts
from perfmodel.kernels.choice import Choice
from perfmodel.kernels.forms.attention_decode import AttentionDecode
from perfmodel.kernels.forms.gemm import GemmForm
from perfmodel.kernels.kernel_set import Interval, KernelSet
from perfmodel.kernels.timing import DeviceModel
from perfmodel.specs.hardware import load_hardware

DEVICE = load_hardware("h100-sxm")
WIDTH = 0.2
"""Half-width of the sets' intervals, in log."""
ORIGIN = {
    "gpu": "h100-sxm", "framework": "vllm", "framework_version": "0.24.0", "kernel": "linear",
}  # fmt: skip


def grid(**axes):
    """A frame of all combinations, the last axis fastest, with origin columns first."""
    columns = np.meshgrid(*axes.values(), indexing="ij")
    sizes = {name: column.ravel() for name, column in zip(axes, columns, strict=True)}
    return pd.DataFrame(ORIGIN | sizes)


def gemm_shapes():
    frame = grid(dtype=["bfloat16"], n=[512, 4096], k=[1024, 8192], m=[1, 16, 64, 256, 1024, 4096])
    return frame.astype({"m": int, "n": int, "k": int})


def decode_shapes():
    frame = grid(
        dtype=["bfloat16"], kv_dtype=["bfloat16"], batch=[1, 16], heads=[32], kv_heads=[8],
        head_dim=[128], window=[0, 512], kv_len=[256, 1024, 8192],
    )  # fmt: skip
    sizes = ["batch", "heads", "kv_heads", "head_dim", "window", "kv_len"]
    return frame.astype(dict.fromkeys(sizes, int))


def kernel_set(family, frame):
    """A set with the form's starting values, that was checked on the frame's shapes."""
    form = GemmForm() if family == "gemm" else AttentionDecode()
    chip = DeviceModel(DEVICE, None).chip("bf16")
    features = form.features(chip, shapes_of(family, frame))
    return KernelSet(
        form=form,
        values={p.name: p.start for p in form.parameters},
        residual=None,
        intervals={name: Interval(-WIDTH, WIDTH, 100) for name in form.regimes},
        box_low=features.min(axis=0),
        box_high=features.max(axis=0),
    )


def timed(family, frame, noise=0.0):
    """The frame with times: the set's predictions times exp(noise)."""
    chip = DeviceModel(DEVICE, None).chip("bf16")
    seconds, _, _ = kernel_set(family, frame).predict(chip, shapes_of(family, frame))
    return frame.assign(latency_us=1e6 * seconds * np.exp(noise))


def choice(origin="fitted"):
    """A calibration with a GEMM and a decode set."""
    sets = {
        "gemm.bf16": LoadedSet(kernel_set("gemm", gemm_shapes()), "bf16"),
        "attention_decode.bf16": LoadedSet(kernel_set("attention_decode", decode_shapes()), "bf16"),
    }
    return Choice(Calibrated("h100-sxm", "vllm", "0.24.0", sets), origin)


def calibration_file(path):
    """The GEMM set of `choice` as a calibration file."""
    made = kernel_set("gemm", gemm_shapes())
    errors = {"rows": 24, "median": 1.0, "mean": 1.0, "p90": 2.0, "bias": 0.0, "coverage": 90.0}
    record = {
        "form": made.form.name,
        "facts": form_facts(made.form),
        "arithmetic": "bf16",
        "kernels": "linear",
        "rows": 24,
        "parameters": {
            p.name: {"value": p.start, "relative_error": 0.1, "unit": p.unit}
            for p in made.form.parameters
        },
        "at_bound": [],
        "intervals": {
            name: {"low": -WIDTH, "high": WIDTH, "rows": 100} for name in made.form.regimes
        },
        "box_low": [float(x) for x in made.box_low],
        "box_high": [float(x) for x in made.box_high],
        "errors": {"all": errors},
    }
    whole = {
        "schema": 1, "hardware": "h100-sxm", "stack": "vllm", "release": "0.24.0",
        "origin": "fitted", "date": "2026-11-29", "source": "synthetic",
        "sets": {"gemm.bf16": record},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(whole))
    return path
