"""Kernel-time models of each family: pure functions of shape, chip and a few named parameters."""
