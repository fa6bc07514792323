"""A scenario that plays in a moment: twenty minutes of one small tier whose load doubles after ten."""

from __future__ import annotations

import dataclasses

from bench.policy.scenarios import Scenario
from tests.sim.worlds import sim_tier, tier_spec, traffic
from tierkeeper.sim.loop import SimTier
from tierkeeper.tier import Bounds, Resources

STEP_AT, END = 600.0, 1200.0


def tier(*, rate: float = 4.0, factor: float = 2.0, name: str = "gold", priority: int = 800, most: int = 6) -> SimTier:
    """``rate`` requests/s of 1,000 + 100 tokens, ``factor`` times as many from STEP_AT on; one carries about 8."""
    spec = tier_spec(name, replicas=(1, most), seqs=(24, 40), start_seqs=32, priority=priority)
    scaling = dataclasses.replace(spec.scaling, max_num_batched_tokens=Bounds(512, 4096))
    spec = dataclasses.replace(spec, scaling=scaling, resources=Resources(gpus_per_replica=2))
    requests = traffic((STEP_AT, rate), (END - STEP_AT, rate * factor), seed=7)
    return sim_tier(spec, requests, startup=60.0, replicas=2)


def scenario(*tiers: SimTier, gpus: int | None = None) -> Scenario:
    return Scenario("small", "the load doubles", tiers or (tier(),), END, recorded=True, gpus=gpus, changes=(STEP_AT,))
