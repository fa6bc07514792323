"""KEDA's Prometheus scaler on P99 TTFT, through the HPA that it makes.

Source: KEDA documentation, "Prometheus" scaler and "ScaledObject specification" (pollingInterval 30 s,
useCachedMetrics false, ignoreNullValues true; bounds from the tier), KEDA 2.21; the HPA as in ``hpa``. With a minimum
of 1 or more the polling interval drives no query: the HPA asks at each of its syncs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tierkeeper.sim.peers.behavior import DEFAULT, Behavior, Scale
from tierkeeper.sim.peers.figures import Figures
from tierkeeper.sim.peers.hpa import TOLERANCE, external_average, external_value


@dataclass(frozen=True, slots=True)
class KedaSettings:
    """One trigger: ``histogram_quantile(quantile, sum by (le) (rate(..._bucket[window])))``."""

    threshold_seconds: float | None = None
    """None: the tier's TTFT target."""
    quantile: float = 0.99
    window_seconds: int = 60
    metric_type: Literal["Value", "AverageValue"] = "Value"
    """KEDA's own default is AverageValue, which divides a latency by its target and takes the quotient for a number of
    replicas, whatever runs now; for a latency its documentation names Value."""
    ignore_null_values: bool = True
    """True: no series, NaN and infinity read as 0, that is as idle. False: an error, and the HPA holds. A Prometheus
    that does not answer is always an error."""
    use_cached_metrics: bool = False
    """False: each HPA sync asks Prometheus anew. True: the answer of the last poll is given."""
    polling_seconds: float = 30.0
    tolerance: float = TOLERANCE
    behavior: Behavior = DEFAULT


@dataclass(slots=True)
class KedaLaw:
    """One ScaledObject. KEDA itself only moves between 0 and 1 replicas; the tier's minimum is at least 1."""

    settings: KedaSettings = field(default_factory=KedaSettings)
    _scale: Scale = field(init=False)
    _polled: tuple[float, float | None] | None = None

    def __post_init__(self) -> None:
        self._scale = Scale(self.settings.behavior)

    def desired(self, *, now: float, figures: Figures) -> int:
        settings = self.settings
        target = settings.threshold_seconds or figures.ttft_target_seconds
        if target is None:
            return figures.replicas
        value = self._value(now, figures)
        if value is None:
            return figures.replicas
        if settings.metric_type == "Value":
            wanted = external_value(
                value, replicas=figures.replicas, ready=figures.ready, target=target, tolerance=settings.tolerance
            )
        else:
            wanted = external_average(value, replicas=figures.replicas, target=target, tolerance=settings.tolerance)
        return self._scale.next(now=now, current=figures.replicas, desired=wanted)

    def _value(self, now: float, figures: Figures) -> float | None:
        """What the scaler answers, in seconds; None for an error."""
        settings = self.settings
        if settings.use_cached_metrics and self._polled and now < self._polled[0] + settings.polling_seconds:
            return self._polled[1]
        value = None
        if figures.reachable:
            value = figures.ttft(settings.quantile, settings.window_seconds)
            if value is None and settings.ignore_null_values:
                value = 0.0
        self._polled = (now, value)
        return value
