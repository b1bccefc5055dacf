"""What the user describes, as frozen records: model, hardware, workload, deployment."""
