"""llm-d's SLO-aware law: a KEDA formula over the ratio of P90 latency to its target.

Source: llm-d/llm-d, guides/workload-autoscaling, "SLO-Aware Autoscaling with KEDA and Predicted Latency" of September
2026 (KEDA 2.20.1). Here it reads the measured latencies, its documented way where no predictor is deployed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tierkeeper.sim.peers.behavior import Behavior, Rate, Rule, Scale
from tierkeeper.sim.peers.figures import Figures, since
from tierkeeper.sim.peers.hpa import TOLERANCE, follow

BEHAVIOR = Behavior(
    up=Rule((Rate(60.0, percent=100.0), Rate(60.0, pods=4)), stabilization_seconds=30.0),
    down=Rule((Rate(120.0, pods=1),), stabilization_seconds=180.0),
)


@dataclass(frozen=True, slots=True)
class LlmdSettings:
    """The benchmarked values of the guide."""

    quantile: float = 0.9
    window_seconds: int = 60
    clamp: float = 2.0
    """Highest saturation of one sample."""
    smoothing_seconds: float = 45.0
    up: float = 0.55
    down: float = 0.40
    tolerance: float = TOLERANCE
    behavior: Behavior = BEHAVIOR


@dataclass(slots=True)
class LlmdLaw:
    """One ScaledObject with its recording rules. No data and NaN read as saturation 0, as its rules have it."""

    settings: LlmdSettings = field(default_factory=LlmdSettings)
    _scale: Scale = field(init=False)
    _samples: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._scale = Scale(self.settings.behavior)

    def desired(self, *, now: float, figures: Figures) -> int:
        if not figures.reachable or (figures.ttft_target_seconds is None and figures.tpot_target_seconds is None):
            return figures.replicas
        settings = self.settings
        self._samples = since(self._samples, now - settings.smoothing_seconds)
        self._samples.append((now, min(raw_saturation(figures, settings), settings.clamp)))
        saturation = sum(s for _, s in self._samples) / len(self._samples)
        wanted = formula(saturation, replicas=figures.replicas, ready=figures.ready, settings=settings)
        return follow(self._scale, wanted, now=now, replicas=figures.replicas, tolerance=settings.tolerance)


def raw_saturation(figures: Figures, settings: LlmdSettings) -> float:
    """The worse of the two P90s over their targets; 0 where neither can be read."""
    worst = 0.0
    for read, target in ((figures.ttft, figures.ttft_target_seconds), (figures.tpot, figures.tpot_target_seconds)):
        seconds = None if target is None else read(settings.quantile, settings.window_seconds)
        if seconds is not None and target is not None:
            worst = max(worst, seconds / target)
    return worst


def formula(saturation: float, *, replicas: int, ready: int, settings: LlmdSettings) -> int:
    """Replicas for a smoothed saturation.

    Above ``up`` the ask is credited with the pods that are still to come: 4 provisioned of which 2 are ready, at 1.1:
    4 + ceil(4 * (1.1 * 0.5 / 0.55 - 1)) = 4, nothing more, and never fewer. Below ``down`` it is not.
    """
    if saturation > settings.up:
        credit = ready / replicas if 0 < ready < replicas else 1.0
        return replicas + max(0, math.ceil(replicas * (saturation * credit / settings.up - 1)))
    if saturation < settings.down:
        return replicas - math.floor(replicas * (1 - saturation / settings.down))
    return replicas
