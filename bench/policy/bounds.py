"""What is possible at all: what one replica carries, a static peak, and the two oracles, each from the whole traffic.

Bounds know everything that arrives, may choose the live limits once, and pay for start-up as everybody does. Tiers that
share GPUs are bounded each alone, as if there were enough.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from bench.policy.measures import Row, planned, pooled
from bench.policy.scenarios import Scenario
from tierkeeper.engine.flags import DEFAULT_BATCHED_TOKENS
from tierkeeper.scaling.model import Levers
from tierkeeper.sim.loop import SimTier
from tierkeeper.sim.model import Requests
from tierkeeper.sim.oracle import Plant, arrivals_by_slot, carrying, needed
from tierkeeper.sim.oracle_pool import Stage, budget_aware, play, sampled
from tierkeeper.sim.peers.static import peak_replicas
from tierkeeper.sim.pool import Pool
from tierkeeper.sim.score import good_requests
from tierkeeper.tier import Objective

SAMPLE = 3000
"""Requests by which a rate is judged: 30 of them may be bad at 99 %."""

LIMITS = tuple((seqs, tokens) for seqs in (16, 24, 32, 48, 64, 96) for tokens in (512, 1024, 2048, 4096))
"""max-num-seqs and token budgets that the budget-aware oracle chooses from, beside the tier's own."""

LONG_SECONDS = 6 * 3600.0
FINE_SLOT, COARSE_SLOT = 60.0, 180.0
"""Slots of the oracles' schedules; coarse ones for runs above six hours."""

SAMPLED_SLOTS, FINALISTS = 120, 3
"""In such a run one pair of limits takes minutes to plan: all are compared by so many of its slots, and so many pairs
planned wholly."""

BEFORE_SECONDS, BEFORE_TARGETS = 60.0, 30.0
"""A slot is judged with so much of the traffic before it, and so many TTFT targets at least: where 10 s may be waited,
a queue that will miss takes minutes to grow."""

MANY = 1_000_000
"""GPUs, where a scenario has no limit."""

Progress = Callable[[float], None]


def own_limits(tier: SimTier) -> tuple[int, int]:
    """max-num-seqs and token budget as the spec gives them to a new replica."""
    return tier.spec.engine.max_num_seqs, tier.spec.engine.max_num_batched_tokens or DEFAULT_BATCHED_TOKENS


def start_limits(tier: SimTier) -> tuple[int, int]:
    """max-num-seqs and token budget that the scenario starts the pool with."""
    own = own_limits(tier)
    if tier.start is None:
        return own
    return tier.start.max_num_seqs, tier.start.max_num_batched_tokens or own[1]


def carried(tier: SimTier, limits: tuple[int, int], *, seed: int = 0) -> float:
    """Requests a second that one replica carries alone within the objective, at Poisson arrivals of the tier's lengths.

    Bisected to 2 %. 0 where even 0.05 a second are too many.
    """
    low, high = 0.05, 0.1
    if not _carries(tier, limits, low, seed):
        return 0.0
    while _carries(tier, limits, high, seed) and high < 1000:
        low, high = high, 2 * high
    while high / low > 1.02:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _carries(tier, limits, middle, seed) else (low, middle)
    return low


def allowed_limits(tier: SimTier) -> list[tuple[int, int]]:
    """What a tier may be fixed at: the limits that it starts with, the spec's own, and those of LIMITS within its
    bounds."""
    caps, tokens = tier.spec.scaling.max_num_seqs, tier.spec.scaling.max_num_batched_tokens
    own = own_limits(tier)
    inside = [
        pair
        for pair in LIMITS
        if caps.clamp(pair[0]) == pair[0]
        and (pair[1] == own[1] if tokens is None else tokens.clamp(pair[1]) == pair[1])
    ]
    return list(dict.fromkeys((start_limits(tier), own, *inside)))


def static_peak(scenario: Scenario) -> Scenario:
    """The scenario, its pools started with what the busiest five minutes need by one replica's rate; under a cap of
    GPUs higher priorities have their peak first, and each lower one keeps at least one replica."""
    left = MANY if scenario.gpus is None else scenario.gpus
    by_priority = sorted(scenario.tiers, key=lambda tier: -tier.spec.priority)
    starts: dict[str, int] = {}
    for place, tier in enumerate(by_priority):
        size = max(1, tier.config.gpus_per_replica)
        below = sum(max(1, lower.config.gpus_per_replica) for lower in by_priority[place + 1 :])
        rate = carried(tier, own_limits(tier))
        peak = (
            peak_replicas(tier.requests.arrival, requests_per_second=rate) if rate else tier.spec.scaling.replicas.max
        )
        replicas = min(tier.spec.scaling.replicas.clamp(peak), max(1, (left - below) // size))
        starts[tier.spec.key.name] = replicas
        left -= replicas * size
    tiers = tuple(_started(tier, starts[tier.spec.key.name]) for tier in scenario.tiers)
    return dataclasses.replace(scenario, tiers=tiers)


def carrying_oracle(scenario: Scenario, *, seed: int, progress: Progress | None = None) -> Row:
    """Oracle (2): by dynamic programming the fewest replicas that carry each slot's mean rate, each at one replica's
    own rate."""
    rows: dict[str, Row] = {}
    for tier in scenario.tiers:
        stage, plant = _stage(scenario, tier, own_limits(tier), seed), _plant(scenario, tier)
        slots = int(np.ceil(scenario.seconds / plant.slot_seconds))
        arrivals = arrivals_by_slot(tier.requests.arrival, slot_seconds=plant.slot_seconds, slots=slots)
        rate = max(carried(tier, own_limits(tier)), 1e-3)
        need = needed(arrivals, slot_seconds=plant.slot_seconds, requests_per_second=rate)
        plant = dataclasses.replace(plant, startup_seconds=stage.startup_seconds)
        played = play(stage, plant, carrying(need, plant))
        rows[tier.spec.key.name] = _row(tier, played.bad, played.gpu_seconds) | {"carried": rate}
        if progress is not None:
            progress(len(rows) / len(scenario.tiers))
    return pooled(rows)


def budget_oracle(scenario: Scenario, *, seed: int, progress: Progress | None = None) -> Row:
    """Oracle (3): the fewest GPU-hours with as many bad requests as the error budget allows, that were found.

    The limits are fixed for the run, at the pair of ``allowed_limits`` whose whole schedule is the cheapest when it is
    played; in runs above six hours the three pairs that ``promising`` names are planned wholly. It is the best schedule
    found and no proof: slots are judged apart, limits do not move within a run and there are others than LIMITS, so a
    better one may exist.
    """
    told = progress or (lambda _: None)
    rows: dict[str, Row] = {}
    for number, tier in enumerate(scenario.tiers):
        share = _part(told, number, len(scenario.tiers))
        pairs, planning = allowed_limits(tier), share
        if scenario.seconds > LONG_SECONDS:
            pairs, planning = promising(scenario, tier, seed=seed, progress=_part(share, 0, 2)), _part(share, 1, 2)
        found = [
            _oracle(scenario, tier, limits, seed, _part(planning, place, len(pairs)))
            for place, limits in enumerate(pairs)
        ]
        rows[tier.spec.key.name] = min(found, key=lambda row: (not row["kept"], _cost(row)))
    return pooled(rows)


def promising(
    scenario: Scenario, tier: SimTier, *, seed: int, progress: Progress | None = None
) -> list[tuple[int, int]]:
    """The three of ``allowed_limits`` that are cheapest by a sample of the slots, the cheapest first."""
    plant, pairs = _plant(scenario, tier), allowed_limits(tier)
    told = progress or (lambda _: None)
    costs = {
        limits: sampled(
            _stage(scenario, tier, limits, seed), plant, slots=SAMPLED_SLOTS, progress=_part(told, place, len(pairs))
        )
        for place, limits in enumerate(pairs)
    }
    return sorted(pairs, key=costs.__getitem__)[:FINALISTS]


def _part(progress: Progress, place: int, of: int) -> Progress:
    """Tells of one of several equal parts of the work."""
    return lambda share: progress((place + share) / of)


def _oracle(scenario: Scenario, tier: SimTier, limits: tuple[int, int], seed: int, progress: Progress) -> Row:
    stage = _stage(scenario, tier, limits, seed)
    found = budget_aware(stage, _plant(scenario, tier), progress=progress).replay
    return _row(tier, found.bad, found.gpu_seconds) | {"limits": limits}


def _cost(row: Row) -> float:
    """What is less is better: GPU-hours of a schedule that keeps the objective, bad requests of one that does not."""
    return float(row["gpu_hours"] if row["kept"] else row["requests"] - row["good"])


def _carries(tier: SimTier, limits: tuple[int, int], rate: float, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    count = len(tier.requests)
    chosen = np.sort(rng.choice(count, size=min(SAMPLE, count), replace=False))
    rng.shuffle(chosen)
    arrival = np.cumsum(rng.exponential(1 / rate, len(chosen)))
    sample = Requests(arrival, tier.requests.prompt[chosen], tier.requests.output[chosen])
    pool = Pool(tier.config, sample, replicas=1, max_num_seqs=limits[0], max_num_batched_tokens=limits[1], seed=seed)
    pool.advance(float("inf"))
    objective = _objective(tier)
    return float((~good_requests(pool.outcomes(), objective)).mean()) <= objective.error_budget


def _objective(tier: SimTier) -> Objective:
    if tier.spec.objective is None:
        raise ValueError(f"{tier.spec.key}: a tier that promises nothing has no bound; give it an objective")
    return tier.spec.objective


def _started(tier: SimTier, replicas: int) -> SimTier:
    seqs, _ = own_limits(tier)
    return dataclasses.replace(tier, start=Levers(replicas=replicas, max_num_seqs=seqs))


def _stage(scenario: Scenario, tier: SimTier, limits: tuple[int, int], seed: int) -> Stage:
    return Stage(
        config=tier.config,
        requests=tier.requests,
        objective=_objective(tier),
        max_num_seqs=limits[0],
        max_num_batched_tokens=limits[1],
        seconds=scenario.seconds,
        seed=seed,
        before_seconds=max(BEFORE_SECONDS, BEFORE_TARGETS * (_objective(tier).ttft_seconds or 0.0)),
    )


def _plant(scenario: Scenario, tier: SimTier) -> Plant:
    allowed = tier.spec.scaling.replicas
    return Plant(
        slot_seconds=COARSE_SLOT if scenario.seconds > LONG_SECONDS else FINE_SLOT,
        startup_seconds=tier.config.startup.median_seconds,
        replicas=range(max(1, allowed.min), allowed.max + 1),
        initial=tier.start.replicas if tier.start is not None else None,
    )


def _row(tier: SimTier, bad: int, gpu_seconds: float) -> Row:
    """Every request counts, also one that arrives when the scored time is over: it does for policies."""
    budget = _objective(tier).error_budget
    return planned(requests=len(tier.requests), bad=bad, gpu_seconds=gpu_seconds, budget=budget)
