"""Playing one scenario with one line of the scoreboard, and measuring it. Results are stored by this code, too."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from bench.policy import bounds, faults
from bench.policy.faults import NONE, Fault
from bench.policy.measures import Row, measured
from bench.policy.policies import Entry, Kind
from bench.policy.scenarios import Scenario
from tierkeeper.sim.loop import Settings, simulate
from tierkeeper.sim.policy import Paced, Policy
from tierkeeper.sim.traffic import cut

Progress = Callable[[float], None]
"""Called now and then with the share that is done."""


def run(played: Scenario, entry: Entry, *, seed: int = 0, fault: Fault = NONE, progress: Progress | None = None) -> Row:
    """Play a scenario with an entry and measure it."""
    if entry.make is None:
        bound = bounds.carrying_oracle if entry.name == "oracle" else bounds.budget_oracle
        return bound(played, seed=seed, progress=progress)
    if entry.kind is Kind.BOUND:
        played = bounds.static_peak(played)
    policy = faults.misled(entry.make, fault)
    made = simulate(
        played.tiers, policy, _settings(played, policy, seed, fault), seconds=played.seconds, progress=_told(progress)
    )
    return measured(made, changes=played.changes)


def part(built: Scenario, start: float, end: float) -> Scenario:
    """The stretch of a scenario between two times, moved to begin at 0."""
    tiers = tuple(dataclasses.replace(tier, requests=cut(tier.requests, start, end)) for tier in built.tiers)
    changes = tuple(at - start for at in built.changes if start <= at < end)
    return dataclasses.replace(built, tiers=tiers, seconds=end - start, changes=changes)


def _settings(played: Scenario, policy: Policy, seed: int, fault: Fault) -> Settings:
    tick = policy.interval_seconds if isinstance(policy, Paced) else Settings().tick_seconds
    return Settings(tick_seconds=tick, faults=fault.faults, gpus=played.gpus, seed=seed)


def _told(progress: Progress | None) -> Callable[[float, float], None] | None:
    if progress is None:
        return None
    return lambda now, end: progress(now / end)
