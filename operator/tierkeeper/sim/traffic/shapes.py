"""Shapes of load as factor curves: multiply a rate with them (``rate.times(shape)``) or a trace (``scale``)."""

from __future__ import annotations

import math

import numpy as np

from tierkeeper.sim.traffic.curve import Curve


def step(factor: float, *, at: float) -> Curve:
    """1 until ``at`` seconds, ``factor`` from then on."""
    return Curve.through([(0.0, 1.0), (at, 1.0), (at, factor), (at + 1.0, factor)])


def ramp(factor: float, *, start: float, end: float) -> Curve:
    """From 1 to ``factor`` in a straight line between two times, and held there."""
    return Curve.through([(0.0, 1.0), (start, 1.0), (end, factor), (end + 1.0, factor)])


def burst(factor: float, *, at: float, seconds: float) -> Curve:
    """``factor`` for so many seconds, 1 before and after."""
    return plateau(factor, start=at, end=at + seconds, slope_seconds=0.0)


def night(*, start: float, end: float, level: float = 0.0, slope_seconds: float = 0.0) -> Curve:
    """Down to ``level`` between two times (0: no traffic at all); the slopes lie within them."""
    return plateau(level, start=start, end=end, slope_seconds=slope_seconds)


def plateau(level: float, *, start: float, end: float, slope_seconds: float) -> Curve:
    """1, then to ``level`` and back to 1; both slopes lie between ``start`` and ``end``.

    Raises ValueError if the slopes do not fit.
    """
    if not 0 <= slope_seconds <= (end - start) / 2:
        raise ValueError(f"shape: slopes of {slope_seconds:g} s do not fit between {start:g} s and {end:g} s")
    points = [(0.0, 1.0), (start, 1.0), (start + slope_seconds, level), (end - slope_seconds, level), (end, 1.0)]
    return Curve.through([*points, (end + 1.0, 1.0)])


def jitter(*, sigma: float, seconds: float, seed: int, every_seconds: float = 60.0) -> Curve:
    """Random factors with mean 1, drawn anew at each interval: what a smooth curve lacks of a real minute's noise.

    Lognormal; ``sigma`` is the spread of the logarithm. The Azure 2023 conversation trace, 332 requests a minute,
    shows neighbouring minutes to differ with 2.28 times a Poisson variance: sqrt(1.28 / 332) = 0.06.
    """
    count = max(1, math.ceil(seconds / every_seconds))
    noise = np.random.default_rng(seed).normal(-(sigma**2) / 2, sigma, size=count)
    return Curve.hold(np.arange(count) * every_seconds, np.exp(noise), end=count * every_seconds)
