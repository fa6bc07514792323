"""Feed-forward: replicas, cap and token budget together, from what arrives and what a replica is known to carry."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tierkeeper.engine.capacity import batch_within, token_budget
from tierkeeper.engine.latency import Profile
from tierkeeper.scaling.belief import strain_for
from tierkeeper.scaling.forecast import Way, expected
from tierkeeper.scaling.knowledge import Knowledge, Model, limits_of, model
from tierkeeper.scaling.model import Levers, PoolState, serving
from tierkeeper.scaling.pace import allowed_share
from tierkeeper.slo.model import Assessment, Traffic
from tierkeeper.tier import TierSpec

#: The cap stands where a full batch uses this share of the TPOT target: P99 of a saturated batch lies a sixth above
#: its mean (simulated, 483 tokens a step).
CAP_SHARE = 0.85

#: A limit is moved once it is off by this factor; less is within what the model knows.
CAP_TOLERANCE = 1.25
TOKENS_TOLERANCE = 1.3

#: A backlog (and what will be added to it until new replicas serve) is to be worked off within this time, beside what
#: arrives: twice the DRAIN_SECONDS that need no replica.
BACKLOG_SECONDS = 120.0

#: A replica is added when the need exceeds the replicas by more than this, and leaves when it is this far below:
#: noise around a whole number must not become a replica more and one less.
GROW_SLACK, SHRINK_SLACK = 0.10, 0.05

#: A shrink must hold though the five minutes behind it were quiet by chance: two standard deviations.
SHRINK_DOUBT = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What the load asks for."""

    grow_to: int
    """Replicas that are needed: more than there are only if they really are."""
    shrink_to: int
    """Replicas that are enough."""
    need: float
    """The same before rounding."""
    levers: Levers
    """The current replicas with the right cap and token budget."""
    rate: float
    """Requests a second that arrive now."""
    coming: float
    """Requests a second that the plan is for."""
    way: Way
    strain: float
    """Load of the Ready replicas as a share of what the model says they carry."""
    allowed: float
    """The strain that the error budget allows."""
    floor: float
    """Budgets that are missed at any load."""


def plan(
    *,
    spec: TierSpec,
    assessment: Assessment,
    pool: PoolState,
    knowledge: Knowledge,
    profile: Profile,
    now: float,
    lead_seconds: float,
    live: bool,
    cap_ceiling: int,
    tokens_ceiling: int | None = None,
) -> Plan | None:
    """The plan for one tick; None while the pool has not shown its speed, or promises nothing.

    ``live``: cap and token budget can be moved now; else the current ones are planned with. The ceilings are what has
    not gone wrong lately.
    """
    arriving, here = knowledge.demand, model(spec, pool.current, knowledge, profile)
    if arriving is None or here is None:
        return None
    levers = _limits(spec, pool.current, here, (cap_ceiling, tokens_ceiling)) if live else pool.current
    there = here if levers == pool.current else here.within(limits_of(spec, levers, knowledge))
    traffic = assessment.traffic
    allowed = strain_for(knowledge.belief, share=allowed_share(here.objective, assessment))
    ahead = expected(knowledge.forecaster, arriving, now=now, lead_seconds=lead_seconds)
    coming = max(arriving.level, ahead)
    pods = serving(pool, traffic)
    growth = max(0.0, arriving.level - pods * there.one.requests_per_second) * lead_seconds
    backlog = _backlog(traffic, here.objective.ttft_seconds) + growth
    need = there.replicas(coming, strain=allowed, backlog=backlog / BACKLOG_SECONDS)
    spare = there.replicas(coming + SHRINK_DOUBT * arriving.doubt, strain=allowed, backlog=backlog / BACKLOG_SECONDS)
    unseen = max(0, pool.ready - traffic.observed_pods)
    return Plan(
        grow_to=max(1, math.ceil(need - GROW_SLACK)),
        shrink_to=max(1, math.ceil(spare + unseen + SHRINK_SLACK)),
        need=need,
        levers=levers,
        rate=arriving.level,
        coming=coming,
        way=knowledge.forecaster.way if ahead != arriving.level else Way.NONE,
        strain=arriving.level / here.rate(pods),
        allowed=allowed,
        floor=knowledge.belief.floor,
    )


def _backlog(traffic: Traffic, target: float | None) -> float:
    """Requests that wait beyond what the TTFT target (seconds; without one, a second) lets wait."""
    return max(0.0, traffic.waiting - traffic.requests_per_second * (target or 1.0))


def _limits(spec: TierSpec, current: Levers, here: Model, ceilings: tuple[int, int | None]) -> Levers:
    """The cap and the token budget that go together for this mix; each as it is while it is near enough."""
    target = here.objective.tpot_seconds
    if target is None:
        return current
    batch = batch_within(here.profile, speed=here.speed, lengths=here.lengths, tpot_seconds=CAP_SHARE * target)
    bounds = spec.scaling.max_num_seqs
    cap = max(bounds.min, min(bounds.clamp(math.floor(batch)), ceilings[0]))
    cap = cap if _off(cap, current.max_num_seqs, CAP_TOLERANCE) else current.max_num_seqs
    tokens, allowed = current.max_num_batched_tokens, spec.scaling.max_num_batched_tokens
    if tokens is not None and allowed is not None:
        best = token_budget(
            here.profile,
            speed=here.speed,
            lengths=here.lengths,
            batch=min(cap, max(batch, 1.0)),
            tpot_seconds=target,
            ttft_seconds=here.objective.ttft_seconds,
        )
        highest = min(allowed.max, ceilings[1] or allowed.max)
        wanted = allowed.clamp(max(cap, math.floor(min(best, highest))))
        tokens = wanted if _off(wanted, tokens, TOKENS_TOLERANCE) else tokens
    return Levers(current.replicas, cap, tokens)


def _off(wanted: int, current: int, tolerance: float) -> bool:
    return wanted > current * tolerance or wanted * tolerance < current
