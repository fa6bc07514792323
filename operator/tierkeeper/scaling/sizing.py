"""Feed-forward: replicas, cap and token budget together, from what arrives and what a replica is known to carry."""

from __future__ import annotations

import math

from tierkeeper.engine.capacity import batch_within, long_prompt_seconds, token_budget
from tierkeeper.scaling.belief import strain_for
from tierkeeper.scaling.forecast import Way, expected
from tierkeeper.scaling.knowledge import MOST_USED, Knowledge, Model, backlog, limits_of
from tierkeeper.scaling.model import Levers, PoolState, serving
from tierkeeper.scaling.overload import open_cap, overloaded
from tierkeeper.scaling.pace import allowed_share
from tierkeeper.slo.model import Assessment, Sli
from tierkeeper.tier import Bounds, TierSpec
from tierkeeper.values import value

#: The cap stands where a full batch uses this share of the TPOT target: P99 of a saturated batch lies a sixth above
#: its mean (simulated, 483 tokens a step).
CAP_SHARE = 0.85

#: A limit is moved once it is off by this factor; less is within what the model knows.
CAP_TOLERANCE = 1.25
TOKENS_TOLERANCE = 1.3

#: A full step is planned to last this share of the TPOT target: speed is known within a twentieth.
STEP_SHARE = 0.95

#: A budget that the spec holds above that still serves up to so many times what the target allows beside a full batch,
#: and one that is set up to the second: a prompt that is being read has a slot of the batch and does not decode.
REACHED, KEPT = 1.05, 1.10

#: A long prompt may take this share of the TTFT target to be read; the rest is for waiting.
TTFT_SHARE = 2.0 / 3.0

#: A backlog (and what will be added to it until new replicas serve) is to be worked off within this time, beside what
#: arrives: twice the DRAIN_SECONDS that need no replica.
BACKLOG_SECONDS = 120.0

#: Replicas are whole and needs are not. What is spared while too many run may be missed while too few do: where misses
#: go with the 14th power of the strain and needs wander over three replicas, 0.3 too many spend 0.9 of the budget,
#: 0.2 * (1.1 ** 15 - 1) + 0.27 * (1 - (3.3 / 4) ** 15), and 0.1 too many 0.4. More than a tenth of a replica each would
#: miss 1.1 ** 14 = 4 budgets at a time.
SLACK, SLACK_EACH = 0.3, 0.1

#: While the load rises, or nobody knows yet whether it does, a need does not wander: it goes on. Nor does it wander
#: back soon enough where a replica that is missed starts late: the whole slack is for start-ups of two minutes at most.
RISING_SLACK, SLACK_LEAD_SECONDS = 0.1, 150.0

#: A replica leaves when the need is this far below: noise around a limit must not become a replica more and one less.
BAND = 0.2

#: A shrink must hold though the five minutes behind it were quiet by chance: two standard deviations.
SHRINK_DOUBT = 2.0


@value(frozen=True, slots=True)
class Plan:
    """What the load asks for."""

    grow_to: int
    """Replicas that are needed: more than there are only if they really are."""
    shrink_to: int
    """Replicas that are enough."""
    lasting: int
    """Replicas that are needed for what arrives, without the backlog that is gone in two minutes."""
    need: float
    """What is needed, before rounding."""
    settled_need: float
    """The same by whole minutes alone: what a jump of a scrape or two adds is left out."""
    levers: Levers
    """The current replicas with the right cap and token budget; while the limits stand open, with those."""
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
    grow_to_as_set: int
    """``grow_to`` if cap and token budget stayed as they are, where the right cap is larger; else ``grow_to``."""
    opened: bool = False
    """Whether the limits should stand open: more arrives than can be served at all, see ``overload``."""
    out_of_reach: tuple[Sli, ...] = ()
    """Targets that are missed and that no number of replicas would keep."""


def plan(
    *,
    spec: TierSpec,
    assessment: Assessment,
    pool: PoolState,
    knowledge: Knowledge,
    now: float,
    lead_seconds: float,
    live: bool,
    cap_ceiling: int,
    tokens_ceiling: int | None = None,
    open_ceiling: int = 0,
    opened: bool = False,
) -> Plan | None:
    """The plan for one tick; None while the pool has not shown its speed, or promises nothing.

    ``live``: cap and token budget can be moved now; else the current ones are planned with. The ceilings are what has
    not gone wrong lately; for ``open_ceiling``, that of an overload, what burned TPOT alone does not count. ``opened``:
    the limits stand open.
    """
    arriving, here = knowledge.demand, knowledge.here
    if arriving is None or here is None:
        return None
    levers = _limits(spec, pool.current, here, (cap_ceiling, tokens_ceiling)) if live else pool.current
    there = here if levers == pool.current else here.within(limits_of(spec, levers, knowledge, here.objective))
    traffic = assessment.traffic
    allowed = strain_for(knowledge.belief, share=allowed_share(here.objective, assessment))
    ahead = expected(knowledge.forecaster, arriving, now=now, lead_seconds=lead_seconds)
    coming = max(arriving.level, ahead)
    pods = serving(pool, traffic)
    capacity = pods * there.one.requests_per_second
    wide = None
    if live and overloaded(here, traffic, rate=arriving.level, capacity=capacity, opened=opened):
        wide = _open(spec, pool.current, levers, cap=open_cap(spec, here, knowledge, ceiling=open_ceiling))
    growth = max(0.0, arriving.level - capacity) * lead_seconds
    queued = backlog(traffic, here.objective) + growth
    excess = queued / BACKLOG_SECONDS
    need = there.replicas(coming, strain=allowed, backlog=excess)
    spare = there.replicas(coming + SHRINK_DOUBT * arriving.doubt, strain=allowed, backlog=excess)
    lasting = need if excess <= 0.0 else there.replicas(coming, strain=allowed)
    slack = _slack(lead_seconds) if knowledge.minutes.flat else RISING_SLACK
    least = coming / MOST_USED / there.one.requests_per_second
    unseen = max(0, pool.ready - traffic.observed_pods)
    narrower = there is here or levers.max_num_seqs <= pool.current.max_num_seqs
    return Plan(
        grow_to=_whole(need, slack, least),
        shrink_to=_whole(spare + unseen + BAND, slack, least),
        lasting=_whole(lasting, slack, least),
        need=need,
        settled_need=need * (1.0 if arriving.settled is None else arriving.settled / arriving.level),
        levers=wide or levers,
        opened=wide is not None,
        rate=arriving.level,
        coming=coming,
        way=knowledge.forecaster.way if ahead != arriving.level else Way.NONE,
        strain=arriving.level / here.rate(pods),
        allowed=allowed,
        floor=knowledge.belief.floor,
        grow_to_as_set=_whole(
            need if narrower else here.replicas(coming, strain=allowed, backlog=excess), slack, least
        ),
        out_of_reach=here.out_of_reach,
    )


def _slack(lead_seconds: float) -> float:
    """Replicas that a load which does not rise may be short of, where a new one serves after that time."""
    return RISING_SLACK + (SLACK - RISING_SLACK) * min(1.0, SLACK_LEAD_SECONDS / lead_seconds)


def _whole(need: float, slack: float, least: float) -> int:
    """The fewest replicas that are short of the need by no more than ``slack``, or SLACK_EACH of each, and of ``least``
    (what can be used at all: a queue that grows without end is no budget) by nothing."""
    few = max(1, math.floor(need))
    enough = few if need <= few + min(slack, SLACK_EACH * few) else few + 1
    return max(enough, math.ceil(least))


def _limits(spec: TierSpec, current: Levers, here: Model, ceilings: tuple[int, int | None]) -> Levers:
    """The cap and the token budget that go together for this mix; each as it is while it is near enough."""
    target = here.objective.tpot_seconds
    if target is None:
        return current
    batch = batch_within(here.profile, speed=here.speed, lengths=here.lengths, tpot_seconds=CAP_SHARE * target)
    bounds = spec.scaling.max_num_seqs
    cap = max(bounds.min, min(bounds.clamp(math.floor(batch)), ceilings[0]))
    cap = cap if _off(cap, current.max_num_seqs, CAP_TOLERANCE) else current.max_num_seqs
    tokens = _tokens(spec, current, here, batch=min(cap, max(batch, 1.0)), ceiling=ceilings[1])
    budget = spec.scaling.max_num_batched_tokens
    return Levers(current.replicas, cap, None if tokens is None or budget is None else budget.clamp(max(tokens, cap)))


def _open(spec: TierSpec, current: Levers, right: Levers, *, cap: int) -> Levers | None:
    """That cap with the widest token budget, as more sequences bring more prompts along; None where the right limits
    (those that keep TPOT) are as wide."""
    if cap <= CAP_TOLERANCE * right.max_num_seqs:
        return None
    cap = cap if _off(cap, current.max_num_seqs, CAP_TOLERANCE) else current.max_num_seqs
    allowed = spec.scaling.max_num_batched_tokens
    return Levers(current.replicas, cap, None if allowed is None else _widest(spec, allowed))


def _widest(spec: TierSpec, allowed: Bounds) -> int:
    """The token budget with which the engine would run by itself."""
    return allowed.clamp(spec.engine.max_num_batched_tokens or allowed.max)


def _tokens(spec: TierSpec, current: Levers, here: Model, *, batch: float, ceiling: int | None) -> int | None:
    """The token budget at which no step is longer than the TPOT target, else the widest.

    A budget a little too large is worse than none: while prompts wait every step is full, so each lasts longer than
    the target, and more steps are needed (Azure 2023 at 6x on 6 replicas kept 91.8 % with 512 tokens, steps of 43 ms
    for 40 promised, 93.4 % with 1,024; on 7 replicas 99.5 % with 512, 99.9 % with 448, 99.4 % with 1,024).
    """
    tokens, allowed, target = current.max_num_batched_tokens, spec.scaling.max_num_batched_tokens, here.objective
    if tokens is None or allowed is None or target.tpot_seconds is None:
        return tokens
    profile, speed, lengths, tpot = here.profile, here.speed, here.lengths, target.tpot_seconds
    most = token_budget(profile, speed=speed, lengths=lengths, batch=batch, tpot_seconds=tpot)
    best = token_budget(profile, speed=speed, lengths=lengths, batch=batch, tpot_seconds=STEP_SHARE * tpot)
    wanted = max(allowed.min, math.floor(min(best, allowed.max, ceiling or allowed.max)))
    set_already = not _off(wanted, tokens, TOKENS_TOLERANCE)
    slack = KEPT if set_already else REACHED
    wanted = tokens if set_already and tokens <= slack * most else wanted
    reading = long_prompt_seconds(profile, speed=speed, lengths=lengths, batch=batch, tokens=wanted)
    slow = target.ttft_seconds is not None and reading > slack * TTFT_SHARE * target.ttft_seconds
    if slow or wanted > slack * most:
        return _widest(spec, allowed)
    return wanted


def _off(wanted: int, current: int, tolerance: float) -> bool:
    return wanted > current * tolerance or wanted * tolerance < current
