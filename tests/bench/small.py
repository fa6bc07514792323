"""A scenario that plays in a moment: half an hour of one small tier whose load doubles after ten minutes."""

from __future__ import annotations

import numpy as np

from bench.policy.scenarios import Scenario
from tierkeeper.engine.latency import LLAMA_8B_2XA100
from tierkeeper.scaling.model import Levers
from tierkeeper.sim.loop import SimTier, pool_config
from tierkeeper.sim.model import Requests, Startup
from tierkeeper.tier import Bounds, Engine, Mode, Model, Objective, Resources, Scaling, TierKey, TierSpec

STEP_AT, END = 600.0, 1800.0


def tier(*, rate: float = 4.0, factor: float = 2.0, name: str = "gold", priority: int = 800, most: int = 6) -> SimTier:
    """``rate`` requests/s of 1,000 + 100 tokens, ``factor`` times as many from STEP_AT on; one carries about 8."""
    rng = np.random.default_rng(7)
    before = np.sort(rng.uniform(0.0, STEP_AT, rng.poisson(STEP_AT * rate)))
    after = np.sort(rng.uniform(STEP_AT, END, rng.poisson((END - STEP_AT) * rate * factor)))
    arrival = np.concatenate([before, after])
    requests = Requests(arrival, np.full(len(arrival), 1000), np.full(len(arrival), 100))
    spec = TierSpec(
        key=TierKey("llm", name),
        uid=name,
        generation=1,
        model=Model(id="example/model", served_name=name),
        objective=Objective(ratio=0.99, ttft_seconds=1.5, tpot_seconds=0.04),
        engine=Engine(image="vllm/vllm-openai:v0.32.0", version=(0, 32, 0), max_num_seqs=32),
        resources=Resources(gpus_per_replica=2),
        scaling=Scaling(
            mode=Mode.AUTO,
            replicas=Bounds(1, most),
            max_num_seqs=Bounds(24, 40),
            max_num_batched_tokens=Bounds(512, 4096),
        ),
        priority=priority,
    )
    config = pool_config(spec, LLAMA_8B_2XA100, kv_tokens=400_000, startup=Startup(60.0, sigma=0.0))
    return SimTier(spec=spec, config=config, requests=requests, start=Levers(replicas=2, max_num_seqs=32))


def scenario(*tiers: SimTier, gpus: int | None = None) -> Scenario:
    return Scenario("small", "the load doubles", tiers or (tier(),), END, recorded=True, gpus=gpus, changes=(STEP_AT,))
