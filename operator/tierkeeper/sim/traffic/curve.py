"""Curves over time: request rates, and factors that shape them.

A curve is piecewise linear and may jump. As a rate (requests/s) it lives on [start, end) and is zero outside; as a
factor it keeps its first and last value outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Segment i runs from ``edges[i]`` to ``edges[i + 1]`` seconds, and from ``starts[i]`` to ``ends[i]`` in value.

    ``edges`` has shape [segments + 1] and rises strictly, ``starts`` and ``ends`` have shape [segments]; values are
    finite and not negative. Raises ValueError.
    """

    edges: Floats
    starts: Floats
    ends: Floats

    def __post_init__(self) -> None:
        for name in ("edges", "starts", "ends"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.float64))
        if len(self.edges) < 2 or len(self.starts) != len(self.edges) - 1 or len(self.ends) != len(self.starts):
            raise ValueError("curve: give one start and one end value for each pair of neighbouring edges")
        if not np.isfinite(self.edges).all() or (np.diff(self.edges) <= 0).any():
            raise ValueError("curve: times must be finite and rise; merge points of the same time")
        values = np.concatenate([self.starts, self.ends])
        if not np.isfinite(values).all() or (values < 0).any():
            raise ValueError("curve: values must be finite and not negative")

    @classmethod
    def constant(cls, value: float, *, seconds: float) -> Curve:
        return cls(np.array([0.0, seconds]), np.array([value]), np.array([value]))

    @classmethod
    def hold(cls, times: ArrayLike, values: ArrayLike, *, end: float) -> Curve:
        """Each value from its time until the next one's; the last until ``end``."""
        held = np.asarray(values, dtype=np.float64)
        return cls(np.append(np.asarray(times, dtype=np.float64), end), held, held)

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]]) -> Curve:
        """Straight lines through (seconds, value); two points of the same time are a jump."""
        times = np.array([time for time, _ in points])
        values = np.array([value for _, value in points])
        if (np.diff(times) < 0).any():
            raise ValueError("curve: points must be in the order of time")
        apart = np.flatnonzero(np.diff(times) > 0)
        if not len(apart):
            raise ValueError("curve: give points of at least two different times")
        return cls(np.append(times[apart], times[apart[-1] + 1]), values[apart], values[apart + 1])

    @property
    def start(self) -> float:
        return float(self.edges[0])

    @property
    def end(self) -> float:
        return float(self.edges[-1])

    @property
    def total(self) -> float:
        """Integral: of a rate, the expected number of requests."""
        return float(self.areas.sum())

    @property
    def mean(self) -> float:
        return self.total / (self.end - self.start)

    @property
    def peak(self) -> float:
        return float(max(self.starts.max(), self.ends.max()))

    @property
    def areas(self) -> Floats:
        """[segments] integral of each segment."""
        areas: Floats = (self.starts + self.ends) / 2 * np.diff(self.edges)
        return areas

    def at(self, times: ArrayLike) -> Floats:
        """Value at each time; at a jump the later one, outside the curve its first or last value."""
        when = np.clip(np.asarray(times, dtype=np.float64), self.start, self.end)
        segment = np.clip(np.searchsorted(self.edges, when, side="right") - 1, 0, len(self.starts) - 1)
        return self._within(segment, when)

    def _within(self, segment: NDArray[np.intp], when: Floats) -> Floats:
        left = self.edges[segment]
        share = (when - left) / (self.edges[segment + 1] - left)
        values: Floats = self.starts[segment] + share * (self.ends[segment] - self.starts[segment])
        return values

    def times(self, factor: Curve | float) -> Curve:
        """This curve with its values multiplied, on its own times.

        Within a segment the product of two slopes is drawn as the straight line between its ends.
        """
        if not isinstance(factor, Curve):
            return Curve(self.edges, self.starts * factor, self.ends * factor)
        inside = factor.edges[(factor.edges > self.start) & (factor.edges < self.end)]
        edges = np.union1d(self.edges, inside)
        middles = (edges[:-1] + edges[1:]) / 2
        starts, ends = (self._side(middles, side) * factor._side(middles, side) for side in (edges[:-1], edges[1:]))
        return Curve(edges, starts, ends)

    def _side(self, middles: Floats, when: Floats) -> Floats:
        """Values at ``when`` of the segments that hold ``middles``: at a jump this picks the side."""
        segment = np.clip(np.searchsorted(self.edges, middles, side="right") - 1, 0, len(self.starts) - 1)
        return self._within(segment, np.clip(when, self.start, self.end))

    def with_mean(self, rate: float) -> Curve:
        """The same form with this mean value. Raises ValueError if the curve is zero throughout."""
        if self.total <= 0:
            raise ValueError("curve: it is zero throughout and cannot be scaled to a mean; give one with traffic")
        return self.times(rate / self.mean)

    def cut(self, start: float, end: float) -> Curve:
        """The part between two times, moved to begin at 0. Raises ValueError if nothing of the curve lies there."""
        start, end = max(start, self.start), min(end, self.end)
        if not start < end:
            raise ValueError(
                f"curve: nothing lies from {start:g} s to {end:g} s; it runs from {self.start:g} s to {self.end:g} s"
            )
        inside = self.edges[(self.edges > start) & (self.edges < end)]
        edges = np.concatenate([[start], inside, [end]])
        middles = (edges[:-1] + edges[1:]) / 2
        return Curve(edges - start, self._side(middles, edges[:-1]), self._side(middles, edges[1:]))
