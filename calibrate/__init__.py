"""Measure kernels on a device, fit their models, and say how wrong they are."""
