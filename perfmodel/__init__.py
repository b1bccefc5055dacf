"""How long LLM prefill and decode take on an accelerator, what limits them, what fits.

>>> import perfmodel
>>> result = perfmodel.estimate("llama-3.1-8b", "h100-sxm", perfmodel.Workload(batch=8))
>>> result.memory.fits
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfmodel.errors import CapacityError, InputError, PerfmodelError, UnknownNameError
    from perfmodel.inference.estimate import Estimate, estimate
    from perfmodel.inference.record import estimate_record
    from perfmodel.inference.roofline import Roofline, roofline
    from perfmodel.inference.roofline_record import roofline_record
    from perfmodel.operators.parameters import count_parameters
    from perfmodel.planning.advice import Advice, advise
    from perfmodel.planning.capacity.answer import Plan
    from perfmodel.planning.capacity.plan import plan
    from perfmodel.planning.capacity.question import Rules
    from perfmodel.planning.capacity.record import plan_record
    from perfmodel.planning.lever import Limits
    from perfmodel.planning.record import advice_record
    from perfmodel.planning.sweep.answer import Swept, sweep, sweep_parts
    from perfmodel.planning.sweep.fast import FastEstimate, fast_estimate
    from perfmodel.serving.arrivals import ClosedLoop, Demand, OpenLoop, Trace
    from perfmodel.serving.lengths import Lengths
    from perfmodel.serving.results import Simulation, simulation_record
    from perfmodel.serving.serve import Serving, simulate
    from perfmodel.serving.steady_state import SteadyState, steady_state
    from perfmodel.specs.deployment import Deployment
    from perfmodel.specs.hardware import Hardware, hardware_names, load_hardware
    from perfmodel.specs.loading import load_model, model_names
    from perfmodel.specs.model import Model
    from perfmodel.specs.speculation import Speculation
    from perfmodel.specs.traffic import RequestClass, ServiceLevel, Traffic, load_traffic
    from perfmodel.specs.workload import Workload

__version__ = "0.1.0"

_HOME = {
    "Advice": "perfmodel.planning.advice",
    "CapacityError": "perfmodel.errors",
    "ClosedLoop": "perfmodel.serving.arrivals",
    "Demand": "perfmodel.serving.arrivals",
    "Deployment": "perfmodel.specs.deployment",
    "Estimate": "perfmodel.inference.estimate",
    "FastEstimate": "perfmodel.planning.sweep.fast",
    "Hardware": "perfmodel.specs.hardware",
    "InputError": "perfmodel.errors",
    "Lengths": "perfmodel.serving.lengths",
    "Limits": "perfmodel.planning.lever",
    "Model": "perfmodel.specs.model",
    "OpenLoop": "perfmodel.serving.arrivals",
    "PerfmodelError": "perfmodel.errors",
    "Plan": "perfmodel.planning.capacity.answer",
    "RequestClass": "perfmodel.specs.traffic",
    "Roofline": "perfmodel.inference.roofline",
    "Rules": "perfmodel.planning.capacity.question",
    "ServiceLevel": "perfmodel.specs.traffic",
    "Serving": "perfmodel.serving.serve",
    "SharedPrefix": "perfmodel.serving.shared_prefix",
    "Simulation": "perfmodel.serving.results",
    "Speculation": "perfmodel.specs.speculation",
    "SteadyState": "perfmodel.serving.steady_state",
    "Swept": "perfmodel.planning.sweep.answer",
    "Trace": "perfmodel.serving.arrivals",
    "Traffic": "perfmodel.specs.traffic",
    "UnknownNameError": "perfmodel.errors",
    "Workload": "perfmodel.specs.workload",
    "advice_record": "perfmodel.planning.record",
    "advise": "perfmodel.planning.advice",
    "count_parameters": "perfmodel.operators.parameters",
    "estimate": "perfmodel.inference.estimate",
    "estimate_record": "perfmodel.inference.record",
    "fast_estimate": "perfmodel.planning.sweep.fast",
    "hardware_names": "perfmodel.specs.hardware",
    "load_hardware": "perfmodel.specs.hardware",
    "load_model": "perfmodel.specs.loading",
    "load_traffic": "perfmodel.specs.traffic",
    "model_names": "perfmodel.specs.loading",
    "plan": "perfmodel.planning.capacity.plan",
    "plan_record": "perfmodel.planning.capacity.record",
    "roofline": "perfmodel.inference.roofline",
    "roofline_record": "perfmodel.inference.roofline_record",
    "simulate": "perfmodel.serving.serve",
    "simulation_record": "perfmodel.serving.results",
    "steady_state": "perfmodel.serving.steady_state",
    "sweep": "perfmodel.planning.sweep.answer",
    "sweep_parts": "perfmodel.planning.sweep.answer",
}

__all__ = [
    "Advice",
    "CapacityError",
    "ClosedLoop",
    "Demand",
    "Deployment",
    "Estimate",
    "FastEstimate",
    "Hardware",
    "InputError",
    "Lengths",
    "Limits",
    "Model",
    "OpenLoop",
    "PerfmodelError",
    "Plan",
    "RequestClass",
    "Roofline",
    "Rules",
    "ServiceLevel",
    "Serving",
    "SharedPrefix",
    "Simulation",
    "Speculation",
    "SteadyState",
    "Swept",
    "Trace",
    "Traffic",
    "UnknownNameError",
    "Workload",
    "__version__",
    "advice_record",
    "advise",
    "count_parameters",
    "estimate",
    "estimate_record",
    "fast_estimate",
    "hardware_names",
    "load_hardware",
    "load_model",
    "load_traffic",
    "model_names",
    "plan",
    "plan_record",
    "roofline",
    "roofline_record",
    "simulate",
    "simulation_record",
    "steady_state",
    "sweep",
    "sweep_parts",
]


def __getattr__(name: str) -> Any:
    """Load a public name where it is first used, so that `import perfmodel` costs nothing."""
    if name not in _HOME:
        raise AttributeError(f"module 'perfmodel' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
