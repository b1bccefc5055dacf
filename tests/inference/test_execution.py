"""How kernels are started: what graphs save, and what steps without one pay."""

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel import Deployment, Workload, estimate
from perfmodel.errors import InputError
from perfmodel.inference.host import HOST_ROW
from perfmodel.inference.record import estimate_record
from perfmodel.specs.engine import ENGINES
from perfmodel.specs.yaml_file import read_yaml

LAUNCH = 5e-6  # generic.yaml: eager_us, what a launch adds to a measured kernel
BEYOND = 3.5e-6  # eager_us − graph_us, what it adds to a kernel of assumed shares


@pytest.fixture
def engine_file(tmp_path):
    def write(base="vllm", **changes):
        data = {**read_yaml(ENGINES / f"{base}.yaml"), "name": "mine", **changes}
        path = tmp_path / f"mine{len(list(tmp_path.iterdir()))}.yaml"
        path.write_text(yaml.safe_dump(data))
        return str(path)

    return write


def test_graphs_save_kernels_times_launch_exactly():
    """Llama-3.1-8B on assumed shares: 10 kernels a layer (two norms, QKV, rotary, cache write,
    attention, output, up and gate, activation, down) and embedding, final norm, head, sampling.
    """
    given = Deployment(stack="generic")
    result = estimate("llama-3.1-8b", "h100-sxm", deployment=given)
    assert result.decode.cost.total.launches == 32 * 10 + 4
    assert result.decode.graphs_save_s == pytest.approx(324 * BEYOND)
    eager = estimate(
        "llama-3.1-8b", "h100-sxm", deployment=Deployment(stack="generic", execution="eager")
    )
    assert eager.decode.time_s - result.decode.time_s == pytest.approx(324 * BEYOND)
    assert eager.decode.graphs_save_s == result.decode.graphs_save_s


def test_a_measured_kernels_time_holds_a_graphs_launch():
    """Per layer: four products and attention measured, five passes on assumed shares."""
    graph = estimate("llama-3.1-8b", "h100-sxm")
    eager = estimate("llama-3.1-8b", "h100-sxm", deployment=Deployment(execution="eager"))
    saved = (32 * 5 + 1) * LAUNCH + (32 * 5 + 3) * BEYOND
    assert graph.decode.graphs_save_s == pytest.approx(saved)
    assert eager.decode.time_s - graph.decode.time_s == pytest.approx(saved)
    record = estimate_record(graph)["decode"]["launch"]
    assert record["kernels"] == 324
    assert record["started"] == "graph"
    assert record["graphs_save_s"] == pytest.approx(saved)


@settings(deadline=None, max_examples=15)
@given(
    st.sampled_from(["llama-3.1-8b", "deepseek-v2-lite", "qwen3-next-80b-a3b"]),
    st.sampled_from(["h100-sxm", "mi300x"]),
    st.integers(1, 64),
)
def test_eager_takes_what_graphs_save_over_cases(name, hardware, batch):
    load = Workload(batch=batch, prompt=256, output=4)
    graph = estimate(name, hardware, load)
    eager = estimate(name, hardware, load, Deployment(execution="eager"))
    assert eager.decode.time_s - graph.decode.time_s == pytest.approx(
        graph.decode.graphs_save_s, rel=1e-6
    )
    assert eager.decode.cost.total.flops == graph.decode.cost.total.flops


def test_decode_beyond_the_largest_graph_pays_launches():
    """vLLM captures 512 sequences: 513 launch one by one, and numbers equal arrays."""
    batch = np.array([512, 513])
    load = Workload(batch=batch, prompt=16, output=4)
    result = estimate("llama-3.1-8b", "h200-sxm", load)
    for index, (size, how) in enumerate(((512, "graph"), (513, "eager"))):
        one = estimate("llama-3.1-8b", "h200-sxm", Workload(batch=size, prompt=16, output=4))
        assert one.decode.started == how
        assert result.decode.started[index] == how
        assert result.decode.time_s[index] == pytest.approx(one.decode.time_s)
        assert result.tpot_s[index] == pytest.approx(one.tpot_s)
        assert any("captured graphs" in note for note in one.warnings) == (how == "eager")
    stated = Deployment(execution="eager")
    eager = estimate("llama-3.1-8b", "h200-sxm", load, stated)
    gain = eager.decode.time_s - result.decode.time_s
    assert gain[0] == pytest.approx(result.decode.graphs_save_s[0])
    assert gain[1] == pytest.approx(0, abs=1e-12)


def test_a_prefill_ahead_of_the_device_takes_as_long_as_its_launches(engine_file):
    """A small model's prompt of one token: N launches of 5 µs are longer than its kernels; those of
    4,096 tokens are longer than their launches.
    """
    silent = {"source": "test", "spread": 2.0}

    def result(prompt, captured):
        graph = {"counted": True, "prefill_tokens": captured, "source": "test"}
        given = Deployment(engine=engine_file(host=silent, graph=graph))
        return estimate("qwen3-0.6b", "h100-sxm", Workload(prompt=prompt, output=2), given)

    free, bound = result(1, 4096), result(1, 0)
    assert (free.prefill.started, bound.prefill.started) == ("graph", "ahead")
    launches = free.prefill.cost.total.launches * LAUNCH
    assert free.ttft_s < launches
    assert bound.ttft_s == pytest.approx(launches)
    assert bound.prefill.graphs_save_s == 0
    assert bound.prefill.cost.operators[-1].name == HOST_ROW
    assert bound.decode.time_s == free.decode.time_s
    assert result(4096, 0).ttft_s == pytest.approx(result(4096, 4096).ttft_s)


def test_an_engine_without_graphs_launches_at_its_own_cost(engine_file):
    base = estimate("llama-3.1-8b", "h100-sxm")
    none = {"counted": True, "decode": False, "source": "test"}
    own = estimate(
        "llama-3.1-8b", "h100-sxm", deployment=Deployment(engine=engine_file(graph=none))
    )
    assert own.plan.deployment.execution == "eager"
    assert own.decode.time_s - base.decode.time_s == pytest.approx(base.decode.graphs_save_s)
    cheap = engine_file(graph={**none, "launch_us": 2.0})
    paid = estimate("llama-3.1-8b", "h100-sxm", deployment=Deployment(engine=cheap))
    assert paid.decode.time_s - base.decode.time_s == pytest.approx(324 * 2e-6)


def test_graphs_are_refused_where_none_are_captured():
    with pytest.raises(InputError, match=r"--execution graph: lmdeploy captures no graphs"):
        estimate(
            "llama-3.1-8b",
            "h100-sxm",
            deployment=Deployment(engine="lmdeploy", execution="graph"),
        )


def test_arrays_of_several_axes_name_each_setting():
    load = Workload(batch=np.array([[1], [600]]), prompt=np.array([8, 4096]), output=2)
    result = estimate("qwen3-0.6b", "h200-sxm", load)
    assert result.prefill.started == [["graph", "ahead"], ["ahead", "ahead"]]
    assert np.asarray(result.prefill.graphs_save_s > 0).tolist() == [[True, False], [False, False]]
    assert result.decode.started == [["graph"], ["eager"]]
    record = estimate_record(result)
    assert record["decode"]["launch"]["started"] == [["graph"], ["eager"]]


def test_fitted_presets_hold_their_launches():
    result = estimate("llama-2-7b", "a100-sxm-80gb", deployment=Deployment(engine="trtllm"))
    assert result.decode.started == "fitted"
    assert result.plan.deployment.execution == "graph"


def test_the_roof_has_no_launches_to_save():
    roof = estimate("llama-3.1-8b", "h100-sxm", roofline_only=True)
    assert roof.decode.graphs_save_s == 0


def test_fusion_changes_bytes_and_time_not_flops():
    made = {
        level: estimate("qwen3-32b", "h100-sxm", deployment=Deployment(weights="fp8", fusion=level))
        for level in ("full", "engine", "none")
    }
    totals = [made[level].decode.cost.total for level in ("full", "engine", "none")]
    assert totals[0].bytes < totals[1].bytes < totals[2].bytes
    assert made["full"].tpot_s < made["engine"].tpot_s < made["none"].tpot_s
    assert totals[0].flops == totals[1].flops == totals[2].flops


def test_a_named_attention_replaces_the_engines_own():
    """llama.cpp's unfused scores and its factor are its own kernel's."""
    load = Workload(prompt=4096, output=2)
    own = Deployment(engine="llamacpp-cuda", max_model_len=8192)
    flash = own.model_copy(update={"attention": "flash2"})
    slow = estimate("llama-2-7b", "rtx-4090", load, own)
    fast = estimate("llama-2-7b", "rtx-4090", load, flash)
    assert fast.ttft_s < slow.ttft_s
    assert fast.prefill.cost.total.flops == slow.prefill.cost.total.flops
    assert fast.prefill.cost.total.bytes < slow.prefill.cost.total.bytes
    assert fast.memory.activation_bytes < slow.memory.activation_bytes
