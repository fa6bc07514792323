"""The ``behavior`` block of a HorizontalPodAutoscaler: stabilization windows and rates. Four of the peers act by it.

Source: Kubernetes documentation "Horizontal Pod Autoscaling" and the autoscaling/v2 API reference, Kubernetes 1.36.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tierkeeper.sim.peers.figures import since


@dataclass(frozen=True, slots=True)
class Rate:
    """At most this much change within a period. Exactly one of ``pods`` and ``percent`` is set."""

    period_seconds: float
    pods: int | None = None
    percent: float | None = None

    def step(self, replicas: int) -> float:
        """Pods by which ``replicas`` may change within the period."""
        return self.pods if self.pods is not None else replicas * (self.percent or 0.0) / 100.0


@dataclass(frozen=True, slots=True)
class Rule:
    """One direction. Of several rates the one that allows most counts (``selectPolicy: Max``)."""

    rates: tuple[Rate, ...]
    stabilization_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Behavior:
    """Both directions."""

    up: Rule
    down: Rule


DEFAULT = Behavior(
    up=Rule((Rate(15.0, percent=100.0), Rate(15.0, pods=4))),
    down=Rule((Rate(15.0, percent=100.0),), stabilization_seconds=300.0),
)
"""Kubernetes' own: up by 100 % or 4 pods in 15 s, at once; down by any number, but only to the highest recommendation
of the last 300 s."""


@dataclass(slots=True)
class Scale:
    """The scale target over time: what was recommended, and what was really changed."""

    behavior: Behavior
    _recommended: list[tuple[float, int]] = field(default_factory=list)
    _changes: list[tuple[float, int]] = field(default_factory=list)
    _seen: tuple[float, int] | None = None

    def next(self, *, now: float, current: int, desired: int) -> int:
        """Replicas to set now, before the bounds of the tier."""
        self._observe(now, current)
        wanted = self._stabilized(now, current, desired)
        if wanted > current:
            return min(wanted, self._ceiling(now, current))
        return max(wanted, self._floor(now, current)) if wanted < current else current

    def _observe(self, now: float, current: int) -> None:
        """A change is seen at the next sync, but counts from the sync that made it. The first sight of the target is
        its first recommendation."""
        if self._seen is None:
            self._recommended.append((now, current))
        elif self._seen[1] != current:
            self._changes.append((self._seen[0], current - self._seen[1]))
        longest = max(rate.period_seconds for rate in (*self.behavior.up.rates, *self.behavior.down.rates))
        self._changes = since(self._changes, now - longest)
        self._seen = (now, current)

    def _stabilized(self, now: float, current: int, desired: int) -> int:
        """Up to the lowest recommendation of the upward window, down to the highest of the downward one."""
        up, down = self.behavior.up.stabilization_seconds, self.behavior.down.stabilization_seconds
        self._recommended = [(at, n) for at, n in self._recommended if at >= now - max(up, down)]
        lowest = min([desired, *(n for _, n in since(self._recommended, now - up))])
        highest = max([desired, *(n for _, n in since(self._recommended, now - down))])
        self._recommended.append((now, desired))
        return min(max(current, lowest), highest)

    def _changed(self, now: float, rate: Rate, sign: int) -> int:
        """Pods added (sign 1) or removed (-1) within the rate's period."""
        return sum(sign * by for _, by in since(self._changes, now - rate.period_seconds) if by * sign > 0)

    def _started_at(self, now: float, current: int, rate: Rate) -> int:
        """Replicas at the start of the rate's period."""
        return current - self._changed(now, rate, 1) + self._changed(now, rate, -1)

    def _ceiling(self, now: float, current: int) -> int:
        starts = [(self._started_at(now, current, rate), rate) for rate in self.behavior.up.rates]
        return max(current, *(math.ceil(start + rate.step(start)) for start, rate in starts))

    def _floor(self, now: float, current: int) -> int:
        starts = [(self._started_at(now, current, rate), rate) for rate in self.behavior.down.rates]
        return min(current, *(math.floor(start - rate.step(start)) for start, rate in starts))
