"""Served rows of the published table: mapping, reasons, one run by hand, and the real table."""

from collections import Counter
from dataclasses import replace
from math import inf

import pytest

from calibrate.published.cases import Unmapped
from calibrate.published.reader import Row, read_published
from calibrate.published.served_cases import load_of, loads, repeated
from calibrate.published.served_names import SERVED
from calibrate.published.served_report import report, score_of
from calibrate.published.served_run import Found, Runner, find_all
from calibrate.published.served_settings import capped, flags_in, tuned_limits
from perfmodel.serving.arrivals import ClosedLoop, OpenLoop
from tests.data import REASON, data_dir

LAB = Row(
    id="gpustack-lab-9001", source="gpustack-lab", metric="throughput_tok_s_total", value=500.0,
    model="Llama-3.1-8B", gpu="H100-SXM-80GB", gpus=1, tp=1, pp=1, ep=1, dp=1, weights="bf16",
    kv="bf16", engine="vLLM", version="0.11.0", load_mode="closed_loop_concurrency", batch="8",
    prompt="1000", output="100", spec_decode="", completeness="A",
    notes="random prompts, exact lengths; default flags", page="a page",
)  # fmt: skip
MAXLOAD = replace(
    LAB, id="trtllm-maxload-v1.0-9001", source="trtllm-maxload-v1.0", weights="fp8", kv="fp8",
    engine="TensorRT-LLM (PyTorch backend)", version="1.0", load_mode="max_throughput_offline",
    batch="inf (num_requests=3000)", notes="",
)  # fmt: skip


def row(**changes):
    return replace(LAB, **changes)


def test_a_closed_loop_sends_ten_rounds():
    found = load_of(LAB)
    assert found.demand.arrivals == ClosedLoop(8)
    assert found.demand.requests == 80  # ten of each of 8 users
    assert (found.demand.prompt.mean, found.demand.output.mean) == (1000, 100)
    assert (found.model, found.hardware) == ("llama-3.1-8b", "h100-sxm")
    assert (found.quantity, found.measured, found.kind) == ("throughput", 500.0, "dense")
    assert not found.serving.prefix_caching


def test_offline_throughput_is_everything_at_once():
    found = load_of(MAXLOAD)
    assert found.demand.arrivals == OpenLoop(inf)
    assert found.demand.requests == 3000
    assert found.tuned
    assert (found.deployment.weights, found.deployment.kv_cache) == ("fp8", "fp8")
    assert found.deployment.gpu_memory_utilization == 0.95


def test_a_cap_of_the_client_makes_a_burst_a_closed_loop():
    found = load_of(row(batch="burst of 1000, client cap 512"))
    assert (found.demand.arrivals, found.demand.requests) == (ClosedLoop(512), 1000)


def test_flags_in_notes_become_settings():
    notes = "exact lengths; flags: max-num-batched-tokens 4096, gpu-memory-utilization 0.85"
    found = load_of(row(notes=notes)).deployment
    assert (found.max_num_batched_tokens, found.gpu_memory_utilization) == (4096, 0.85)


def test_pools_come_from_the_notes():
    found = load_of(row(
        source="dstack-pd-ratio", engine="SGLang (PD disaggregation)", batch="128",
        notes="1 prefill + 3 decode workers, each TP2; nominal 1000/2048, actual means given",
    ))  # fmt: skip
    assert found.serving.disaggregate == (1, 3)
    assert found.median
    assert found.demand.requests == 500


def test_checkpoints_with_block_scales_are_told_apart():
    assert load_of(row(model="Qwen3-32B-FP8", weights="fp8")).deployment.weights == "fp8_block"
    assert load_of(row(weights="fp8")).deployment.weights == "fp8"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"completeness": "C"}, "graded C"),
        ({"spec_decode": "MTP"}, "speculation"),
        ({"batch": "1"}, "no load"),
        ({"pp": 2}, "pipeline stages"),
        ({"dp": 4, "tp": 8}, "attention data parallelism"),
        ({"gpu": "Abacus"}, "no hardware profile: Abacus"),
        ({"model": "Eliza"}, "not in the catalogue: Eliza"),
        ({"weights": "int1"}, "weight format"),
        ({"engine": "other"}, "no engine preset"),
        ({"metric": "speedup_x"}, "metric isn't predicted"),
        ({"batch": "many"}, "isn't stated as a number"),
        ({"prompt": "varied"}, "prompts' lengths"),
        ({"output": ""}, "outputs' lengths"),
        ({"notes": "flags: warp-speed 9"}, "isn't modelled: warp-speed 9"),
        ({"page": "docs/performance-lab/gpt-oss-20b/h100.md"}, "page of another model"),
    ],
)
def test_rows_that_cannot_be_mapped_say_why(changes, reason):
    with pytest.raises(Unmapped, match=reason):
        load_of(row(**changes))


def test_static_batches_are_not_counted_and_others_are_mapped_or_refused():
    rows = [LAB, row(load_mode="static_batch"), row(id="b", gpu="Abacus", value=1.0)]
    mapped, refused = loads(rows)
    assert [load.id for load in mapped] == [LAB.id]
    assert refused == Counter({("gpustack-lab", "no hardware profile: Abacus"): 1})


def test_a_figure_copied_to_another_page_is_no_second_measurement():
    copy = row(id="copy", gpu="A100-SXM-80GB")
    assert repeated([LAB, copy, row(id="other", value=501.0)]) == {"copy"}


def test_limits_of_a_step_follow_what_the_cache_holds():
    # 100.4 sequences: in steps of 32 → 128; 100.4 · (1 + 2048/128) = 1,707 tokens: the least, 2,048
    assert tuned_limits(100.4, 2048, 128) == (128, 2048)
    # 900 in steps of 128 → 1,024; 900 · 17 = 15,300 tokens → 15 · 1,024 = 15,360
    assert tuned_limits(900, 2048, 128) == (1024, 15360)
    # never more than 4,096 sequences and 32,768 tokens
    assert tuned_limits(1e6, 2048, 128) == (4096, 32768)


def test_capped_lengths_keep_their_mean():
    # E[min(X, L)] of an exponential of mean m is m·(1 − exp(−L/m))
    drawn = capped(200, 600)
    assert drawn.quantiles(10_000).mean() == pytest.approx(200, rel=0.01)
    assert drawn.longest == 600
    with pytest.raises(Unmapped, match="can't be spread"):
        capped(590, 600)


def test_flags_are_read_in_either_form():
    assert flags_in("x; flags: --tp-size=8 --enable-dp-attention")[1][1] == ""
    assert flags_in("exact lengths") == []


def test_one_request_takes_its_prefill_and_its_steps():
    """Sequences that start together and have equal lengths: throughput by hand."""
    load = load_of(row(batch="burst of 4, no cap", prompt="100", output="50"))
    found = Runner().find(load)
    ttft = Runner().find(replace(load, quantity="ttft", overlapped=False)).predicted / 1e3
    tpot = Runner().find(replace(load, quantity="tpot")).predicted / 1e3
    # 4 prompts of 100 fit into one step; then 49 steps of all four: 200 tokens in that time.
    assert found.predicted == pytest.approx(200 / (ttft + 49 * tpot), rel=1e-6)
    assert found.running == pytest.approx(4, rel=0.05)


def test_what_can_never_be_served_is_a_reason():
    found = Runner().find(load_of(row(model="Llama-3.1-70B")))  # 141 GB on 80
    assert "no room" in found.reason
    assert "no room for a KV cache by our count" in report([found], Counter())


def test_the_page_scores_by_hand():
    def off(factor):
        return Found(load_of(LAB), predicted=factor * 500)

    found = [off(1.1), off(0.7), off(1.2)]
    scored = score_of(found, "throughput")
    # |errors| 10, 30, 20: median 20; signed −30, 10, 20: median 10
    assert (scored.median, scored.bias) == (pytest.approx(20), pytest.approx(10))
    page = report(found, Counter({("x", "why"): 2}))
    assert "| gpustack-lab | vLLM | 3 | 20.0 / 28 (+10) | – | – |" in page
    assert "| x | 2 | why |" in page


@pytest.fixture(scope="module")
def real():
    folder = data_dir()
    if folder is None or not (folder / "published.csv").is_file():
        pytest.skip(REASON)
    return read_published(folder / "published.csv")


def test_real_rows_are_mapped_or_counted(real):
    mapped, refused = loads(real)
    assert len(mapped) + sum(refused.values()) == sum(r.load_mode in SERVED for r in real)
    assert len(mapped) > 800


def test_real_rows_of_a_known_deployment_agree(real):
    """Llama-3.1-405B in FP8 on eight H200, all requests at once: nothing was fitted on them."""
    mapped, _ = loads(real)
    here = [
        load for load in mapped
        if (load.source, load.model, load.hardware)
        == ("trtllm-maxload-v1.0", "llama-3.1-405b", "h200-sxm")
    ]  # fmt: skip
    assert score_of(find_all(here[:4]), "throughput").median < 12
