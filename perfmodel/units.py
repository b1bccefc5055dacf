"""Unit factors. Inside perfmodel every quantity is SI: seconds, bytes, FLOPs, bytes/s, FLOP/s."""

from __future__ import annotations

KILO = 1e3
MEGA = 1e6
GIGA = 1e9
TERA = 1e12

KIB = 2**10
MIB = 2**20
GIB = 2**30

MICROSECOND = 1e-6
MILLISECOND = 1e-3

BITS_PER_BYTE = 8
