"""Sets the simulator beside NVIDIA Dynamo's mocker, an independent simulator with the same law of a step.

Both replay the whole hour of the Azure 2023 conversation trace on static pools with the same constants. The mocker's
figures were taken with ai-dynamo 1.2.1 (``dynamo.replay``, ``planner_profile_data`` set to the law below, round robin,
no prefix cache); they are constants here, so that this check needs no other package.

    python -m bench.policy.validate_mocker [--trace FILE] [--json FILE]

Exits with 1 if a joint attainment is off by more than 0.3 points or a P99 by more than 10 %.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tierkeeper.engine.latency import Profile
from tierkeeper.sim.model import PoolConfig, Requests, Startup
from tierkeeper.sim.pool import Pool
from tierkeeper.sim.score import good_requests
from tierkeeper.sim.traffic.traces import read_azure
from tierkeeper.tier import Objective

TRACE = Path(__file__).parent / "data" / "azure2023_conv.csv.gz"
PROMISE = Objective(ratio=0.99, ttft_seconds=1.5, tpot_seconds=0.040)
JOINT_POINTS, P99_SHARE = 0.3, 0.10
"""The tolerances."""

CONFIG = PoolConfig(
    profile=Profile(
        name="70B class, as set in the mocker",
        base_seconds=0.0185,
        per_sequence_seconds=0.0001,
        per_context_token_seconds=0.15e-6,
        per_prefill_token_seconds=80e-6,
    ),
    kv_tokens=262_144,
    startup=Startup(median_seconds=120.0, sigma=0.0),
    drain_seconds=0.0,
    routing="round-robin",
    mocker_rules=True,
)
MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS = 32, 512


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run over the hour."""

    joint_percent: float
    """Arrivals with TTFT and TPOT within the thresholds."""
    ttft_p99: float
    """Seconds."""
    tpot_p99: float
    """Seconds a token, over requests of two tokens or more."""


MOCKER = {
    2: Figures(77.6, 4.5, 0.0635),
    3: Figures(97.7, 0.81, 0.0446),
    4: Figures(99.58, 0.64, 0.0357),
    5: Figures(99.93, 0.58, 0.0316),
    6: Figures(99.98, 0.56, 0.0291),
    8: Figures(99.99, 0.53, 0.0262),
}
"""By number of replicas."""
JUDGED = (3, 4, 5, 6, 8)
"""Two replicas are overloaded, and the mocker's joint is blurred there: requests that end within one 2 ms window of its
counters share their means (a tenth of them there, 2 to 6 % with three and more). Shown, not judged."""


def static(requests: Requests, *, replicas: int) -> Figures:
    """The hour on a pool that never changes."""
    pool = Pool(
        CONFIG,
        requests,
        replicas=replicas,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
        seed=0,
    )
    pool.advance(math.inf)
    seen = pool.outcomes()
    return Figures(
        joint_percent=100.0 * float(np.mean(good_requests(seen, PROMISE))),
        ttft_p99=float(np.nanpercentile(seen.ttft, 99)),
        tpot_p99=float(np.nanpercentile(seen.tpot, 99)),
    )


def misses(ours: Figures, theirs: Figures) -> list[str]:
    """Which figures are further apart than the tolerances."""
    joint = ["joint"] if abs(ours.joint_percent - theirs.joint_percent) > JOINT_POINTS else []
    names = ("ttft_p99", "tpot_p99")
    return joint + [name for name in names if abs(getattr(ours, name) / getattr(theirs, name) - 1) > P99_SHARE]


def main() -> int:
    parser = argparse.ArgumentParser(description="Set the simulator beside NVIDIA Dynamo's mocker.")
    parser.add_argument("--trace", type=Path, default=TRACE, help="the Azure 2023 conversation trace")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args()
    requests = read_azure(options.trace)
    ours = {replicas: static(requests, replicas=replicas) for replicas in MOCKER}
    print(f"{len(requests)} requests; simulator / mocker\n")
    print("| replicas | joint % | TTFT P99 s | TPOT P99 ms | off |")
    print("|---|---|---|---|---|")
    failed = False
    for replicas, theirs in MOCKER.items():
        mine, off = ours[replicas], misses(ours[replicas], theirs)
        failed |= replicas in JUDGED and bool(off)
        print(
            f"| {replicas} | {mine.joint_percent:.2f} / {theirs.joint_percent:.2f} "
            f"| {mine.ttft_p99:.3f} / {theirs.ttft_p99:.2f} "
            f"| {1000 * mine.tpot_p99:.1f} / {1000 * theirs.tpot_p99:.1f} | {', '.join(off) or '-'} |"
        )
    if options.json:
        rows = {str(n): {"simulator": asdict(ours[n]), "mocker": asdict(theirs)} for n, theirs in MOCKER.items()}
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
