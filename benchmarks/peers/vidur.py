"""Vidur (``pip install vidur``): a closed run of ``python -m vidur.main``, timed as a process.

It simulates serving, so it is compared in simulated requests per CPU-second, not in latencies. Its
predictor fetches trained models, so that it needs the network.
"""

import resource
import subprocess
import sys
import tempfile

REQUESTS = 2000
FLAGS = {
    "replica_config_device": "h100",
    "replica_config_model_name": "meta-llama/Llama-3-8B",
    "replica_config_tensor_parallel_size": 1,
    "replica_config_num_pipeline_stages": 1,
    "request_generator_config_type": "synthetic",
    "length_generator_config_type": "fixed",
    "fixed_request_length_generator_config_prefill_tokens": 1024,
    "fixed_request_length_generator_config_decode_tokens": 256,
    "interval_generator_config_type": "poisson",
    "poisson_request_interval_generator_config_qps": 20,
    "replica_scheduler_config_type": "sarathi",
    "sarathi_scheduler_config_batch_size_cap": 256,
}


def requests_per_cpu_second() -> float:
    """Simulated requests over the process's CPU time, start-up included.

    Raises:
        ImportError: Vidur isn't installed.
        RuntimeError: it ended with an error; its last line.
    """
    import vidur  # noqa: F401, PLC0415  (a peer may be absent)

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        flags = [f"--{name}={value}" for name, value in FLAGS.items()]
        flags += [f"--metrics_config_output_dir={folder}",
                  f"--synthetic_request_generator_config_num_requests={REQUESTS}"]  # fmt: skip
        done = subprocess.run(  # noqa: S603  (a peer's own command)
            [sys.executable, "-m", "vidur.main", *flags],
            capture_output=True, text=True, check=False, timeout=1800,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or done.stdout.strip()).splitlines()[-1][:160])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return REQUESTS / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
