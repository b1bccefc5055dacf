"""A sweep refuses exactly the settings that `estimate` refuses, and counts them by reason."""

import itertools

import pytest

from perfmodel import Deployment, InputError, Workload, estimate
from perfmodel.planning.sweep.answer import Sweep
from perfmodel.specs.sweep import parse_sweep

H100 = {"model": "llama-3.1-8b", "hardware": "h100-sxm", "stack": "generic"}
SWEEPS = {
    "replicas and contexts": H100
    | {"dp": "1,2,4", "batch": "1,2,3,8", "context": "100,300", "output": "1,64,300"},
    "learned positions": H100
    | {"model": "gpt2", "batch": "1,4", "prompt": "1,1000,1023,1024", "output": "1,2,25"},
    "stated limits": H100
    | {"max_model_len": "1024,2048", "max_num_seqs": "2,16", "kv_layout": "paged,contiguous",
       "batch": "1,2,17", "prompt": "1,1000,1023", "output": "1,25,1100"},
    "a reserved cache": H100
    | {"kv_layout": "contiguous", "prompt": "1,131071,131072", "output": "1,25"},
    "prefixes": H100
    | {"cp": "1,4", "cached_prefix": "0,16", "prefix_share": "none,0.5", "batch": "1,2",
       "prompt": "1,4,16,17,20", "output": "1,25"},
    "micro-batches": H100
    | {"pp": "1,2", "pp_microbatches": "1,4", "prefill_chunk": "none,128", "dp": "1,2",
       "batch": "1,4,8", "prompt": "1,128,513", "output": "2"},
    "deployments": H100
    | {"hardware": "h100-sxm,a100-sxm-80gb", "weights": "fp8,bf16", "kv_window": "none,64",
       "attention": "none,flash3", "cached_prefix": "0,16", "prompt": "20", "output": "5"},
    "speculation": H100
    | {"speculation": [None, {"method": "ngram", "tokens": 2, "acceptance": 0.5}],
       "pp": "1,2", "output": "1,2"},
}  # fmt: skip


def refusal(axes):
    """What `estimate` says of one setting; None where it answers."""
    given = dict(axes)
    if "context" in given:
        given["prompt"] = given.pop("context") - given["output"]
    names = ("batch", "prompt", "output", "cached_prefix", "prefix_share", "prefill_chunk")
    load = {name: given.pop(name) for name in names if name in given}
    model, hardware = given.pop("model"), given.pop("hardware")
    try:
        estimate(model, hardware, Workload(**load), Deployment(**given))
    except InputError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", SWEEPS)
def test_the_same_settings_are_refused(name):
    sweep = Sweep(parse_sweep(SWEEPS[name]))
    part = sweep.part(0, sweep.settings)
    kept = set(part.table.columns["setting"].tolist())
    names = [axis for axis, _ in sweep.spec.axes]
    reasons = {}
    settings = itertools.product(*(values for _, values in sweep.spec.axes))
    for number, values in enumerate(settings):
        said = refusal(dict(zip(names, values, strict=True)))
        assert (said is None) == (number in kept), (values, said)
        reasons.setdefault(said, number)
    assert sum(each.settings for each in part.refused) == sweep.settings - len(kept)
    for each in part.refused:  # the very line, but for a prompt of less than a token
        assert each.reason in reasons or each.reason.startswith("--context")
