"""AIBrix's APA: the HPA ratio with a band of its own for each direction and a bound on each step.

Source: vllm-project/aibrix, pkg/controller/podautoscaler (algorithm/apa.go, context, autoscaler.go) of October 2026,
and its samples/autoscaling/apa.yaml (KV cache usage at 50 %). A decision every 10 s on pods that it scrapes itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from tierkeeper.sim.peers.figures import Figures, PodLoad, mean, since

RESYNC_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ApaSettings:
    """Annotations of a PodAutoscaler with their defaults; the metric and its target are those of the sample."""

    metric: Literal["kv-usage", "concurrency"] = "kv-usage"
    target: float = 0.5
    """Per pod: a share of the KV cache, or requests running and waiting."""
    window_seconds: float = 180.0
    up_tolerance: float = 0.1
    down_tolerance: float = 0.1
    max_up_rate: float = 2.0
    max_down_rate: float = 2.0
    up_cooldown_seconds: float = 0.0
    down_cooldown_seconds: float = 300.0
    down_select: Literal["min", "max"] = "min"
    """Which recommendation of the down window counts. The code takes the lowest, so that the window does not hold a
    scale-down back; "max" is what its documentation has in mind."""


@dataclass(slots=True)
class ApaLaw:
    """One PodAutoscaler."""

    settings: ApaSettings = field(default_factory=ApaSettings)
    _seen: list[tuple[float, float]] = field(default_factory=list)
    _recommended: list[tuple[float, int]] = field(default_factory=list)

    def desired(self, *, now: float, figures: Figures) -> int:
        value = mean(figures.own_scrape(), self._metric)
        if value is None:
            return figures.replicas
        self._seen = since(self._seen, now - self.settings.window_seconds)
        self._seen.append((now, value))
        average = sum(v for _, v in self._seen) / len(self._seen)
        wanted = self._guarded(average, self._ratio(average, figures.replicas), figures)
        return self._stabilized(now, figures.replicas, wanted)

    def _metric(self, pod: PodLoad) -> float:
        return pod.kv_usage if self.settings.metric == "kv-usage" else pod.concurrency

    def _ratio(self, value: float, replicas: int) -> int:
        settings, ratio = self.settings, value / self.settings.target
        if ratio > 1 + settings.up_tolerance:
            return min(math.ceil(replicas * ratio), math.ceil(replicas * settings.max_up_rate))
        if ratio < 1 - settings.down_tolerance:
            return max(math.ceil(replicas * ratio), math.floor(replicas / settings.max_down_rate))
        return replicas

    def _guarded(self, value: float, wanted: int, figures: Figures) -> int:
        """Pods that are not ready count as idle when growing and as just at the target when shrinking."""
        replicas, ready = figures.replicas, min(figures.ready, figures.replicas)
        pending = replicas - ready
        if pending <= 0 or wanted == replicas or replicas <= 0:
            return wanted
        target = self.settings.target
        if wanted > replicas:
            return min(wanted, max(replicas, math.ceil(value * ready / target)))
        return max(wanted, min(replicas, math.ceil((value * ready + target * pending) / target)))

    def _stabilized(self, now: float, replicas: int, wanted: int) -> int:
        settings = self.settings
        longest = max(settings.up_cooldown_seconds, settings.down_cooldown_seconds)
        self._recommended = since(self._recommended, now - longest)
        self._recommended.append((now, wanted))
        if wanted == replicas:
            return replicas
        growing = wanted > replicas
        window = settings.up_cooldown_seconds if growing else settings.down_cooldown_seconds
        within = [n for _, n in since(self._recommended, now - window)] or [wanted]
        return max(within) if growing or settings.down_select == "max" else min(within)
