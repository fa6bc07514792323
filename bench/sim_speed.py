"""How many requests of trace one core simulates in a second, for a pool of 8 replicas at 60 requests/s.

Lengths as in the Azure 2023 conversation trace; the pool is read at each tick of 15 s, as the loop does. Time is CPU
time of the process without compilation, the best of three runs. Exits with 1 below 100,000 requests/s.

    python -m bench.sim_speed [--hours 4] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from tierkeeper.sim.model import PoolConfig, Requests, Startup
from tierkeeper.sim.pool import Pool
from tierkeeper.sim.profiles import find_profile
from tierkeeper.sim.traffic.compose import synthesize
from tierkeeper.sim.traffic.curve import Curve
from tierkeeper.sim.traffic.lengths import AZURE_CONVERSATION

GOAL = 100_000
REPLICAS, RATE, TICK_SECONDS, RUNS = 8, 60.0, 15.0, 3
CASES = (("8b-h100", 64, 2048), ("8b-h100", 256, 8192), ("8b-2xa100", 64, 2048), ("8b-2xa100", 64, 512))
"""Profile, max_num_seqs, max_num_batched_tokens."""


def simulate(requests: Requests, profile: str, *, seqs: int, tokens: int) -> tuple[float, Pool]:
    """CPU seconds of one run, and the pool after it."""
    engine = find_profile(profile)
    config = PoolConfig(profile=engine.latency, kv_tokens=engine.kv_tokens, startup=Startup(120.0), drain_seconds=120.0)
    pool = Pool(config, requests, replicas=REPLICAS, max_num_seqs=seqs, max_num_batched_tokens=tokens, seed=1)
    began = time.process_time()
    for now in np.arange(0.0, float(requests.arrival[-1]) + TICK_SECONDS, TICK_SECONDS).tolist():
        pool.advance(now)
        pool.pages()
    return time.process_time() - began, pool


def main() -> int:
    parser = argparse.ArgumentParser(description="How fast one core simulates a pool of 8 replicas.")
    parser.add_argument("--hours", type=float, default=4.0, help="length of the trace")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args()
    rate = Curve.constant(RATE, seconds=options.hours * 3600)
    requests = synthesize(rate, lengths=AZURE_CONVERSATION, seed=1)
    simulate(Requests(requests.arrival[:9], requests.prompt[:9], requests.output[:9]), "8b-h100", seqs=8, tokens=512)
    print(f"{len(requests):,} requests, {REPLICAS} replicas, {RATE:g} requests/s\n")
    print("| profile | max_num_seqs | token budget | TTFT P99 s | requests/s | a week at this rate, s |")
    print("|---|---|---|---|---|---|")
    rows, slow = [], False
    for profile, seqs, tokens in CASES:
        runs = [simulate(requests, profile, seqs=seqs, tokens=tokens) for _ in range(RUNS)]
        speed = len(requests) / min(seconds for seconds, _ in runs)
        p99 = float(np.nanpercentile(runs[0][1].outcomes().ttft, 99))
        slow |= speed < GOAL
        rows.append({"profile": profile, "seqs": seqs, "tokens": tokens, "ttft_p99": p99, "requests_per_second": speed})
        week = RATE * 7 * 86400 / speed
        print(f"| {profile} | {seqs} | {tokens} | {p99:.2f} | {speed:,.0f} | {week:.0f} |")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
