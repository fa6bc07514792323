"""What could have been: schedules made with the whole traffic known, as bounds for what policies reach without.

``carrying`` is the exact and cheap one: the fewest GPU seconds that never have fewer replicas than a given need, where
a replica that is added costs its start-up time. ``within_budget`` spends an error budget as well: the fewest GPU
seconds with at most so many bad requests, by a Lagrangian (GPU seconds + mu * bad, mu bisected), from a table of what
each number of replicas would make bad in each slot; ``oracle_pool`` measures that table and replays the schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tierkeeper.scaling.model import Levers
from tierkeeper.sim.policy import TierView
from tierkeeper.tier import TierKey

Counts: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

_SHORT = 1e6
"""Price of one missing replica in units of a running one: so dear that it only happens where nothing else is left."""

_BISECTIONS = 40


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """Ready replicas by slot. Slot i lasts from ``i * slot_seconds`` to the next one."""

    slot_seconds: float
    ready: Counts
    """[slots]"""

    def wanted(self, now: float, *, startup_seconds: float) -> int:
        """What to ask for at ``now``, so that pods that start now are Ready when they are needed: the most that any
        slot from now until then has. Before the first slot and after the last one that slot's number holds."""
        first = self._slot(now)
        last = self._slot(now + startup_seconds)
        return int(self.ready[first : last + 1].max())

    def replica_seconds(self, *, startup_seconds: float) -> float:
        """Seconds of replicas held, start-up included; the first slot's replicas are there already."""
        added = np.maximum(np.diff(self.ready), 0).sum()
        return float(self.ready.sum() * self.slot_seconds + added * startup_seconds)

    def _slot(self, at: float) -> int:
        return min(max(0, math.floor(at / self.slot_seconds + 1e-9)), len(self.ready) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """What a schedule must live with."""

    slot_seconds: float
    startup_seconds: float
    replicas: range
    """Numbers of replicas to choose from, by ones."""
    initial: int | None = None
    """Replicas that are Ready at 0; more can only be there a start-up later. None: any number, as the best suits."""

    def __post_init__(self) -> None:
        if len(self.replicas) < 1 or self.replicas.step != 1 or self.replicas.start < 0:
            raise ValueError(f"replicas ({self.replicas}) must be a range of 0 or more, by ones, e.g. range(1, 17)")
        if self.initial is not None and self.initial not in self.replicas:
            raise ValueError(f"initial ({self.initial}) must be one of the replicas in {self.replicas}")
        if self.slot_seconds <= 0 or self.startup_seconds < 0:
            raise ValueError(
                f"slot_seconds ({self.slot_seconds:g}) must be above 0 and startup_seconds ({self.startup_seconds:g}) "
                "0 or more"
            )


def arrivals_by_slot(arrival: Floats, *, slot_seconds: float, slots: int) -> Counts:
    """Requests in each slot: int64[slots]. ``arrival``: seconds, float64[N]; what arrives after the last slot is left
    out."""
    edges = np.arange(slots + 1) * slot_seconds
    return np.histogram(arrival[arrival < edges[-1]], bins=edges)[0].astype(np.int64)


def needed(arrivals: Counts, *, slot_seconds: float, requests_per_second: float) -> Counts:
    """Replicas by slot that carry the mean rate of the slot at so many requests a second each, at least 1."""
    return np.maximum(1, np.ceil(arrivals / slot_seconds / requests_per_second - 1e-9)).astype(np.int64)


def carrying(need: Counts, plant: Plant) -> Schedule:
    """The cheapest schedule with at least ``need`` (int64[slots]) replicas in each slot, by dynamic programming.

    Where that cannot be (too few at the start, or above the range) it is short by as little as can be.
    """
    numbers = np.arange(plant.replicas.start, plant.replicas.stop)
    short = np.maximum(need[:, None] - numbers[None, :], 0)
    return _cheapest(plant.slot_seconds * (numbers[None, :] + _SHORT * short), plant)


def planned_bad(schedule: Schedule, bad: Floats, plant: Plant) -> float:
    """Bad requests of a schedule by the table ``bad`` (float64[slots, numbers of replicas])."""
    return float(bad[np.arange(len(bad)), schedule.ready - plant.replicas.start].sum())


def within_budget(bad: Floats, plant: Plant, *, budget: float) -> Schedule:
    """The cheapest schedule with at most ``budget`` bad requests by the table, as near as a Lagrangian comes to it.

    ``bad``: float64[slots, numbers of replicas], bad requests among those that arrive in the slot. Where even the most
    replicas make more bad than that: the cheapest of the schedules with the fewest bad, to one request.
    """

    def priced(mu: float) -> Schedule:
        running = plant.slot_seconds * np.arange(plant.replicas.start, plant.replicas.stop)
        return _cheapest(running[None, :] + mu * bad, plant)

    # A bad request that costs more than any whole schedule is avoided wherever it can be; a higher price would only
    # drown the GPU seconds in rounding.
    dearest = plant.replicas.stop * len(bad) * (plant.slot_seconds + plant.startup_seconds)
    low, high = 0.0, plant.slot_seconds / 1024
    best = priced(high)
    while planned_bad(best, bad, plant) > budget:
        if high > dearest:
            return best
        low, high = high, 2 * high
        best = priced(high)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        found = priced(middle)
        if planned_bad(found, bad, plant) <= budget:
            high, best = middle, found
        else:
            low = middle
    return best


@dataclass(frozen=True, slots=True)
class Replay:
    """A schedule as the simulator played it."""

    bad: int
    gpu_seconds: float


@dataclass(frozen=True, slots=True)
class Verified:
    """A schedule and what the simulator made of it."""

    schedule: Schedule
    replay: Replay
    budget: float
    """Bad requests that were allowed."""

    @property
    def kept(self) -> bool:
        return self.replay.bad <= self.budget


def verified(
    bad: Floats, plant: Plant, *, budget: float, replay: Callable[[Schedule], Replay], rounds: int = 8
) -> Verified:
    """The budget-aware oracle: the cheapest schedule found that keeps the budget when it is really played.

    The table knows no queue that one slot leaves to the next, so a schedule may do worse, or better, than planned. Each
    round plans for a budget that is corrected by what the last one's replay spent of it, and by a whole step where that
    finds the same schedule again: the next one may be much cheaper. Where no round kept it, the one with the fewest bad
    is taken.
    """
    planned, tried = budget, dict[bytes, Verified]()
    for _ in range(rounds):
        schedule = within_budget(bad, plant, budget=planned)
        name = schedule.ready.tobytes()
        if name in tried:
            planned *= 1.5 if tried[name].kept else 0.9
            continue
        played = tried[name] = Verified(schedule, replay(schedule), budget)
        spent = played.replay.bad / budget if budget > 0 else math.inf
        # Nothing spent says nothing of the ratio between plan and replay: half as much again is then a step upwards.
        planned = max(planned, 1.0) * (min(1.5, 1 / spent) if spent > 0 else 1.5)
    kept = [one for one in tried.values() if one.kept]
    if kept:
        return min(kept, key=lambda one: one.replay.gpu_seconds)
    return min(tried.values(), key=lambda one: one.replay.bad)


@dataclass(slots=True)
class Follow:
    """A policy that follows schedules, one a tier: to run an oracle where a policy runs."""

    schedules: Mapping[TierKey, Schedule]
    startup_seconds: float
    name: str = "oracle"

    def decide(self, *, now: float, views: Mapping[TierKey, TierView]) -> Mapping[TierKey, Levers]:
        return {
            key: replace(
                view.pool.current, replicas=self.schedules[key].wanted(now, startup_seconds=self.startup_seconds)
            )
            for key, view in views.items()
            if key in self.schedules
        }


def _cheapest(cost: Floats, plant: Plant) -> Schedule:
    """The path of least cost. ``cost``: float64[slots, numbers of replicas] of being there in that slot; going up costs
    the start-up time a replica, going down nothing.

    With V the least cost so far, the best way to n comes from some m >= n at V(m), or from some m <= n at
    V(m) + startup * (n - m): a running minimum from either side, so a slot takes time linear in the numbers.
    """
    slots, width = cost.shape
    numbers = np.arange(width)
    climb = plant.startup_seconds * numbers
    cost = cost + _too_early(slots, width, plant)
    came_from = np.zeros((slots, width), dtype=np.int32)
    least = cost[0]
    for slot in range(1, slots):
        above, from_above = _running_min(least[::-1])
        below, from_below = _running_min(least - climb)
        above, from_above, below = above[::-1], width - 1 - from_above[::-1], below + climb
        came_from[slot] = np.where(above <= below, from_above, from_below)
        least = np.minimum(above, below) + cost[slot]
    path = np.zeros(slots, dtype=np.int64)
    path[-1] = int(np.argmin(least))
    for slot in range(slots - 1, 0, -1):
        path[slot - 1] = came_from[slot, path[slot]]
    return Schedule(plant.slot_seconds, path + plant.replicas.start)


def _too_early(slots: int, width: int, plant: Plant) -> Floats:
    """Infinite where more than the initial replicas would have to be there before any could have started."""
    wall = np.zeros((slots, width))
    if plant.initial is not None:
        before = np.arange(slots) * plant.slot_seconds < plant.startup_seconds
        wall[np.ix_(before | (np.arange(slots) == 0), np.arange(width) > plant.initial - plant.replicas.start)] = np.inf
    return wall


def _running_min(values: Floats) -> tuple[Floats, Counts]:
    """The minimum of all values so far, and where the latest of them is."""
    lowest = np.minimum.accumulate(values)
    return lowest, np.maximum.accumulate(np.where(values <= lowest, np.arange(len(values)), 0))
