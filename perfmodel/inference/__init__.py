"""Prefill, decode and memory of a deployment."""
