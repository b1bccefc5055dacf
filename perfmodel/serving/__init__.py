"""What users see under load: request streams, schedulers, the KV cache, the simulator."""
