"""Small pools and traffic for the stories of the simulator."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tierkeeper.engine.latency import Profile
from tierkeeper.sim.model import PoolConfig, Requests, Startup
from tierkeeper.sim.pool import Pool

#: Round numbers: a step costs 10 ms, 0.1 ms a sequence, 1 us a context token, 0.1 ms a prefill token.
PROFILE = Profile(
    name="round numbers",
    base_seconds=0.010,
    per_sequence_seconds=0.0001,
    per_context_token_seconds=1e-6,
    per_prefill_token_seconds=0.0001,
)
CONFIG = PoolConfig(profile=PROFILE, kv_tokens=100_000, startup=Startup(60.0, sigma=0.0), drain_seconds=30.0)


def config(**changes: Any) -> PoolConfig:
    return dataclasses.replace(CONFIG, **changes)


def arrivals(*rows: tuple[float, int, int]) -> Requests:
    """Each row: arrival, prompt, output."""
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return Requests(np.array(columns[0], float), np.array(columns[1], np.int32), np.array(columns[2], np.int32))


def poisson(*, seed: int, count: int, rate: float, prompt: float, output: float) -> Requests:
    """Exponential gaps and lengths."""
    rng = np.random.default_rng(seed)
    return Requests(
        np.cumsum(rng.exponential(1 / rate, count)),
        np.maximum(1, rng.exponential(prompt, count)).astype(np.int32),
        np.maximum(1, rng.exponential(output, count)).astype(np.int32),
    )


def pool(requests: Requests, settings: PoolConfig = CONFIG, **changes: Any) -> Pool:
    start = {"replicas": 1, "max_num_seqs": 8, "max_num_batched_tokens": 512, "seed": 1}
    return Pool(settings, requests, **(start | changes))
