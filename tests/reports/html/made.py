"""Reports that several tests look at, each made once."""

from functools import cache

import perfmodel
from perfmodel import Deployment, Workload
from reports.html.grid import Case
from reports.html.page import render
from reports.html.record import make_report


def case(model="llama-3.1-8b", hardware="h100-sxm", work=None, deployment=None, **more):
    return Case(
        perfmodel.load_model(model),
        perfmodel.load_hardware(hardware),
        Workload(**(work or {"batch": 8, "prompt": 2048})),
        Deployment(**(deployment or {})),
        **more,
    )


@cache
def llama():
    """Eight prompts of 2,048 tokens on an H100: a case that fits, calibrated."""
    return make_report(case(), command="perfmodel report llama-3.1-8b")


@cache
def llama_page():
    """Its page."""
    return render(llama())


@cache
def too_large():
    """Seventy thousand million parameters in 16 bits on one H100: nothing fits."""
    return make_report(case("llama-3.1-70b"))
