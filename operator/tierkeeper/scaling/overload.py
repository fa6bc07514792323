"""What a pool does while more arrives than it can serve at all: throughput before TPOT, until the backlog is gone.

A queue is served in turn. While it is longer than the TTFT target lets wait and grows, whoever joins it is late
whatever limit holds the batch: a cap that keeps TPOT saves none of them, and the throughput that it costs makes the
queue longer for all who come after.
"""

from __future__ import annotations

from tierkeeper.engine.latency import saturated_slope_seconds
from tierkeeper.scaling.diagnose import KV_FULL
from tierkeeper.scaling.knowledge import MOST_USED, Knowledge, Model, backlog
from tierkeeper.slo.model import Traffic
from tierkeeper.tier import TierSpec

#: The batch is opened to this share of what a replica can do at all. ``B`` sequences gain B / (a + B * s) tokens a
#: second, 1 / s at most, which is the share B * s / (a + B * s): a share takes a / s * share / (1 - share) sequences.
#: With 1,155 and 211 tokens on 2 x A100 (a = 8.5 ms, s = 0.465 ms) nine tenths take 9 a / s = 164, in steps of 85 ms;
#: the 56 that keep a TPOT of 40 ms do 75 %. Half of the last tenth would take 347 in steps of 170 ms: twice the time
#: and twice the KV cache of all who run, for 6 % more.
OPEN_SHARE = 0.9


def open_batch(here: Model) -> float:
    """Sequences at which a replica does OPEN_SHARE of what it can, for this mix."""
    slope = saturated_slope_seconds(here.profile, here.lengths)
    return here.profile.base_seconds / slope * OPEN_SHARE / (1.0 - OPEN_SHARE)


def open_cap(spec: TierSpec, here: Model, knowledge: Knowledge, *, ceiling: int) -> int:
    """The cap for an overload: within the spec, the KV cache as far as it was seen to fill, and ``ceiling``."""
    batch, kv = open_batch(here), knowledge.engine.kv_sequences
    if kv.weight > 0:
        batch = min(batch, KV_FULL * kv.value(0.0))
    bounds = spec.scaling.max_num_seqs
    return max(bounds.min, min(bounds.clamp(int(batch)), ceiling))


def overloaded(here: Model, traffic: Traffic, *, rate: float, capacity: float, opened: bool) -> bool:
    """Whether the limits should stand open: more requests a second arrive than replicas that keep TPOT can serve
    (``capacity``), and a backlog stands. Once ``opened``, until neither holds: what is still too much would only make
    the next backlog, and what still waits is late already.

    Only where both TTFT and TPOT are promised and within reach. Without TTFT a wait breaks no promise, and those who
    run would be made late for those who wait; without TPOT no cap is held back for it.
    """
    objective = here.objective
    if objective.ttft_seconds is None or objective.tpot_seconds is None:
        return False
    beyond, waits = rate >= MOST_USED * capacity, backlog(traffic, objective) > 0
    return (beyond or waits) if opened else (beyond and waits)
