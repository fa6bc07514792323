"""What a run is worth: promises kept over all that arrived, and the GPU time that it took.

A request is good when it finished within every threshold of its tier. Whatever was rejected, cut or never served is
bad: dropping late requests improves no figure here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tierkeeper.sim.model import Outcome, Status
from tierkeeper.sim.record import Entry, Run, TierRun
from tierkeeper.tier import Objective

WITHIN_SECONDS = 300.0
"""How long a tier must be within its SLO to count as recovered."""

REVERSAL_STARTUPS = 2.0
"""A change of direction this many start-up times after the last change is a reversal: it undid what had just come."""

DAY_SECONDS = 86400.0

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Score:
    """One tier of one run. Latencies in seconds, of the requests that have them; NaN where there are none."""

    requests: int
    """All arrivals: the denominator of every share."""
    attainment: float
    """Share of the requests that are good."""
    budget_use: float
    """Bad share / error budget: 1 spends it exactly."""
    worst_hour_burn: float
    """The same over the worst hour of arrivals."""
    gpu_hours: float
    good_per_gpu_hour: float
    ttft_p50: float
    ttft_p99: float
    tpot_p50: float
    tpot_p99: float
    rejected: int
    cut: int
    unserved: int
    preemptions: int
    replica_changes: int
    live_changes: int
    """Changes of max-num-seqs or of the token budget."""
    reversals_per_day: float
    little_residual: float
    """How far the mean number of requests in the pool is from arrival rate times mean time in it, as a share."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """What followed a marked moment. Seconds since it; None: it never came."""

    first_action: float | None
    """To the first change of a lever."""
    recovered: float | None
    """To the start of the first five minutes within the SLO, by arrival; 0 where it was never missed."""


def score(run: Run, tier: TierRun) -> Score:
    """The figures of one tier."""
    outcome, count = tier.outcome, len(tier.requests)
    good = good_requests(outcome, tier.spec.objective)
    attainment = float(good.mean()) if count else 1.0
    budget = _budget(tier.spec.objective)
    hours = tier.gpu_seconds / 3600
    entries = [entry for entry in tier.decisions if entry.at <= run.seconds]
    moves = [(e.at, e.after.replicas - e.before.replicas) for e in entries if e.after.replicas != e.before.replicas]
    return Score(
        requests=count,
        attainment=attainment,
        budget_use=(1 - attainment) / budget,
        worst_hour_burn=_worst_burn(tier.requests.arrival, good, budget=budget, seconds=3600.0),
        gpu_hours=hours,
        good_per_gpu_hour=float(good.sum()) / hours if hours else float("nan"),
        ttft_p50=_quantile(outcome.ttft, 0.5),
        ttft_p99=_quantile(outcome.ttft, 0.99),
        tpot_p50=_quantile(outcome.tpot, 0.5),
        tpot_p99=_quantile(outcome.tpot, 0.99),
        rejected=_count(outcome, Status.REJECTED),
        cut=_count(outcome, Status.CUT),
        unserved=_count(outcome, Status.UNSERVED),
        preemptions=int(outcome.preemptions.sum()),
        replica_changes=len(moves),
        live_changes=sum(_live(entry) for entry in entries),
        reversals_per_day=reversals(moves, within=REVERSAL_STARTUPS * tier.startup_seconds) * DAY_SECONDS / run.seconds,
        little_residual=little_residual(tier),
    )


def good_requests(outcome: Outcome, objective: Objective | None) -> NDArray[np.bool_]:
    """[N] which requests finished within every promised threshold. One of a single token has no TPOT to miss."""
    good: NDArray[np.bool_] = outcome.status == Status.FINISHED
    if objective is not None and objective.ttft_seconds is not None:
        good = good & (outcome.ttft <= objective.ttft_seconds)
    if objective is not None and objective.tpot_seconds is not None:
        good = good & ~(outcome.tpot > objective.tpot_seconds)
    return good


def reversals(moves: list[tuple[float, int]], *, within: float) -> int:
    """How often replicas went the other way at most ``within`` seconds after the last move: (time, step) in order."""
    return sum(
        before * after < 0 and later - earlier <= within for (earlier, before), (later, after) in pairwise(moves)
    )


def reaction(tier: TierRun, *, at: float, until: float) -> Reaction:
    """What a policy made of something that happened at a time, looked at until another, seconds of the run."""
    acted = [e.at - at for e in tier.decisions if at <= e.at < until and e.after != e.before]
    return Reaction(first_action=min(acted, default=None), recovered=_recovered(tier, at=at, until=until))


def little_residual(tier: TierRun) -> float:
    """Little's law, L = arrival rate x time in the system, over the whole run including what was left at its end.

    L is the mean of the requests counted at the ticks; the other side is the sum of all times in the system over the
    length of the run. Cut requests have no end and are left out: with them the residual says nothing. NaN without
    requests.
    """
    series, outcome, arrival = tier.series, tier.outcome, tier.requests.arrival
    end = float(series.at[-1]) if len(series.at) else 0.0
    if end <= 0 or not len(arrival):
        return float("nan")
    finish = np.where(outcome.status == Status.UNSERVED, end, outcome.finish)
    inside = np.clip(np.minimum(finish, end) - arrival, 0.0, None)
    other = float(np.nansum(inside)) / end
    mean = float(series.in_system.mean())
    return abs(mean - other) / other if other > 0 else float("nan")


def inversion_seconds(run: Run) -> float:
    """Seconds in which a tier got more replicas while the SLO of one of higher priority burned: ``Series.burning``."""
    broken = np.zeros(0, dtype=bool)
    for lower in run.tiers.values():
        grew = np.diff(lower.series.replicas, prepend=lower.series.replicas[:1]) > 0
        higher = [t for t in run.tiers.values() if t.spec.priority > lower.spec.priority]
        burned = np.any([t.series.burning > 0 for t in higher], axis=0) if higher else np.zeros(len(grew), dtype=bool)
        broken = grew & burned if not len(broken) else broken | (grew & burned)
    return float(broken.sum()) * run.tick_seconds


def _recovered(tier: TierRun, *, at: float, until: float) -> float | None:
    good = good_requests(tier.outcome, tier.spec.objective)
    missed = None
    for start, burn in _burns(tier.requests.arrival, good, _budget(tier.spec.objective), at=at, until=until):
        if missed is None and burn > 1:
            missed = start
        elif missed is not None and burn <= 1:
            return start - at
    return 0.0 if missed is None else None


def _burns(
    arrival: Floats, good: NDArray[np.bool_], budget: float, *, at: float, until: float
) -> Iterator[tuple[float, float]]:
    """(start, bad share / budget) of five minutes of arrivals, every five seconds."""
    bad = np.concatenate([[0], np.cumsum(~good)])
    for start in np.arange(at, until - WITHIN_SECONDS + 1e-9, 5.0).tolist():
        low, high = np.searchsorted(arrival, [start, start + WITHIN_SECONDS])
        yield start, float(bad[high] - bad[low]) / max(1, int(high - low)) / budget


def _worst_burn(arrival: Floats, good: NDArray[np.bool_], *, budget: float, seconds: float) -> float:
    """The highest bad share / budget over a sliding stretch of arrivals that ends at some request."""
    if not len(arrival):
        return 0.0
    bad = np.concatenate([[0], np.cumsum(~good)])
    ends = np.arange(1, len(arrival) + 1)
    starts = np.searchsorted(arrival, arrival - seconds, side="right")
    whole = arrival - arrival[0] >= min(seconds, arrival[-1] - arrival[0])
    shares = (bad[ends] - bad[starts]) / (ends - starts)
    return float(shares[whole].max()) / budget


def _budget(objective: Objective | None) -> float:
    """Without a promise every request that is not finished counts against a budget of 1."""
    return 1.0 if objective is None else objective.error_budget


def _quantile(values: Floats, q: float) -> float:
    known = values[np.isfinite(values)]
    return float(np.quantile(known, q)) if len(known) else float("nan")


def _count(outcome: Outcome, status: Status) -> int:
    return int((outcome.status == status).sum())


def _live(entry: Entry) -> bool:
    before, after = entry.before, entry.after
    return (before.max_num_seqs, before.max_num_batched_tokens) != (after.max_num_seqs, after.max_num_batched_tokens)
