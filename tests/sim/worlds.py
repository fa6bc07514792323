"""Small tiers for runs of the whole loop: an 8B model on short requests, so that minutes of traffic take a moment."""

from __future__ import annotations

import numpy as np

from tierkeeper.engine.latency import LLAMA_8B_2XA100
from tierkeeper.scaling.model import Levers
from tierkeeper.sim.loop import SimTier, pool_config
from tierkeeper.sim.model import Requests, Startup
from tierkeeper.tier import (
    Bounds,
    Engine,
    Mode,
    Model,
    Objective,
    Overflow,
    Resources,
    Scaling,
    TierKey,
    TierSpec,
)

GOLD = TierKey("llm", "gold")


def tier_spec(
    name: str = "gold",
    *,
    replicas: tuple[int, int] = (1, 8),
    seqs: tuple[int, int] = (8, 64),
    start_seqs: int = 24,
    priority: int = 0,
    mode: Mode = Mode.AUTO,
    version: tuple[int, int, int] = (0, 32, 0),
    ttft: float = 1.5,
    tpot: float = 0.04,
    max_queued: int | None = None,
) -> TierSpec:
    return TierSpec(
        key=TierKey("llm", name),
        uid="u",
        generation=1,
        model=Model(id="example/model", served_name="example"),
        objective=Objective(ratio=0.99, ttft_seconds=ttft, tpot_seconds=tpot),
        engine=Engine(image="vllm/vllm-openai:v0.32.0", version=version, max_num_seqs=start_seqs),
        resources=Resources(),
        scaling=Scaling(mode=mode, replicas=Bounds(*replicas), max_num_seqs=Bounds(*seqs)),
        priority=priority,
        overflow=Overflow(max_queued_requests=max_queued),
    )


def traffic(*stretches: tuple[float, float], prompt: int = 1000, output: int = 100, seed: int = 5) -> Requests:
    """Poisson arrivals: (seconds, requests a second) one after the other; all requests are alike."""
    rng = np.random.default_rng(seed)
    arrivals, start = [], 0.0
    for seconds, rate in stretches:
        count = rng.poisson(seconds * rate)
        arrivals.append(np.sort(rng.uniform(start, start + seconds, count)))
        start += seconds
    arrival = np.concatenate(arrivals)
    return Requests(arrival, np.full(len(arrival), prompt), np.full(len(arrival), output))


def sim_tier(
    spec: TierSpec, requests: Requests, *, startup: float = 120.0, replicas: int | None = None, seqs: int | None = None
) -> SimTier:
    config = pool_config(spec, LLAMA_8B_2XA100, kv_tokens=400_000, startup=Startup(startup, sigma=0.0))
    start = Levers(replicas or spec.scaling.replicas.min, seqs or spec.engine.max_num_seqs)
    return SimTier(spec=spec, config=config, requests=requests, start=start)
