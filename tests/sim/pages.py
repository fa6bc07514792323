"""Metrics pages without a pool behind them: counters that grow as told."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tierkeeper.engine.flags import TPOT_EDGES, TTFT_EDGES
from tierkeeper.sim.columns import Columns
from tierkeeper.sim.model import PodPage

COLUMNS = Columns(TTFT_EDGES, TPOT_EDGES)


def shares(edges: tuple[float, ...], *, usual: float, slow: float, share: float) -> NDArray[np.float64]:
    """By bucket, +Inf last, the share of requests that took no longer; ``share`` are ``slow``, the others ``usual``."""
    bounds = np.array([*edges, np.inf])
    return np.where(bounds >= slow, 1.0, np.where(bounds >= usual, 1.0 - share, 0.0))


TTFT_SHARES = shares(TTFT_EDGES, usual=0.3, slow=1.7, share=0.03)
TPOT_SHARES = shares(TPOT_EDGES, usual=0.04, slow=0.3, share=0.02)


def page(name: str, *, requests: float, running: int = 4, waiting: int = 0, draining: bool = False) -> PodPage:
    """A pod that has served so many requests: each of 500 + 100 tokens, TTFT 0.3 s but 1.7 s for 3 in 100, TPOT 40 ms
    but 300 ms for 2 in 100."""
    ttft, tpot = requests * TTFT_SHARES, requests * TPOT_SHARES
    return PodPage(
        name=name,
        started_at=0.0,
        draining=draining,
        ttft_edges=TTFT_EDGES,
        ttft_buckets=ttft,
        ttft_sum=requests * (0.97 * 0.3 + 0.03 * 1.7),
        tpot_edges=TPOT_EDGES,
        tpot_buckets=tpot,
        tpot_sum=requests * (0.98 * 0.04 + 0.02 * 0.3),
        itl_buckets=tpot * 99,
        itl_sum=requests * 99 * 0.045,
        queue_time_sum=requests * 0.1,
        queue_time_count=int(requests),
        prefill_time_sum=requests * 0.2,
        prefill_time_count=int(requests),
        prompt_length_sum=int(requests * 500),
        prompt_length_count=int(requests),
        generation_length_sum=int(requests * 100),
        generation_length_count=int(requests),
        prompt_tokens=int(requests * 500),
        generation_tokens=int(requests * 100),
        finished=int(requests),
        preemptions=int(requests / 10),
        rejections=int(requests / 5),
        running=running,
        waiting=waiting,
        kv_usage=0.3,
        max_num_seqs=24,
        max_num_batched_tokens=2048,
        step=None,
    )
