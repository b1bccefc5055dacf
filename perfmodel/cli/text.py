"""Numbers as people read them: the names of `perfmodel.text` that the commands use."""

from perfmodel.text import binary, binary_exact, counted, digits, exact, percent, seconds, si, whole

__all__ = [
    "binary",
    "binary_exact",
    "counted",
    "digits",
    "exact",
    "percent",
    "seconds",
    "si",
    "whole",
]
