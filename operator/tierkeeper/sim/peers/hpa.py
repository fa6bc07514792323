"""Kubernetes' HorizontalPodAutoscaler on running + waiting requests per pod.

Source: Kubernetes documentation "Horizontal Pod Autoscaling" (algorithm details, configurable scaling behavior) and
the flags of kube-controller-manager, Kubernetes 1.36: sync every 15 s, tolerance 10 %, down-scale stabilization 300 s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tierkeeper.sim.peers.behavior import DEFAULT, Behavior, Scale
from tierkeeper.sim.peers.figures import Figures

SYNC_SECONDS = 15.0
TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class HpaSettings:
    """A Pods metric with an AverageValue target."""

    target_per_pod: float | None = None
    """Requests per pod to keep; None: ``utilization`` of the pool's max-num-seqs."""
    utilization: float = 0.8
    """No target is published for such a metric; 80 % is what Kubernetes takes where a resource metric names none."""
    tolerance: float = TOLERANCE
    behavior: Behavior = DEFAULT


@dataclass(slots=True)
class HpaLaw:
    """One HPA object. Where no pod reports it does nothing, as the controller does when a metric cannot be read."""

    settings: HpaSettings = field(default_factory=HpaSettings)
    _scale: Scale = field(init=False)

    def __post_init__(self) -> None:
        self._scale = Scale(self.settings.behavior)

    def desired(self, *, now: float, figures: Figures) -> int:
        target = self.settings.target_per_pod or self.settings.utilization * figures.max_num_seqs
        loads = [pod.concurrency for pod in figures.pods().values()] if figures.reachable else []
        if not loads:
            return figures.replicas
        wanted = pods_metric(loads, replicas=figures.replicas, target=target, tolerance=self.settings.tolerance)
        return self._scale.next(now=now, current=figures.replicas, desired=wanted)


def within(ratio: float, tolerance: float) -> bool:
    """Whether a ratio of value to target is too near 1 to act on. Exactly 10 % off is still near enough."""
    return 1.0 - tolerance <= ratio <= 1.0 + tolerance


def pods_metric(values: Sequence[float], *, replicas: int, target: float, tolerance: float) -> int:
    """Replicas by a Pods metric: the mean over the pods that report, at least one, against ``target``.

    A pod that does not report yet counts as 0 when growing and as the target itself when shrinking; where that turns
    the direction round, nothing is done. Worked: 2 of 4 pods report 30 each against 16: ratio 1.88, with the two
    silent ones as 0 it is 0.94, the other way round, so 4 stay.
    """
    ratio = sum(values) / len(values) / target
    missing = max(0, replicas - len(values))
    if not missing:
        return replicas if within(ratio, tolerance) else math.ceil(ratio * len(values))
    filled = [*values, *([0.0 if ratio > 1.0 else target] * missing)]
    adjusted = sum(filled) / len(filled) / target
    if within(adjusted, tolerance) or (ratio - 1.0) * (adjusted - 1.0) < 0:
        return replicas
    wanted = math.ceil(adjusted * len(filled))
    return max(wanted, replicas) if adjusted > 1.0 else min(wanted, replicas)


def external_value(value: float, *, replicas: int, ready: int, target: float, tolerance: float) -> int:
    """Replicas by an External metric of type Value: the ready pods times value over target."""
    ratio = value / target
    return replicas if within(ratio, tolerance) else math.ceil(ratio * ready)


def external_average(value: float, *, replicas: int, target: float, tolerance: float) -> int:
    """Replicas by an External metric of type AverageValue: value over target, whatever runs now."""
    if replicas > 0 and within(value / (target * replicas), tolerance):
        return replicas
    return math.ceil(value / target)


def follow(scale: Scale, wanted: int, *, now: float, replicas: int, tolerance: float) -> int:
    """Replicas that an HPA sets whose metric is the number wanted itself, an AverageValue of 1: its tolerance and its
    behavior still apply."""
    desired = external_average(wanted, replicas=replicas, target=1.0, tolerance=tolerance)
    return scale.next(now=now, current=replicas, desired=desired)
