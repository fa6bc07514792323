"""Arrival times: renewal processes with Poisson, Gamma or Weibull gaps, bent to a rate curve by time rescaling.

Gaps of mean 1 are drawn in operational time, in which the load is always 1; the inverse of the integrated rate takes
them to seconds. The process starts in its steady state: the first gap is what is left, at a random moment, of a gap
under way. So the expected number of arrivals is exactly the integral of the rate, however bursty the law.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from tierkeeper.sim.traffic.curve import Curve, Floats

MAX_REQUESTS = 200_000_000
"""Expected requests of one run; at 16 bytes each they need 3.2 GB."""

_BLOCK = 1 << 21
_SHAPES = (0.01, 10_000.0)
"""Weibull: the mean gap is gamma(1 + 1 / shape), which overflows from gamma(171) on; below 0.01 it is 9e157."""


class Gaps(StrEnum):
    POISSON = "poisson"
    GAMMA = "gamma"
    WEIBULL = "weibull"


@dataclass(frozen=True, slots=True)
class Law:
    """A distribution of the gaps between arrivals, scaled to mean 1. ``shape`` 1 is Poisson in every law.

    Raises ValueError if the shape is outside [0.01, 10,000].
    """

    gaps: Gaps = Gaps.POISSON
    shape: float = 1.0

    def __post_init__(self) -> None:
        if not _SHAPES[0] <= self.shape <= _SHAPES[1]:
            raise ValueError(f"arrival law: shape {self.shape:g} must be between {_SHAPES[0]:g} and {_SHAPES[1]:,g}")

    @property
    def cv(self) -> float:
        """Coefficient of variation of the gaps: 1 is Poisson, more is burstier."""
        if self.gaps is Gaps.POISSON:
            return 1.0
        if self.gaps is Gaps.GAMMA:
            return math.pow(self.shape, -0.5)
        # E[x^2] / E[x]^2 = gamma(1 + 2/k) / gamma(1 + 1/k)^2, by logarithms because both overflow.
        return math.sqrt(math.expm1(math.lgamma(1 + 2 / self.shape) - 2 * math.lgamma(1 + 1 / self.shape)))

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        """[count] gaps of mean 1."""
        if self.gaps is Gaps.GAMMA:
            return rng.standard_gamma(self.shape, size=count) / self.shape
        if self.gaps is Gaps.WEIBULL:
            return rng.weibull(self.shape, size=count) / math.gamma(1 + 1 / self.shape)
        return rng.standard_exponential(size=count)

    def residual(self, rng: np.random.Generator) -> float:
        """From a random moment to the next arrival.

        A random moment meets a gap with a chance in proportion to its length, and lies anywhere in it: uniform times
        the length-biased gap, which is Gamma(k + 1) for Gamma gaps and Gamma(1 + 1/k)^(1/k) for Weibull gaps.
        """
        place = rng.random()
        if self.gaps is Gaps.GAMMA:
            return place * float(rng.standard_gamma(self.shape + 1)) / self.shape
        if self.gaps is Gaps.WEIBULL:
            biased = math.pow(float(rng.standard_gamma(1 + 1 / self.shape)), 1 / self.shape)
            return place * biased / math.gamma(1 + 1 / self.shape)
        return float(rng.standard_exponential())


POISSON = Law()


def gamma(*, cv: float) -> Law:
    """Gamma gaps with this coefficient of variation. Raises ValueError unless it is between 0.01 and 10."""
    if not 0.01 <= cv <= 10:
        raise ValueError(f"arrival law: a coefficient of variation of {cv:g} must be between 0.01 and 10")
    return Law(Gaps.GAMMA, 1.0 / cv**2)


def weibull(*, shape: float) -> Law:
    """Weibull gaps; a shape under 1 is burstier than Poisson. Raises ValueError outside [0.01, 10,000]."""
    return Law(Gaps.WEIBULL, shape)


def parse_law(text: str) -> Law:
    """Read ``poisson``, ``gamma:CV`` or ``weibull:SHAPE``. Raises ValueError."""
    name, _, number = text.strip().lower().partition(":")
    try:
        if name == Gaps.POISSON and not number:
            return POISSON
        if name == Gaps.GAMMA:
            return gamma(cv=float(number))
        if name == Gaps.WEIBULL:
            return weibull(shape=float(number))
    except ValueError as error:
        if "arrival law" in str(error):
            raise
    raise ValueError(f"arrival law {text!r}: write poisson, gamma:CV or weibull:SHAPE, for example gamma:1.5")


def arrivals(rate: Curve, *, law: Law, rng: np.random.Generator) -> Floats:
    """Sorted arrival times in seconds of one renewal process that follows ``rate``, counted from 0.

    Raises ValueError if more than MAX_REQUESTS are to be expected.
    """
    check_size(rate.total)
    inverse = _Inverse(rate)
    blocks = [inverse.seconds(marks) for marks in _marks(inverse.total, law, rng)]
    return np.concatenate(blocks) if blocks else np.empty(0)


def arrivals_in_bins(edges: Floats, rates: Floats, laws: Sequence[Law], *, rng: np.random.Generator) -> Floats:
    """Sorted arrival times of a process whose rate and law change from bin to bin; each bin starts in a steady state.

    ``edges`` [bins + 1] seconds, ``rates`` [bins] requests/s. Raises ValueError as ``arrivals`` does.
    """
    widths = np.diff(edges)
    check_size(float((rates * widths).sum()))
    blocks = [
        np.minimum(edges[i] + _stretch(float(rates[i] * widths[i]), laws[i], rng) / rates[i], edges[i + 1])
        for i in np.flatnonzero(rates > 0).tolist()
    ]
    return np.concatenate(blocks) if blocks else np.empty(0)


def check_size(expected: float) -> None:
    """Raises ValueError if a run would hold more than MAX_REQUESTS."""
    if expected > MAX_REQUESTS:
        raise ValueError(
            f"traffic: {expected:,.0f} requests to be expected are more than {MAX_REQUESTS:,};"
            " scale the rate down or take a shorter part"
        )


def _stretch(load: float, law: Law, rng: np.random.Generator) -> Floats:
    """Marks in [0, load) of a process of rate 1 in its steady state."""
    blocks = list(_marks(load, law, rng))
    return np.concatenate(blocks) if blocks else np.empty(0)


def _marks(load: float, law: Law, rng: np.random.Generator) -> Iterator[Floats]:
    """The same in blocks."""
    reached = law.residual(rng)
    while reached < load:
        count = _enough(load - reached, law)
        marks = np.empty(count + 1)
        marks[0] = reached
        marks[1:] = law.draw(rng, count)
        np.cumsum(marks, out=marks)
        reached = float(marks[-1])
        # The last mark opens the next block, unless it lies beyond the end.
        yield marks[:-1] if reached < load else marks[marks < load]


def _enough(load: float, law: Law) -> int:
    """Gaps that most likely pass ``load``: its mean and three standard deviations, at most a block."""
    return min(_BLOCK, int(load + 3 * law.cv * math.sqrt(load)) + 8)


class _Inverse:
    """Inverse of the integrated rate: operational time to seconds."""

    def __init__(self, rate: Curve) -> None:
        self.rate = rate
        self.reached = np.concatenate([[0.0], np.cumsum(rate.areas)])
        self.slopes = (rate.ends - rate.starts) / np.diff(rate.edges)
        self.total = float(self.reached[-1])

    def seconds(self, marks: Floats) -> Floats:
        """Times of sorted marks in [0, total). In a segment, mark = v t + s t^2 / 2 is solved without cancellation."""
        # Segments cut the sorted marks, not the other way round: 1,400 searches instead of millions.
        cuts = np.searchsorted(marks, self.reached[1:-1], side="left")
        counts = np.diff(np.concatenate([[0], cuts, [len(marks)]]))
        segment = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        rise = marks - self.reached[segment]
        start = self.rate.starts[segment]
        root = np.sqrt(np.maximum(start * start + 2 * self.slopes[segment] * rise, 0.0))
        root += start
        times = np.divide(2 * rise, root, out=np.zeros_like(rise), where=root > 0)
        times += self.rate.edges[segment]
        np.minimum(times, self.rate.edges[segment + 1], out=times)
        return np.maximum.accumulate(times, out=times)
