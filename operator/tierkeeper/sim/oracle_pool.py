"""The budget-aware oracle's eyes: what each number of replicas makes bad in each slot, and a schedule really played."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tierkeeper.sim.model import Outcome, PoolConfig, Requests
from tierkeeper.sim.oracle import Plant, Replay, Schedule, Verified, verified
from tierkeeper.sim.pool import Pool
from tierkeeper.sim.score import good_requests
from tierkeeper.tier import Objective

Floats: TypeAlias = NDArray[np.float64]

HOPELESS = 0.3
"""Share of bad requests from which on fewer replicas need no measuring: no schedule that keeps 99 % goes there, and the
queue that it leaves would spoil the slots behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One pool and its traffic, the limits fixed."""

    config: PoolConfig
    requests: Requests
    objective: Objective
    max_num_seqs: int
    max_num_batched_tokens: int
    seconds: float
    """How much of the traffic counts, from 0."""
    seed: int = 0
    before_seconds: float = 60.0
    """A slot is measured with so much of the traffic before it, at the same number of replicas; and behind it, where
    its last requests are still served, with ``after_seconds``."""
    after_seconds: float = 30.0

    @property
    def startup_seconds(self) -> float:
        """When to count on a pod that starts: five of six are Ready by then (one sigma above the median)."""
        return self.config.startup.median_seconds * float(np.exp(self.config.startup.sigma))


def bad_table(stage: Stage, plant: Plant, *, progress: Callable[[float], None] | None = None) -> Floats:
    """Bad requests by slot and number of replicas: float64[slots, numbers of replicas], never rising with replicas.

    Only numbers around the knee are measured, walking from the last slot's knee: upwards until nothing is bad,
    downwards until it is hopeless; below that all requests count as bad.
    """
    slots = int(np.ceil(stage.seconds / plant.slot_seconds))
    table = np.zeros((slots, len(plant.replicas)))
    knee = len(plant.replicas) // 2
    for slot in range(slots):
        table[slot], knee = _measured_slot(stage, plant, slot, knee)
        if progress is not None:
            progress((slot + 1) / slots)
    return table


def play(stage: Stage, plant: Plant, schedule: Schedule) -> Replay:
    """Play a schedule in a pool. GPU seconds count up to ``stage.seconds``, requests those that arrived by then."""
    startup = stage.startup_seconds
    pool = _pool(stage, stage.requests, replicas=int(schedule.ready[0]) if plant.initial is None else plant.initial)
    for moment in _moments(stage, schedule, startup):
        pool.advance(moment)
        pool.set_replicas(schedule.wanted(moment, startup_seconds=startup))
    pool.advance(stage.seconds)
    gpu_seconds = pool.gpu_seconds
    pool.advance(float("inf"))
    counted = stage.requests.arrival < stage.seconds
    bad = ~good_requests(pool.outcomes(), stage.objective)
    return Replay(bad=int(bad[counted].sum()), gpu_seconds=gpu_seconds)


def budget_aware(
    stage: Stage, plant: Plant, *, progress: Callable[[float], None] | None = None, rounds: int = 8
) -> Verified:
    """Fewest GPU seconds with at most the objective's share of the requests bad, replayed. The plant's start-up time is
    taken from the stage."""
    plant = replace(plant, startup_seconds=stage.startup_seconds)
    counted = int((stage.requests.arrival < stage.seconds).sum())
    return verified(
        bad_table(stage, plant, progress=progress),
        plant,
        budget=np.floor(stage.objective.error_budget * counted + 1e-6),
        replay=lambda schedule: play(stage, plant, schedule),
        rounds=rounds,
    )


def _measured_slot(stage: Stage, plant: Plant, slot: int, start: int) -> tuple[Floats, int]:
    """One line of the table, and the fewest replicas without bad requests, as an index."""
    window, first, last = _window(stage, plant, slot)
    row = np.zeros(len(plant.replicas))
    if first == last:
        return row, 0

    def measure(index: int) -> float:
        outcome = _served(stage, window, plant.replicas[index])
        return float((~good_requests(outcome, stage.objective))[first:last].sum())

    row[start] = measure(start)
    top = start
    while row[top] > 0 and top + 1 < len(row):
        top += 1
        row[top] = measure(top)
    bottom = start
    while row[bottom] < HOPELESS * (last - first) and bottom > 0:
        bottom -= 1
        row[bottom] = measure(bottom) if plant.replicas[bottom] > 0 else last - first
        if row[bottom] == 0:
            top = bottom
    row[:bottom] = last - first
    return np.minimum.accumulate(row), top


def _window(stage: Stage, plant: Plant, slot: int) -> tuple[Requests, int, int]:
    """The traffic around a slot, from 0, and which of it (first, last + 1) arrives in the slot."""
    start, arrival = slot * plant.slot_seconds, stage.requests.arrival
    end = min(start + plant.slot_seconds, stage.seconds)
    edges = (start - stage.before_seconds, start, end, end + stage.after_seconds)
    low, first, last, high = (int(edge) for edge in np.searchsorted(arrival, edges))
    part = slice(low, high)
    shifted = arrival[part] - max(0.0, start - stage.before_seconds)
    return Requests(shifted, stage.requests.prompt[part], stage.requests.output[part]), first - low, last - low


def _served(stage: Stage, requests: Requests, replicas: int) -> Outcome:
    pool = _pool(stage, requests, replicas=replicas)
    pool.advance(float("inf"))
    return pool.outcomes()


def _pool(stage: Stage, requests: Requests, *, replicas: int) -> Pool:
    return Pool(
        stage.config,
        requests,
        replicas=replicas,
        max_num_seqs=stage.max_num_seqs,
        max_num_batched_tokens=stage.max_num_batched_tokens,
        seed=stage.seed,
    )


def _moments(stage: Stage, schedule: Schedule, startup: float) -> list[float]:
    """When a schedule may ask for another number: where a slot begins, and a start-up before that."""
    starts = np.arange(len(schedule.ready)) * schedule.slot_seconds
    moments = np.unique(np.concatenate([starts, starts - startup]))
    return [float(moment) for moment in moments if 0 <= moment < stage.seconds]
