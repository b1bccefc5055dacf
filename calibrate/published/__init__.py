"""Compare the model with published latencies of static batches, source by source."""
