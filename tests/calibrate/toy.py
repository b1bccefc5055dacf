"""A form with two parameters, to test what fits forms."""

from dataclasses import dataclass

import numpy as np

from perfmodel.kernels.forms.base import Chip, Parameter

CHIP = Chip(peak=1e12, bandwidth=1e12, sm_count=10, clock_hz=1e9, l2_bytes=1e6)


@dataclass(frozen=True)
class Toy:
    """A start and a rate: T = start + work / (rate · peak)."""

    name: str = "toy"
    regimes: tuple[str, ...] = ("small", "large")
    parameters: tuple[Parameter, ...] = (
        Parameter("start", "us", 3.0, 0.1, 100.0, 0.7, "time of an empty call"),
        Parameter("rate", "share", 0.7, 0.05, 1.0, 0.3, "of the peak"),
    )

    def seconds(self, chip, values, shapes):
        work = np.asarray(shapes["work"], dtype=float)
        return values["start"] * 1e-6 + work / (values["rate"] * chip.peak)

    def features(self, chip, shapes):
        return np.log(np.atleast_1d(np.asarray(shapes["work"], dtype=float)))[:, None]

    def regime(self, shapes):
        return np.where(np.asarray(shapes["work"]) > 1e7, 1.0, 0.0)


def rows(count, *, noise=0.0, seed=0, start=5.0, rate=0.4):
    """Shapes and times of a toy with known parameters."""
    rng = np.random.default_rng(seed)
    shapes = {"work": np.exp(rng.uniform(np.log(1e5), np.log(1e9), count))}
    times = Toy().seconds(CHIP, {"start": start, "rate": rate}, shapes)
    return shapes, times * np.exp(noise * rng.normal(size=count))
