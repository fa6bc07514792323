"""What a tier's own gauges on the operator's /metrics show of its conditions and its pool. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tierkeeper.api.status import ServiceTierStatus
from tierkeeper.control.pods import PodPhase
from tierkeeper.control.pool import PoolView
from tierkeeper.control.record import TierRecord
from tierkeeper.engine.limits import Limits
from tierkeeper.scaling.model import Levers

Gauges = Mapping[tuple[str, tuple[str, ...]], float | None]
"""Value by metric and labels; None takes the series away."""


def gauges(status: ServiceTierStatus, view: PoolView | None, *, desired: Levers | None, shown: Limits | None) -> Gauges:
    """Of a pool that was not looked at the conditions alone."""
    values: dict[tuple[str, tuple[str, ...]], float | None] = {
        ("condition", (c.type, c.status.value, c.reason)): 1 for c in status.conditions
    }
    if view is None:
        return values
    wanted = desired or view.levers
    values |= {("replicas", (state,)): count for state, count in _replicas(view, wanted).items()}
    for state, limits in (("desired", wanted), ("set", view.levers), ("applied", shown)):
        values["max_num_seqs", (state,)] = limits.max_num_seqs if limits else None
        values["token_budget", (state,)] = limits.max_num_batched_tokens if limits else None
    return values


def _replicas(view: PoolView, desired: Levers) -> dict[str, int]:
    return {
        "desired": desired.replicas,
        "set": view.levers.replicas,
        "ready": view.census.ready,
        "starting": view.census.starting,
        "unschedulable": view.unschedulable,
        "failing": view.census.failing,
    }


def shown_by_all(record: TierRecord, view: PoolView | None) -> Limits | None:
    """The one pair of limits that every Ready pod has shown."""
    names = [pod.name for pod in view.census.of(PodPhase.READY)] if view is not None else []
    shown = {record.shown.get(name) for name in names}
    return shown.pop() if len(shown) == 1 else None
