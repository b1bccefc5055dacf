"""Families of kernels: which rows they have, and which form describes them on which chip."""
