"""Pictures that are compared with baselines.

``python -m tests.reports.pictures_case`` redraws the baselines: only after looking at what changed.
"""

from functools import cache
from pathlib import Path

import numpy as np

import perfmodel
from reports.batch import batch_figure
from reports.breakdown import breakdown_figure
from reports.figure import style
from reports.front import front_figure
from reports.memory import memory_figure
from reports.roofline import roofline_figure
from tests.reports.workbook.support import plan

BASELINES = Path(__file__).parent / "baselines"
DPI = 56
BATCHES = 2 ** np.arange(8)


@cache
def over_batch(hardware):
    load = perfmodel.Workload(batch=BATCHES, prompt=1024, output=256)
    return perfmodel.estimate("llama-3.1-8b", hardware, load)


@cache
def over_context():
    load = perfmodel.Workload(batch=8, prompt=2 ** np.arange(7, 17), output=256)
    return perfmodel.estimate("llama-3.1-8b", "h100-sxm", load)


@cache
def roofs(*hardware, model="llama-3.1-8b", **load):
    return perfmodel.roofline(model, list(hardware), perfmodel.Workload(**load))


@cache
def planned():
    return plan()


FIGURES = {
    "roofline": lambda size: roofline_figure(roofs("h100-sxm", batch=8, prompt=2048), size=size),
    "roofline-two": lambda size: roofline_figure(
        roofs("h100-sxm", "l40s", batch=8, prompt=2048), size=size
    ),
    "roofline-experts": lambda size: roofline_figure(
        roofs("h200-sxm", model="gpt-oss-20b", batch=32, prompt=1024), size=size
    ),
    "breakdown": lambda size: breakdown_figure(over_batch("h100-sxm"), size),
    "batch": lambda size: batch_figure([over_batch("h100-sxm"), over_batch("l40s")], 0.05, size),
    "memory": lambda size: memory_figure(over_context(), size),
    "front": lambda size: front_figure(planned(), size),
}
"""Figures by name, each of a size in inches."""
SIZES = {"small": (6.0, 4.5), "default": (9.0, 6.0), "wide": (14.0, 6.0)}


def draw(name, path, size="default"):
    with style():
        FIGURES[name](SIZES[size]).savefig(path, format="png", dpi=DPI)


if __name__ == "__main__":
    for each in FIGURES:
        draw(each, BASELINES / f"{each}.png")
