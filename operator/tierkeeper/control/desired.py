"""What should be set on a pool: the spec, what is set, and the last decision, put together. Pure."""

from __future__ import annotations

import dataclasses

from tierkeeper.control.pool import PoolView
from tierkeeper.control.record import TierRecord
from tierkeeper.scaling.levers import starting_levers, within_bounds
from tierkeeper.scaling.model import Levers
from tierkeeper.tier import Mode, TierSpec


def desired_levers(spec: TierSpec, record: TierRecord, view: PoolView) -> Levers:
    """What should be set. The last decision in mode Auto; without one what is set; for a new pool where it starts.

    The spec's bounds hold at once, whatever the metrics say, and so do starting limits that a user has moved. Mode
    Recommend otherwise leaves a living pool as it is.
    """
    mode, start = spec.scaling.mode, starting_levers(spec)
    if mode is Mode.FIXED or not view.exists:
        return start
    if mode is Mode.PAUSED:
        return view.levers
    replicas = spec.scaling.replicas.clamp(view.levers.replicas)
    if mode is Mode.RECOMMEND:
        replicas = start.replicas if view.unscaled else view.levers.replicas
    if view.start_moved:
        return dataclasses.replace(start, replicas=replicas)
    if mode is Mode.AUTO and record.decision is not None:
        return within_bounds(spec, record.decision.levers)
    limits = view.levers if mode is Mode.RECOMMEND else within_bounds(spec, view.levers)
    return dataclasses.replace(limits, replicas=replicas)
