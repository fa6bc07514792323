"""The budget-aware oracle's eyes: what each number of replicas makes bad in each slot, and a schedule really played."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tierkeeper.sim.model import Outcome, PoolConfig, Requests
from tierkeeper.sim.oracle import Plant, Replay, Schedule, Verified, planned_bad, verified, within_budget
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
    """GPU seconds count up to here; every request counts, as where a policy runs."""
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
    return _measured(stage, plant, range(_slots(stage, plant)), progress)


def sampled(
    stage: Stage, plant: Plant, *, slots: int, progress: Callable[[float], None] | None = None
) -> tuple[float, float]:
    """What the whole schedule would come to, by about so many of its slots at equal distances and without playing it:
    bad requests above the budget in those slots, and GPU seconds of the whole. Good to compare limits by.

    Each slot stands for those around it, so a rise costs its start-up as in the whole and noise between them nothing.
    """
    every = max(1, _slots(stage, plant) // slots)
    chosen = range(every // 2, _slots(stage, plant), every)
    table = _measured(stage, plant, chosen, progress)
    arrived = sum(last - first for _, first, last in (_window(stage, plant, slot) for slot in chosen))
    budget = _whole(stage.objective.error_budget * arrived)
    coarse = replace(plant, slot_seconds=every * plant.slot_seconds, startup_seconds=stage.startup_seconds)
    schedule = within_budget(table, coarse, budget=budget)
    seconds = schedule.replica_seconds(startup_seconds=coarse.startup_seconds)
    return max(0.0, planned_bad(schedule, table, coarse) - budget), seconds * stage.config.gpus_per_replica


def play(stage: Stage, plant: Plant, schedule: Schedule) -> Replay:
    """Play a schedule in a pool. GPU seconds count up to ``stage.seconds``, and every request, whenever it arrives."""
    startup = stage.startup_seconds
    pool = _pool(stage, stage.requests, replicas=int(schedule.ready[0]) if plant.initial is None else plant.initial)
    for moment in _moments(stage, schedule, startup):
        pool.advance(moment)
        pool.set_replicas(schedule.wanted(moment, startup_seconds=startup))
    pool.advance(stage.seconds)
    gpu_seconds = pool.gpu_seconds
    pool.advance(float("inf"))
    bad = ~good_requests(pool.outcomes(), stage.objective)
    return Replay(bad=int(bad.sum()), gpu_seconds=gpu_seconds)


def budget_aware(
    stage: Stage, plant: Plant, *, progress: Callable[[float], None] | None = None, rounds: int = 8
) -> Verified:
    """Fewest GPU seconds with at most the objective's share of the requests bad, replayed. The plant's start-up time is
    taken from the stage."""
    plant = replace(plant, startup_seconds=stage.startup_seconds)
    return verified(
        bad_table(stage, plant, progress=progress),
        plant,
        budget=_whole(stage.objective.error_budget * len(stage.requests)),
        replay=lambda schedule: play(stage, plant, schedule),
        rounds=rounds,
    )


def _slots(stage: Stage, plant: Plant) -> int:
    return int(np.ceil(stage.seconds / plant.slot_seconds))


def _whole(requests: float) -> float:
    """Whole requests of an error budget; what rounding took from a whole number is given back."""
    return float(np.floor(requests + 1e-6))


def _measured(stage: Stage, plant: Plant, slots: range, progress: Callable[[float], None] | None) -> Floats:
    """The table's lines of these slots."""
    table = np.zeros((len(slots), len(plant.replicas)))
    knee = len(plant.replicas) // 2
    for place, slot in enumerate(slots):
        table[place], knee = _measured_slot(stage, plant, slot, knee)
        if progress is not None:
            progress((place + 1) / len(slots))
    return table


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
    """The traffic around a slot, from 0, and which of it (first, last + 1) arrives in the slot; in the last one, all
    that is still to come."""
    start, arrival = slot * plant.slot_seconds, stage.requests.arrival
    end = start + plant.slot_seconds if slot + 1 < _slots(stage, plant) else np.inf
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
