"""Which tiles a library multiplies with, and for which shapes it takes each.

cuBLAS picks among many tiles and splits of k by a heuristic of its own: the form lets the fastest
win. vLLM's CUTLASS kernels for FP8 follow a fixed rule of m and n and never split k; their rules
are those of vLLM 0.11 (``csrc/quantization/w8a8/cutlass``, files ``*_fp8_dispatch.cuh``), reduced
to tile and cluster. The measured rows show the same borders (m = 16, 64, 128 on Hopper).
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows × columns of C that one SM computes at a time, and the shapes it is taken for."""

    rows: int
    columns: int
    m_over: int = 0
    m_to: float = math.inf
    n_over: int = 0
    n_to: float = math.inf
    grid_rows: int = 1
    """Tiles of a cluster along m: the count of tiles is rounded up to it."""
    grid_columns: int = 1

    speed: float = 1.0
    """Of the rate that other tiles reach."""

    @property
    def always(self) -> bool:
        """Whether every shape may take the tile."""
        return (self.m_over, self.m_to, self.n_over, self.n_to) == (0, math.inf, 0, math.inf)


@dataclass(frozen=True, slots=True)
class Library:
    """Tiles, and over how many SMs the sum over k may be split."""

    tiles: tuple[Tile, ...]
    splits: tuple[int, ...]

    @property
    def picks(self) -> bool:
        """Whether the library chooses by speed, rather than by a rule of m and n."""
        return all(tile.always for tile in self.tiles)


ANY_SHAPE = tuple(
    Tile(rows, columns)
    for rows, columns in (
        (16, 64), (16, 128), (32, 64), (32, 128), (64, 32), (64, 64), (64, 128), (64, 256),
        (128, 32), (128, 64), (128, 128), (128, 256), (256, 64), (256, 128),
    )
)  # fmt: skip
CUBLAS = Library(ANY_SHAPE, splits=(1, 2, 3, 4, 6, 8, 16, 32))
UNSPLIT = Library(ANY_SHAPE, splits=(1,))
VLLM_SM90 = Library(
    tiles=(
        Tile(16, 64, m_to=16),
        Tile(16, 64, m_over=16, m_to=64, n_to=1280),
        Tile(64, 64, m_over=16, m_to=64, n_over=1280),
        Tile(64, 128, m_over=64, m_to=128, grid_rows=2),
        Tile(128, 128, m_over=128, grid_rows=2),
    ),
    splits=(1,),
)
VLLM_SM100 = Library(
    tiles=(
        Tile(32, 128, m_to=16, grid_columns=4),
        Tile(64, 128, m_over=16, m_to=64, grid_columns=4),
        Tile(64, 128, m_over=64, m_to=256, grid_rows=2),
        Tile(128, 128, m_over=256, grid_rows=2, grid_columns=2),
    ),
    splits=(1,),
)
VLLM_SM89 = Library(
    tiles=(
        Tile(16, 64, m_to=16, n_to=8192),
        Tile(16, 128, m_to=16, n_over=8192),
        Tile(32, 64, m_over=16, m_to=32),
        Tile(64, 64, m_over=32, m_to=64),
        Tile(64, 128, m_over=64, m_to=128),
        Tile(64, 128, m_over=128, m_to=256, n_to=4096),
        Tile(128, 128, m_over=128, m_to=256, n_over=4096),
        Tile(128, 128, m_over=256, n_to=4096),
        # Measured rows from n = 5,120 to 8,192 run at 0.7 of the rate of their neighbours.
        Tile(256, 128, m_over=256, n_over=4096, n_to=8192, speed=0.7),
        Tile(128, 128, m_over=256, n_over=8192),
    ),
    splits=(1,),
)
LIBRARIES = {
    "cublas": CUBLAS,
    "unsplit": UNSPLIT,
    "vllm-sm89": VLLM_SM89,
    "vllm-sm90": VLLM_SM90,
    "vllm-sm100": VLLM_SM100,
}
"""By the names that calibrations use."""
