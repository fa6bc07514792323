"""Knative's pod autoscaler on concurrency, with its stable and panic windows.

Source: Knative Serving, documentation "Autoscaling", the defaults of the ConfigMap config-autoscaler and
pkg/autoscaler/scaling/autoscaler.go of 2025: a decision every 2 s on pods that it scrapes itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tierkeeper.sim.peers.figures import Figures, mean, since

TICK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class KpaSettings:
    """Keys of config-autoscaler with their defaults."""

    container_concurrency: float | None = None
    """Requests one pod may hold; None: the pool's max-num-seqs, the hard limit of the engine."""
    target_utilization: float = 0.7
    stable_window_seconds: float = 60.0
    panic_window_percent: float = 10.0
    """Of the stable window: 6 s."""
    panic_threshold: float = 2.0
    max_scale_up_rate: float = 1000.0
    max_scale_down_rate: float = 2.0
    scale_down_delay_seconds: float = 0.0


@dataclass(slots=True)
class KpaLaw:
    """One revision. It starts in panic where more than one pod is ready, so that it sheds none before it has seen."""

    settings: KpaSettings = field(default_factory=KpaSettings)
    _seen: list[tuple[float, float]] = field(default_factory=list)
    """Concurrency of the whole revision by time."""
    _delayed: list[tuple[float, int]] = field(default_factory=list)
    _started: bool = False
    _panic_since: float | None = None
    _panic_pods: int = 0

    def desired(self, *, now: float, figures: Figures) -> int:
        if not self._started:
            self._started = True
            self._panic_since, self._panic_pods = (now, figures.ready) if figures.ready > 1 else (None, 0)
        per_pod = mean(figures.own_scrape(), lambda pod: pod.concurrency)
        if per_pod is not None:
            # A pod that was not scraped is taken for an average one.
            self._seen.append((now, per_pod * figures.ready))
        self._seen = since(self._seen, now - self.settings.stable_window_seconds)
        stable = self._average(now, self.settings.stable_window_seconds)
        if stable is None:
            return figures.replicas
        panic = self._average(now, self.settings.stable_window_seconds * self.settings.panic_window_percent / 100)
        wanted = self._scale(
            now=now, ready=max(1, figures.ready), target=self._target(figures), stable=stable, panic=panic or 0.0
        )
        return self._delay(now, wanted)

    def _target(self, figures: Figures) -> float:
        limit = self.settings.container_concurrency or float(figures.max_num_seqs)
        return limit * self.settings.target_utilization

    def _average(self, now: float, window: float) -> float | None:
        values = [value for _, value in since(self._seen, now - window)]
        return sum(values) / len(values) if values else None

    def _scale(self, *, now: float, ready: int, target: float, stable: float, panic: float) -> int:
        most = math.ceil(self.settings.max_scale_up_rate * ready)
        least = math.floor(ready / self.settings.max_scale_down_rate)
        by_stable = min(max(math.ceil(stable / target), least), most)
        by_panic = min(max(math.ceil(panic / target), least), most)
        over = math.ceil(panic / target) / ready >= self.settings.panic_threshold
        if over:
            self._panic_since = now
        elif self._panic_since is not None and now > self._panic_since + self.settings.stable_window_seconds:
            self._panic_since, self._panic_pods = None, 0
        if self._panic_since is None:
            return by_stable
        self._panic_pods = max(self._panic_pods, by_stable, by_panic)
        return self._panic_pods

    def _delay(self, now: float, wanted: int) -> int:
        """The highest answer within the scale-down delay."""
        if self.settings.scale_down_delay_seconds <= 0:
            return wanted
        self._delayed = since(self._delayed, now - self.settings.scale_down_delay_seconds)
        self._delayed.append((now, wanted))
        return max(n for _, n in self._delayed)
