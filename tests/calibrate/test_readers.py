"""Other tools' files become rows of the shared schema; the files here are made up."""

import pytest

from calibrate.tables import read_table, read_tables
from perfmodel.errors import InputError

HEAD = "framework,version,device,op_name,kernel_source"
SOURCE = "VLLM,0.19.0,NVIDIA H100 80GB HBM3"


def write(folder, name, *lines):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def row(table, number=0):
    return table.rows.iloc[number].to_dict()


def test_aiconfigurator_gemm(tmp_path):
    path = write(
        tmp_path, "data/h100_sxm/vllm/0.19.0/gemm_perf.txt", f"{HEAD},gemm_dtype,m,n,k,latency",
        f"{SOURCE},gemm,cutlass,fp8_block,64,4096,7168,0.0215",
    )  # fmt: skip
    table = read_table(path)
    assert (table.family, table.layout) == ("gemm", "aiconfigurator")
    found = row(table)
    assert found["latency_us"] == pytest.approx(21.5)
    assert (found["m"], found["n"], found["k"], found["dtype"]) == (64, 4096, 7168, "fp8_block")
    assert (found["gpu"], found["kernel"]) == ("h100-sxm", "cutlass")
    assert found["framework_version"] == "0.19.0"


ATTENTION = (
    f"{HEAD},batch_size,isl,num_heads,num_key_value_heads,head_dim,window_size,beam_width,"
    "attn_dtype,kv_cache_dtype,step,latency"
)


def test_aiconfigurator_attention(tmp_path):
    prefill = read_table(write(
        tmp_path, "context_attention_perf.txt", ATTENTION,
        f"{SOURCE},context_attention,fa3,2,4096,32,8,128,0,1,bfloat16,fp8,0,0.91",
    ))  # fmt: skip
    assert prefill.family == "attention_prefill"
    found = row(prefill)
    assert (found["q_len"], found["prefix_len"], found["kv_dtype"]) == (4096, 0, "fp8")
    decode = read_table(write(
        tmp_path, "generation_attention_perf.txt", ATTENTION,
        f"{SOURCE},generation_attention,fa3,2,1,32,8,128,128,1,bfloat16,bfloat16,4095,0.031",
    ))  # fmt: skip
    assert decode.family == "attention_decode"
    found = row(decode)
    assert (found["kv_len"], found["window"], found["batch"]) == (4096, 128, 2)
    assert found["latency_us"] == pytest.approx(31)


def test_aiconfigurator_mla_without_heads_in_older_files(tmp_path):
    table = read_table(write(
        tmp_path, "generation_mla_perf.txt",
        f"{HEAD},mla_dtype,kv_cache_dtype,batch_size,isl,tp_size,step,latency",
        f"{SOURCE},mla_generation,flashmla,float16,float16,8,1,4,1023,0.05",
    ))  # fmt: skip
    assert table.family == "mla_decode"
    assert (row(table)["heads"], row(table)["kv_len"]) == (32, 1024)


def test_aiconfigurator_moe_and_collectives(tmp_path):
    moe = read_table(write(
        tmp_path, "moe_perf.txt",
        f"{HEAD},moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,"
        "moe_ep_size,distribution,latency",
        f"{SOURCE},moe,triton,fp8,128,4096,1536,8,128,1,4,power_law_1.2,0.25",
    ))  # fmt: skip
    assert moe.family == "moe"
    assert (row(moe)["tokens"], row(moe)["moe_ep"], row(moe)["experts"]) == (128, 4, 128)
    nccl = read_table(write(
        tmp_path, "nccl_perf.txt", f"{HEAD},nccl_dtype,num_gpus,message_size,latency",
        "TRTLLM,2.27.3,NVIDIA H100,all_gather,NCCL,half,8,1048576,0.045",
    ))  # fmt: skip
    assert nccl.family == "collective"
    assert (row(nccl)["op"], row(nccl)["message_bytes"]) == ("all_gather", 2 * 1048576)


def test_aiconfigurator_faults_keep_their_own_columns(tmp_path):
    path = write(
        tmp_path, "gemm_perf.txt", f"{HEAD},gemm_dtype,m,n,k,latency",
        f"{SOURCE},gemm,c,bfloat16,64,4096,7168,fast",
    )  # fmt: skip
    with pytest.raises(InputError, match="row 1, latency: 'fast'"):
        read_table(path)
    path = write(tmp_path, "mamba_perf.txt", f"{HEAD},d_state,latency", f"{SOURCE},m,c,128,0.1")
    with pytest.raises(InputError, match="gemm, attention, mla, moe or nccl"):
        read_table(path)


MLP = (
    "time_stats.attn_pre_proj.median,time_stats.attn_post_proj.median,"
    "time_stats.mlp_up_proj.median,time_stats.mlp_up_proj.std,time_stats.mlp_down_proj.median,"
    "n_head,n_kv_head,n_embd,n_expanded_embd,vocab_size,use_gated_mlp,num_tokens,"
    "num_tensor_parallel_workers"
)


def test_vidur_mlp_row_is_four_products(tmp_path):
    table = read_table(write(
        tmp_path, "mlp.csv", MLP,
        "0.9,0.3,1.7,0.01,0.8,32,8,4096,14336,128256,True,2048,2",
        "0.5,0.2,0.9,0.01,0.4,32,8,4096,14336,128256,True,1024,2",
    ))  # fmt: skip
    assert (table.family, table.layout, len(table.rows)) == ("gemm", "vidur", 8)
    assert sorted(table.numbers) == [1, 1, 1, 1, 2, 2, 2, 2]
    shapes = table.rows[table.rows["m"] == 2048].set_index("kernel")[["n", "k", "latency_us"]]
    assert tuple(shapes.loc["vidur_attn_pre_proj"]) == (48 * 128 / 2, 4096, 900)
    assert tuple(shapes.loc["vidur_attn_post_proj"]) == (4096, 2048, 300)
    assert tuple(shapes.loc["vidur_mlp_up_proj"]) == (14336, 4096, 1700)
    assert tuple(shapes.loc["vidur_mlp_down_proj"]) == (4096, 7168, 800)


def test_vidur_attention_holds_two_families(tmp_path):
    path = write(
        tmp_path, "attention.csv",
        "time_stats.attn_prefill.median,time_stats.attn_decode.median,n_embd,n_q_head,n_kv_head,"
        "block_size,num_tensor_parallel_workers,max_model_len,batch_size,prefill_chunk_size,"
        "kv_cache_size,is_prefill,attention_backend",
        "0.4,,8192,64,8,16,2,4096,1,1024,512,True,FLASH",
        ",0.02,8192,64,8,16,2,4096,16,0,1023,False,FLASH",
    )  # fmt: skip
    prefill, decode = read_tables(path)
    assert (prefill.family, decode.family) == ("attention_prefill", "attention_decode")
    found = row(prefill)
    assert (found["q_len"], found["prefix_len"], found["heads"]) == (1024, 512, 32)
    found = row(decode)
    assert (found["kv_len"], found["kv_heads"], found["head_dim"]) == (1024, 4, 128)
    assert list(decode.numbers) == [2]
    with pytest.raises(InputError, match="several families"):
        read_table(path)


def test_vidur_collectives(tmp_path):
    table = read_table(write(
        tmp_path, "all_reduce.csv",
        ",time_stats.all_reduce.median,rank,num_workers,size,collective,devices_per_node,"
        "max_devices_per_node",
        "0,0.05,0,4,1048576,all_reduce,4,8",
    ))  # fmt: skip
    found = row(table)
    assert (table.family, found["num_gpus"], found["latency_us"]) == ("collective", 4, 50)


def test_infersim(tmp_path):
    gemm = read_table(write(
        tmp_path, "bench_data/gemm/h20/data.csv", "m,k,n,latency_us,mfu", "64,2048,6144,11,0.5"
    ))  # fmt: skip
    assert (gemm.layout, row(gemm)["dtype"], row(gemm)["gpu"]) == ("infersim", "fp8_block", "h20")
    assert (row(gemm)["n"], row(gemm)["k"]) == (6144, 2048)
    decode = read_table(write(
        tmp_path, "mha/decode/h20/16-2-256.csv", "dtype,kv_dtype,batch_size,kv_len,latency_us,mfu",
        "bf16,bf16,16,4096,63,0.1",
    ))  # fmt: skip
    found = row(decode)
    assert (decode.family, found["heads"], found["kv_heads"]) == ("attention_decode", 16, 2)
    assert (found["head_dim"], found["kv_dtype"]) == (256, "bf16")
    prefill = read_table(write(
        tmp_path, "mha/prefill/h20/16-2-256.csv", "dtype,seq_len,latency_us,mfu",
        "bf16,4096,1135,0.8",
    ))  # fmt: skip
    assert (prefill.family, row(prefill)["q_len"]) == ("attention_prefill", 4096)
    moe = read_table(write(
        tmp_path, "grouped_gemm/decode/h20/data.csv",
        "num_experts,num_gpus,num_local_experts,topk,hidden_size,intermediate_size,"
        "batch_size_per_gpu,tokens_per_expert,up_proj_us,up_mfu,down_proj_us,down_mfu",
        "128,4,32,8,2048,768,64,16,59.5,0.2,42.5,0.1",
    ))  # fmt: skip
    found = row(moe)
    assert (moe.family, found["tokens"], found["moe_ep"]) == ("moe", 256, 4)
    assert found["latency_us"] == pytest.approx(102)
    with pytest.raises(InputError, match="heads-kv_heads-head_dim"):
        read_table(write(tmp_path, "decode.csv", "dtype,seq_len,latency_us,mfu", "bf16,9,9,0.8"))
