"""What is kept of a run: the simulator's scores by tier, and what the scoreboard asks beside them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tierkeeper.sim.record import Run, TierRun
from tierkeeper.sim.score import good_requests, inversion_seconds, reaction, score

MINUTE = 60.0
"""A P99 is read over a minute of the arrivals: 1,200 requests in the shaped scenarios."""

SETTLED_SECONDS = 600.0
"""The replicas of the last ten minutes of a stretch are those that its load needs; more before them are overshoot."""

Row = dict[str, Any]
"""A run as the scoreboard and its file hold it: JSON values, times in seconds."""


def measured(run: Run, *, changes: Sequence[float] = ()) -> Row:
    """The figures of a run, all tiers together and each alone. ``changes``: seconds at which the traffic changes."""
    tiers = {key.name: _tier(run, tier, changes) for key, tier in run.tiers.items()}
    found = list(tiers.values())
    return pooled(tiers) | {
        "worst_hour_burn": max(one["worst_hour_burn"] for one in found),
        "reversals_per_day": max(one["reversals_per_day"] for one in found),
        "blind_shrinks": sum(one["blind_shrinks"] for one in found),
        "inversion_seconds": inversion_seconds(run),
    }


def pooled(tiers: Mapping[str, Row]) -> Row:
    """The figures that policies and bounds have in common, of all tiers together; each tier's own beside them."""
    rows = list(tiers.values())
    requests, good = sum(row["requests"] for row in rows), sum(row["good"] for row in rows)
    return {
        "requests": requests,
        "good": good,
        "attainment": good / requests if requests else 1.0,
        "kept": all(row["kept"] for row in rows),
        "budget_use": max(row["budget_use"] for row in rows),
        "gpu_hours": sum(row["gpu_hours"] for row in rows),
        "tiers": tiers,
    }


def planned(*, requests: int, bad: int, gpu_seconds: float, budget: float) -> Row:
    """The figures of a schedule that was replayed without a policy. ``budget``: the share that may be bad."""
    good = requests - bad
    return {
        "requests": requests,
        "good": good,
        "attainment": good / requests if requests else 1.0,
        "kept": bad <= budget * requests,
        "budget_use": bad / (budget * requests) if requests else 0.0,
        "gpu_hours": gpu_seconds / 3600,
    }


def late_minutes(tier: TierRun, *, at: float, until: float) -> NDArray[np.bool_]:
    """[minutes] of arrivals from ``at`` until another time: whether their P99 TPOT misses the target."""
    objective = tier.spec.objective
    edges = np.arange(at, until + 1e-9, MINUTE)
    if objective is None or objective.tpot_seconds is None:
        return np.zeros(len(edges) - 1, dtype=bool)
    parts = np.split(tier.outcome.tpot, np.searchsorted(tier.requests.arrival, edges))[1:-1]
    known = [part[np.isfinite(part)] for part in parts]
    late = [len(part) > 0 and float(np.quantile(part, 0.99)) > objective.tpot_seconds for part in known]
    return np.array(late, dtype=bool)


def minutes_back(late: NDArray[np.bool_]) -> int | None:
    """Minutes from the start until two in a row are not late again; 0: none ever was. None: they never are."""
    if not late.any():
        return 0
    first = int(np.argmax(late))
    well = ~late[first:-1] & ~late[first + 1 :]
    return first + int(np.argmax(well)) if well.any() else None


def overshoot(tier: TierRun, *, at: float, until: float) -> float:
    """Most replicas that were asked for between two times over those of the last ten minutes before the later one."""
    times, replicas = tier.series.at, tier.series.replicas
    inside = (times >= at) & (times < until)
    settled = inside & (times >= until - SETTLED_SECONDS)
    if not settled.any():
        return float("nan")
    return float(replicas[inside].max()) / float(np.median(replicas[settled]))


def blind_shrinks(tier: TierRun) -> int:
    """How often replicas were taken away at a tick whose metrics could not be believed."""
    fell = np.diff(tier.series.replicas, prepend=tier.series.replicas[:1]) < 0
    return int((fell & (tier.series.known == 0)).sum())


def _tier(run: Run, tier: TierRun, changes: Sequence[float]) -> Row:
    found = score(run, tier)
    objective = tier.spec.objective
    good = int(good_requests(tier.outcome, objective).sum())
    ends = [*changes[1:], run.seconds]
    reactions = []
    for at, until in zip(changes, ends, strict=True) if changes else ():
        seen, late = reaction(tier, at=at, until=until), late_minutes(tier, at=at, until=until)
        reactions.append(
            {
                "at": at,
                **dataclasses.asdict(seen),
                "overshoot": overshoot(tier, at=at, until=until),
                "late_minutes": int(late.sum()),
                "minutes_back": minutes_back(late),
            }
        )
    kept = objective is None or found.attainment >= objective.ratio
    extra: Row = {"good": good, "kept": kept, "blind_shrinks": blind_shrinks(tier), "reactions": reactions}
    row: Row = _finite(dataclasses.asdict(found) | extra)
    return row


def _finite(value: Any) -> Any:
    """The same without numbers that JSON does not know."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
