"""Metrics pages without a pool behind them: counters that grow as told."""

from __future__ import annotations

import numpy as np

from tierkeeper.engine.flags import TPOT_EDGES, TTFT_EDGES
from tierkeeper.sim.columns import Columns
from tierkeeper.sim.model import PodPage

COLUMNS = Columns(TTFT_EDGES, TPOT_EDGES)


def page(name: str, *, requests: float, running: int = 4, waiting: int = 0, draining: bool = False) -> PodPage:
    """A pod that has served so many requests: each of 500 + 100 tokens, TTFT 0.3 s but 1.7 s for 3 in 100, TPOT 40 ms
    but 300 ms for 2 in 100."""
    ttft = requests * np.where(np.array([*TTFT_EDGES, np.inf]) >= 1.7, 1.0, 0.97)
    ttft[np.array([*TTFT_EDGES, np.inf]) < 0.3] = 0.0
    tpot = requests * np.where(np.array([*TPOT_EDGES, np.inf]) >= 0.3, 1.0, 0.98)
    tpot[np.array([*TPOT_EDGES, np.inf]) < 0.04] = 0.0
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
