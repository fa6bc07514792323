"""What a run leaves behind: figures by tick, every decision with its reason, and what became of each request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tierkeeper.engine.latency import Profile
from tierkeeper.scaling.model import Levers, PoolState
from tierkeeper.sim.model import Outcome, PodCounts, Requests
from tierkeeper.slo.model import Assessment, Sli, SloAssessment
from tierkeeper.tier import TierKey, TierSpec

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Series:
    """Figures of one tier, one a tick. What was measured is as the policy saw it, NaN where it could not tell."""

    at: Floats
    """Seconds since the start of the run."""
    replicas: Floats
    """Wanted, after this tick's decision; the next ones too."""
    max_num_seqs: Floats
    max_num_batched_tokens: Floats
    """NaN: the engine's own."""
    ready: Floats
    """Pods by state, as they truly were at the tick."""
    starting: Floats
    unschedulable: Floats
    draining: Floats
    gpu_seconds: Floats
    """Spent since the start."""
    in_system: Floats
    """Requests that had arrived and were not done, as they truly were at the last scrape."""
    known: Floats
    """1 where the metrics could be believed, else 0."""
    burning: Floats
    """1 where some SLO missed more than its budget in the last minute and in the last five, else 0."""
    running: Floats
    waiting: Floats
    requests_per_second: Floats
    ttft_p99: Floats
    """Seconds, over five minutes."""
    tpot_p99: Floats
    ttft_burn: Floats
    """Error ratio over five minutes / error budget."""
    tpot_burn: Floats
    budget_left: Floats
    """Of the SLO that has least left, as a share."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A decision that was another one than at the tick before."""

    at: float
    before: Levers
    after: Levers
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class TierRun:
    """One tier's part of a run."""

    spec: TierSpec
    requests: Requests
    outcome: Outcome
    series: Series
    decisions: tuple[Entry, ...]
    profile: Profile
    startup_seconds: float
    """Median time from a pod scheduled to Ready."""
    gpu_seconds: float
    """Spent during the scored traffic, from each pod scheduled until gone."""


@dataclass(frozen=True, slots=True)
class Run:
    """A whole run. GPU time and changes count for ``seconds``; it went on until the requests under way were done."""

    policy: str
    seconds: float
    tick_seconds: float
    gpus: int | None
    tiers: Mapping[TierKey, TierRun]


class Recorder:
    """Collects the figures of one tier, tick by tick."""

    def __init__(self, ticks: int) -> None:
        self._names = [f.name for f in fields(Series)]
        self._rows: Floats = np.full((ticks, len(self._names)), np.nan)
        self._count = 0
        self._entries: list[Entry] = []

    def tick(
        self,
        *,
        at: float,
        levers: Levers,
        counts: PodCounts,
        gpu_seconds: float,
        in_system: int,
        assessment: Assessment,
    ) -> None:
        """The figures of one tick, in the order of ``Series``."""
        known, traffic, slos = assessment.state.known, assessment.traffic, assessment.slos
        ttft, tpot = slos.get(Sli.TTFT), slos.get(Sli.TPOT)
        left = [slo.budget_left for slo in slos.values() if slo.budget_left is not None]
        self._rows[self._count] = (
            at,
            levers.replicas,
            levers.max_num_seqs,
            np.nan if levers.max_num_batched_tokens is None else levers.max_num_batched_tokens,
            counts.ready,
            counts.starting,
            counts.unschedulable,
            counts.draining,
            gpu_seconds,
            in_system,
            known,
            any(slo.burns_now for slo in slos.values()),
            traffic.running if known else np.nan,
            traffic.waiting if known else np.nan,
            traffic.requests_per_second if known else np.nan,
            _p99(ttft),
            _p99(tpot),
            _burn(ttft),
            _burn(tpot),
            min(left, default=np.nan),
        )
        self._count += 1

    def decision(self, *, at: float, pool: PoolState, after: Levers, reason: str, message: str) -> None:
        """Note a decision that differs from the last one, and each one that changes something."""
        last = self._entries[-1] if self._entries else None
        if after != pool.current or last is None or (last.reason, last.after) != (reason, after):
            self._entries.append(Entry(at=at, before=pool.current, after=after, reason=reason, message=message))

    def series(self) -> Series:
        return Series(*(self._rows[: self._count, place].copy() for place in range(len(self._names))))

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries)


def _p99(slo: SloAssessment | None) -> float:
    return np.nan if slo is None or slo.p99 is None else slo.p99.seconds


def _burn(slo: SloAssessment | None) -> float:
    window = None if slo is None else slo.window(300)
    return np.nan if window is None else window.burn.point
