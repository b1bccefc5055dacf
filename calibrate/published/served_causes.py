"""What causes the large misses on served rows: looked into row by row, with what was seen."""

CAUSES = {
    "trtllm-maxload-v0.14, L40S on 8 GPUs":
        "too fast by 14 % in the median, with one GPU 12 % too slow and four right: exchanges, "
        "whose share of PCIe is assumed. The measured L40S exchanges are of a machine whose cards "
        "can't reach each other directly (a bus rate of 20 GB/s for 2 GPUs, 5 for 4, under 2 for "
        "8); with them these rows would be 40 to 88 % too slow (docs/kernels.md).",
    "trtllm-maxload-v0.14, Mistral on A100":
        "too slow in decode alone: vLLM's FlashAttention-2, whose calls are the calibration, "
        "shares no pass over the keys among the heads of a group where a layer has a window, even "
        "one that nothing reaches; TensorRT-LLM's kernel does. Llama-3.1-8B, of the same head "
        "shapes, is right there.",
    "trtllm-maxload-v0.14, A100 on several GPUs":
        "too fast, over PCIe most of all, with one GPU right: exchanges or host time per layer, "
        "which are assumed for 2025; with those of `trtllm` (2023) the same rows are off by 7 % "
        "over NVLink and 12 % over PCIe in the median. The preset of 2023 was not kept for this "
        "source as it is 30 to 50 % too slow on FP8 with Hopper: its attention in decode is that "
        "of before XQA.",
    "trtllm-maxload, experts in FP8 on Hopper (0.14) and Llama-8B in FP8":
        "too slow: TensorRT-LLM's FP8 products are its own and faster than vLLM's that were "
        "measured, as in serving-validation.md.",
    "trtllm-maxload-v1.0, experts in NVFP4":
        "too fast on B200 and GB200, with one GPU as well as with eight, so that it isn't the "
        "layout; Qwen3-30B-A3B on one RTX PRO 6000 is right (4 % too slow), and so are dense "
        "models in NVFP4. The shorter the outputs, the larger: host work per request, probably. "
        "With prompts and outputs of 128 tokens Qwen3-30B-A3B ends 311 requests a second on B200, "
        "188 on GB200, the same chip beside another host, and 219 on RTX PRO 6000; outputs of "
        "4,096 are off by 8 to 15 %.",
    "trtllm-maxload-v1.0, attention data parallelism over PCIe":
        "too fast, and the more ranks the more: Qwen3-30B-A3B on 1, 2, 4 and 8 RTX PRO 6000 is off "
        "by -4, +9, +23 and +44 % in the median. With prompts of 2,048 and outputs of 128, eight "
        "GPUs are measured at 1.5 times one: the exchange of tokens and experts' results, which "
        "here has each card's rate whatever the others send.",
    "trtllm-maxload-v1.0, attention data parallelism with prompts of 20,000":
        "too fast by 41 to 54 % on H200 and B200, where the same deployments' median is off by -3, "
        "+4 and +39 %: equal requests that come at once keep the ranks in step here, so that all "
        "compute prompts in the same tenth of the steps and only decode in the others. With "
        "lengths spread by 10 % about the published ones, as if the ranks had come out of step, "
        "the same rows are off by -1 (Qwen3-235B on H200), +19 (on B200) and +22 % (Scout on "
        "H200). That each rank has seats and a cache of its own changes these rows by 1 %: 49 "
        "whole sequences fit each H200, of 49.4.",
    "trtllm-maxload-v1.0, attention data parallelism on H100":
        "too fast by 20 to 50 % where the cache limits the batch (outputs of 2,048 and 4,096), "
        "while the same models are right or too slow on H200: less room for the cache on 80 GB "
        "than is computed, or ranks out of step (with lengths spread by 10 %, Scout's rows of "
        "1,000 tokens are 23 to 33 % too fast and not 36 to 43). What each rank holds alone is "
        "followed, and changes these rows by less than 1 %.",
    "gpustack-lab, prompts of 128 and outputs of 4 tokens":
        "too fast on vLLM, much nearer on SGLang and TensorRT-LLM: a thousand requests at once "
        "that hold little work. vLLM's rows end 30 to 210 of them a second; gpt-oss-20b as many on "
        "A100 as on H100, DeepSeek-R1 and GLM-4.6 less than half of SGLang's on the same GPUs. "
        "Probably the server before the engine, which is one process; the simulator has none.",
    "gpustack-lab, H100 with one GPU":
        "too fast, in BF16 by 1.2 and in FP8 by two, by either engine, for Qwen3-32B and "
        "gpt-oss-20b, while Qwen3-32B's BF16 rows on A100 agree at the same lengths, and its H200 "
        "and eight-H100 pages do better. Probably the machine or its power limit; the page doesn't "
        "say.",
    "gpustack-lab, A100 with weights in FP8 or int4":
        "too fast by about two in large batches: weights that are widened in the kernel (Marlin) "
        "slow the products of hundreds of rows too, where the model prices the 16-bit product; "
        "BF16 rows of the same models agree. No call of this kernel on this GPU is in the measured "
        "tables.",
    "gpustack-lab, new models on their first releases":
        "too fast by two to seven: gpt-oss on SGLang and TensorRT-LLM, DeepSeek-V3.2 on "
        "TensorRT-LLM. Other engines on the same page and GPU are two to seven times as fast as "
        "these: kernels that weren't there yet.",
    "dstack-pd-ratio, one prefill and one decode worker":
        "too slow by 40 % at outputs of hundreds of tokens: with 128 users its one decode worker "
        "is measured at 9,200 tokens a second, three of them at 8,700. One of the runs isn't what "
        "it says.",
    "dstack-pd-ratio, prompts of 2,048 and outputs of 128, and prompts of 32,784":
        "too fast where prefill decides, TTFT too small where it doesn't: measured prefill workers "
        "take 28,000 to 63,000 prompt tokens a second each, and the less the more of them there "
        "are, at the same work. Here they don't slow each other down: the router and the transfers "
        "that they share have no limit.",
    "TTFT of dstack-pd-ratio and vultr-b200 at low load":
        "too small by 0.13 to 1 s, several times the prefill itself: probably the router, the "
        "network and the client, none of which the simulator has.",
    "vultr-b200, few users":
        "too fast, within 10 % from 256 users on: measured TPOT is higher with 32 users (8 ms) "
        "than with 64 (7 ms), so small batches cost more there than their kernels.",
    "vllm-blog, Arc Pro B60":
        "throughput and TPOT agree with assumed shares alone; TTFT is too small as prefill is "
        "assumed to be as efficient as a GPU that was calibrated.",
}  # fmt: skip
