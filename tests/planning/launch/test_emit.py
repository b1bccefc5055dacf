"""Launch commands: what was priced is what is started, and the shell reads it back."""

import json
import shlex
import subprocess

import pytest
import yaml

import perfmodel
from perfmodel.errors import InputError
from perfmodel.planning.launch.emit import COMMANDS, PRESETS, launch_of
from perfmodel.serving.serve import Serving
from perfmodel.specs.deployment import Deployment
from perfmodel.specs.speculation import Speculation

H200 = perfmodel.load_hardware("h200-sxm")
MTP = Speculation(method="mtp", tokens=3, acceptance=0.8)


def commands(engine, model="llama-3.1-8b", serving=None, argument="org/name", **settings):
    return launch_of(
        engine, perfmodel.load_model(model), H200,
        Deployment(engine=PRESETS[engine], **settings), serving, argument=argument, longest=4096,
    )  # fmt: skip


def flags(launch, server=0):
    """The flags of a command and their values, as a shell splits them."""
    words = shlex.split(" ".join(launch.servers[server].words))
    found = {}
    for word, after in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            found[word] = None if after.startswith("--") else after
    return found


@pytest.mark.parametrize("engine", COMMANDS)
def test_scripts_are_shell(engine):
    made = commands(engine, tp=2, kv_cache="fp8", serving=Serving(disaggregate=(1, 2)))
    done = subprocess.run(["bash", "-n"], input=made.script(), text=True, capture_output=True)  # noqa: PLW1510
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("engine", "tp", "sequences", "tokens", "longest"),
    [
        ("vllm", "--tensor-parallel-size", "--max-num-seqs", "--max-num-batched-tokens",
         "--max-model-len"),
        ("sglang", "--tp-size", "--max-running-requests", "--chunked-prefill-size",
         "--context-length"),
        ("trtllm", "--tp_size", "--max_batch_size", "--max_num_tokens", "--max_seq_len"),
    ],
)  # fmt: skip
def test_layout_and_limits_are_said(engine, tp, sequences, tokens, longest):
    said = flags(commands(engine, tp=4, max_num_seqs=96, max_num_batched_tokens=4096))
    assert said[tp] == "4"
    assert said[sequences] == "96"
    assert said[tokens] == "4096"
    assert said[longest] == "4096"


def test_blocks_and_graphs_are_said_where_they_were_stated():
    settings = {"block_size": 32, "graph_batch": 48}
    said = flags(commands("vllm", **settings))
    assert (said["--block-size"], said["--max-cudagraph-capture-size"]) == ("32", "48")
    said = flags(commands("sglang", **settings))
    assert (said["--page-size"], said["--cuda-graph-max-bs"]) == ("32", "48")
    (text,) = commands("trtllm", **settings).files.values()
    assert yaml.safe_load(text)["kv_cache_config"] == {"tokens_per_block": 32}
    assert yaml.safe_load(text)["cuda_graph_config"] == {"max_batch_size": 48}
    assert not {"--block-size", "--max-cudagraph-capture-size"} & set(flags(commands("vllm")))


@pytest.mark.parametrize(
    ("scheduler", "chunked", "evicts"),
    [
        ("inflight_no_evict", False, False),
        ("inflight_no_evict_chunked", True, False),
        ("inflight_max_utilisation", False, True),
    ],
)
def test_trtllm_schedules_as_was_simulated(scheduler, chunked, evicts):
    made = commands("trtllm", serving=Serving(scheduler=scheduler), kv_cache="fp8")
    options = yaml.safe_load(made.files["trtllm.yaml"])
    assert options.get("enable_chunked_prefill", False) is chunked
    assert ("scheduler_config" in options) is evicts


def test_limits_by_default_are_those_that_were_priced():
    # vLLM on a device of over 70 GiB: 1,024 sequences and 8,192 tokens
    said = flags(commands("vllm"))
    assert (said["--max-num-seqs"], said["--max-num-batched-tokens"]) == ("1024", "8192")


def test_attention_dp_of_vllm():
    said = flags(commands("vllm", "deepseek-r1", dp=8, ep=8, speculation=MTP))
    assert said["--tensor-parallel-size"] == "1"
    assert said["--data-parallel-size"] == "8"
    assert "--enable-expert-parallel" in said
    drafts = json.loads(said["--speculative-config"])
    assert drafts == {"method": "mtp", "num_speculative_tokens": 3}


def test_attention_dp_of_sglang_counts_all_ranks():
    said = flags(commands("sglang", "deepseek-r1", dp=8, ep=8, speculation=MTP, max_num_seqs=64))
    assert (said["--tp-size"], said["--dp-size"], said["--ep-size"]) == ("8", "8", "8")
    assert said["--max-running-requests"] == "512"  # 8 ranks of 64: the server divides
    assert said["--speculative-algorithm"] == "EAGLE"
    assert said["--speculative-num-draft-tokens"] == "4"  # three and the one that is certain


def test_attention_dp_of_trtllm_is_in_its_file():
    made = commands("trtllm", "deepseek-r1", dp=8, ep=8, speculation=MTP, kv_cache="fp8")
    assert flags(made)["--tp_size"] == "8"
    assert flags(made)["--config"] in made.files
    (text,) = made.files.values()
    options = yaml.safe_load(text)
    assert options["enable_attention_dp"] is True
    assert options["kv_cache_config"]["dtype"] == "fp8"
    assert options["speculative_config"]["num_nextn_predict_layers"] == 3


def test_replicas_that_share_nothing():
    assert flags(commands("sglang", dp=2))["--tp-size"] == "1"
    assert flags(commands("sglang", dp=2))["--dp-size"] == "2"
    assert "--enable-dp-attention" not in flags(commands("sglang", dp=2))
    assert flags(commands("vllm", dp=2))["--data-parallel-size"] == "2"
    assert commands("trtllm", dp=2).servers[0].instances == 2  # it has no such flag


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_weights_that_are_quantised_while_loading(engine):
    said = commands(engine, weights="fp8")
    assert flags(said)["--quantization"] == "fp8"
    assert not said.notes


@pytest.mark.parametrize("engine", COMMANDS)
def test_weights_that_a_checkpoint_must_hold_are_a_note(engine):
    made = commands(engine, weights="int4")
    assert "--quantization" not in flags(made)
    assert any("int4" in note for note in made.notes)


def test_a_checkpoints_own_format_needs_no_flag():
    made = commands("vllm", "deepseek-r1", tp=8)  # stored in fp8 blocks
    assert "--quantization" not in flags(made)
    assert not made.notes


def test_pools():
    made = commands("sglang", serving=Serving(disaggregate=(1, 3)))
    assert [(s.role, s.instances) for s in made.servers] == [("prefill", 1), ("decode", 3)]
    assert flags(made, 1)["--disaggregation-mode"] == "decode"
    config = json.loads(flags(commands("vllm", serving=Serving(disaggregate=(1, 3))))[
        "--kv-transfer-config"
    ])  # fmt: skip
    assert config["kv_connector"] == "NixlConnector"


def test_a_catalogue_name_is_no_hub_id():
    """The shell stops and says what is missing, rather than fetch some other repository."""
    script = commands("vllm", argument="").script()
    done = subprocess.run(  # noqa: PLW1510
        ["bash", "-c", script], text=True, capture_output=True, env={"PATH": "/usr/bin:/bin"}
    )
    assert done.returncode != 0
    assert "hub id or folder of llama-3.1-8b" in done.stderr


def test_odd_folders_are_quoted():
    assert flags(commands("vllm", argument="/models/a b; rm -rf x"))
    words = shlex.split(commands("vllm", argument="/models/a b; rm -rf x").servers[0].words[0])
    assert words[2] == "/models/a b; rm -rf x"


def test_what_has_no_flag_is_said():
    made = commands("vllm", tp=2, sequence_parallel=True)
    assert any("sequence_parallel" in note for note in made.notes)
    made = commands("trtllm", cpu_offload_gb=0.0, kv_layout="contiguous")
    assert any("kv_layout" in note for note in made.notes)


@pytest.mark.parametrize(
    ("engine", "settings", "match"),
    [
        ("vllm", {"kv_cache": "int8"}, "int8"),
        ("sglang", {"speculation": Speculation(method="medusa", tokens=3, acceptance=0.5)},
         "medusa"),
        ("trtllm", {"speculation": Speculation(method="lookahead", tokens=3, acceptance=0.5)},
         "lookahead"),
    ],
)  # fmt: skip
def test_what_an_engine_lacks_is_refused(engine, settings, match):
    with pytest.raises(InputError, match=match):
        commands(engine, **settings)


def test_another_engine_than_was_priced_is_refused():
    with pytest.raises(InputError, match="--engine sglang"):
        launch_of("sglang", perfmodel.load_model("llama-3.1-8b"), H200, Deployment())
    with pytest.raises(InputError, match="unknown engine"):
        launch_of("tgi", perfmodel.load_model("llama-3.1-8b"), H200, Deployment())
