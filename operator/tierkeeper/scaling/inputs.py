"""The figures that a decision rests on, as the status tells them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from math import isfinite
from typing import NamedTuple

from tierkeeper.scaling.diagnose import predicted_wait_seconds
from tierkeeper.scaling.sizing import Plan
from tierkeeper.slo.model import Assessment, Sli

_FIGURES = {sli: tuple(f"{sli.lower()}{figure}" for figure in ("P99Seconds", "Burn1m", "Burn5m")) for sli in Sli}


class Inputs(NamedTuple):
    """What was seen and planned at the tick of a decision."""

    assessment: Assessment
    plan: Plan | None
    ready: int
    """Pods."""

    def figures(self) -> Mapping[str, float]:
        """The finite ones, by camelCase name."""
        traffic, plan = self.assessment.traffic, self.plan
        figures: dict[str, float] = {
            "running": traffic.running,
            "waiting": traffic.waiting,
            "waitingFloor": traffic.waiting_floor,
            "requestsPerSecond": traffic.requests_per_second,
            "requests5m": traffic.requests_5m,
            "predictedWaitSeconds": predicted_wait_seconds(traffic),
            "promptTokensPerSecond": traffic.prompt_tokens_per_second,
            "preemptionsPerSecond": traffic.preemptions_per_second,
        }
        if traffic.kv_cache_usage is not None:
            figures["kvCacheUsage"] = traffic.kv_cache_usage
        figures["readyPods"] = float(self.ready)
        figures["observedPods"] = float(traffic.observed_pods)
        if plan is not None:
            figures["arrivalsPerSecond"] = plan.rate
            figures["expectedPerSecond"] = plan.coming
            figures["strain"] = plan.strain
            figures["allowedStrain"] = plan.allowed
            figures["neededReplicas"] = plan.need
            figures["enoughReplicas"] = float(plan.shrink_to)
        figures |= _of_slos(self.assessment)
        return dict(compress(figures.items(), map(isfinite, figures.values())))


def _of_slos(assessment: Assessment) -> dict[str, float]:
    figures = {}
    for sli, slo in assessment.slos.items():
        p99, *burns = _FIGURES[sli]
        if slo.p99 is not None:
            figures[p99] = slo.p99.seconds
        for name, seconds in zip(burns, (60, 300), strict=True):
            if (window := slo.window(seconds)) is not None:
                figures[name] = window.burn.point
    return figures
