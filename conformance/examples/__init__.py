"""Adapters to copy from."""
