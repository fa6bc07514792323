"""How many replicas a load needs, upwards and downwards."""

from __future__ import annotations

import math

from tierkeeper.scaling.context import Context
from tierkeeper.slo.model import SloAssessment

#: A pool that grows is sized for this share of its running slots: requests come in Poisson bunches, and one balancer
#: does not fill every replica evenly. 2 replicas of 16 with 12 waiting: (32 + 12) / (16 x 0.8) = 3.4, so 4.
GROW_UTILIZATION = 0.8

#: One growth at most doubles the pool: what one minute shows is not trusted further (HPA's default is 100 % too).
GROW_FACTOR = 2

#: Survivors of a scale-down may be this full. Below GROW_UTILIZATION, so that a shrink never calls for the next growth:
#: 2 replicas at 70 % would leave one at 140 %, and 2 at 35 % one at 70 %.
SHRINK_UTILIZATION = 0.7

#: Fullness up to which gauges alone prove a shrink harmless, without evidence by requests: every second slot of the
#: survivors stays empty.
PROVEN_UTILIZATION = 0.5

#: Survivors stay below this share of the load per replica at which the SLO last burned; that load is forgotten after an
#: hour, since prompts and models' warm caches change.
STRAIN_SHARE = 0.8
STRAIN_SECONDS = 3600.0

#: So many misses must be due before none of them shows that an objective holds: 4 are due in 400 requests at 99 %, and
#: zero in 400 allow an error ratio of 0.95 % (Wilson 95 %), in 300 one of 1.26 %; zero in 40 allow 8.8 % of the 10 %.
EVIDENCE_MISSES = 4.0


def replicas_for_load(ctx: Context, *, cap: int) -> int:
    """Replicas that carry the load at ``cap``, at least one more than now and at most GROW_FACTOR times as many."""
    current = ctx.current.replicas
    needed = math.ceil(ctx.load / (cap * GROW_UTILIZATION))
    return min(max(needed, current + 1), max(current * GROW_FACTOR, current + 1))


def survivors_carry(ctx: Context, *, replicas: int, utilization: float) -> bool:
    """Whether so many replicas carry the whole load: in slots, against the load that last burned, and in errors."""
    load = ctx.worst_load
    slots = ctx.current.max_num_seqs * utilization
    strain = ctx.memory.strain
    if strain is not None and ctx.elapsed(strain.at) < STRAIN_SECONDS:
        slots = min(slots, strain.running_per_replica * STRAIN_SHARE)
    if load > slots * replicas:
        return False
    more = ctx.current.replicas / replicas
    return all(minute_burn(slo) * more < 1.0 for slo in ctx.assessment.slos.values())


def smallest_carrying(ctx: Context) -> int:
    """The fewest replicas, not above the current count, whose survivors carry the load at SHRINK_UTILIZATION."""
    replicas = ctx.current.replicas
    while replicas - 1 >= ctx.spec.scaling.replicas.min and survivors_carry(
        ctx, replicas=replicas - 1, utilization=SHRINK_UTILIZATION
    ):
        replicas -= 1
    return replicas


def proven_by_gauges(ctx: Context, *, replicas: int) -> bool:
    """The exact source beside request counts: no queue, and half of the survivors' slots stay empty."""
    traffic = ctx.traffic
    return (
        traffic.waiting <= 0
        and traffic.waiting_floor <= 0
        and survivors_carry(ctx, replicas=replicas, utilization=PROVEN_UTILIZATION)
    )


def evidence_requests(ctx: Context) -> int:
    """Requests without a miss that show the objective to hold: 400 at 99 %, 4,000 at 99.9 %."""
    objective = ctx.spec.objective
    return math.ceil(round(EVIDENCE_MISSES / objective.error_budget, 6)) if objective is not None else 0


def proven_by_requests(ctx: Context) -> bool:
    """Enough requests in the last five minutes, and within budget even by the pessimistic reading."""
    return (
        bool(ctx.assessment.slos)
        and ctx.traffic.requests_5m >= evidence_requests(ctx)
        and all(
            (window := slo.window(300)) is not None and window.burn.upper <= 1.0 for slo in ctx.assessment.slos.values()
        )
    )


def minute_burn(slo: SloAssessment) -> float:
    """Burn over the last minute, 0 where no request was seen in it; infinite where it cannot be told."""
    if not slo.state.known:
        return math.inf
    minute = slo.window(60)
    return 0.0 if minute is None else minute.burn.point
