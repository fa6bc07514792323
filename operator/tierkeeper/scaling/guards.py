"""What may really be pulled: a chain of pure steps, each of which may take something out of a proposal and says why.

A guard never adds a wish of its own, with two exceptions: replicas that no node takes are given back, and where old
misses may not be reacted to, the smaller live limits that measured steps ask for are set in their place. Messages of
holds carry no live figure: an unchanged situation is an unchanged text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tierkeeper.scaling.capacity import evidence_requests, proven_by_gauges, proven_by_requests
from tierkeeper.scaling.context import SETTLE_WINDOW_SECONDS, Context, Proposal
from tierkeeper.scaling.levers import hold, lowered
from tierkeeper.scaling.memory import DRAIN_LOOK_SECONDS, in_flight
from tierkeeper.scaling.model import Limit, Reason
from tierkeeper.scaling.wording import count, duration
from tierkeeper.slo.model import SignalState

Guard = Callable[[Proposal, Context], Proposal]

#: After a change that gauges can see, the queue is judged anew after this long: three looks at a 5 s tick, one at 15 s.
SETTLE_GAUGE_SECONDS = 15.0

#: A new pod first works off the backlog: the queue's trend must have been read from after it became Ready.
SETTLE_CAPACITY_SECONDS = DRAIN_LOOK_SECONDS

#: A queue that will be gone within this time at its present pace needs no replica: none starts faster (a 3B model with
#: a warm compile cache took 59 s).
DRAIN_SECONDS = 60.0

#: Replicas that found no node are given back after this long: cluster-autoscaler's default max-node-provision-time is
#: 15 minutes, so no node is coming any more.
UNSCHEDULABLE_SECONDS = 900.0

#: After that, no replica is asked for until this long has passed.
UNSCHEDULABLE_RETRY_SECONDS = 600.0

#: A start is late at twice its measured time, and never within the first minute.
LATE_START_FACTOR = 2.0
LATE_START_FLOOR_SECONDS = 60.0

#: After one shrink the survivors are looked at through two of the shortest windows before the next.
NEXT_SHRINK_SECONDS = 120.0

RELAXATIONS = frozenset({Reason.RELAX_TOKEN_BUDGET, Reason.RESTORE_CAP})


def grows(proposal: Proposal, ctx: Context) -> bool:
    return proposal.levers.replicas > ctx.current.replicas


def shrinks(proposal: Proposal, ctx: Context) -> bool:
    return proposal.levers.replicas < ctx.current.replicas


def moves_live(proposal: Proposal, ctx: Context) -> bool:
    return not proposal.levers.has_limits_of(ctx.current)


def keep_replicas(proposal: Proposal, ctx: Context, *, reason: Reason, message: str, limited: bool = False) -> Proposal:
    """Takes the replica change out; what is left of the proposal stays, or a hold with this reason."""
    limit = Limit(reason, message) if limited else None
    left = proposal.with_levers(replicas=ctx.current.replicas)
    if not moves_live(left, ctx):
        return hold(ctx, reason, message, limit or proposal.limited)
    return dataclasses.replace(left, why=f"{left.why}; {message}", limited=limit or proposal.limited)


def keep_live(proposal: Proposal, ctx: Context, *, reason: Reason, message: str) -> Proposal:
    """Takes the changes of max-num-seqs and token budget out."""
    levers = ctx.current.with_replicas(proposal.levers.replicas)
    if levers == ctx.current:
        return hold(ctx, reason, message, proposal.limited)
    return dataclasses.replace(proposal, levers=levers)


def no_rollout(proposal: Proposal, ctx: Context) -> Proposal:
    """During a rollout pods come and go for another reason than load."""
    if not ctx.pool.rolling_out or proposal.levers == ctx.current:
        return proposal
    message = "a rollout is under way: scaling waits until every pod runs the new template"
    return hold(ctx, Reason.HOLD_ROLLOUT, message, proposal.limited)


def traffic_before_growth(proposal: Proposal, ctx: Context) -> Proposal:
    """Without traffic nothing grows."""
    if ctx.assessment.state is not SignalState.NO_TRAFFIC:
        return proposal
    message = "no traffic was measured: nothing grows"
    current = ctx.current
    if grows(proposal, ctx):
        proposal = keep_replicas(proposal, ctx, reason=Reason.HOLD_EVIDENCE, message=message)
    if proposal.levers.max_num_seqs > current.max_num_seqs or (
        (proposal.levers.max_num_batched_tokens or 0) > (current.max_num_batched_tokens or 0)
    ):
        proposal = keep_live(proposal, ctx, reason=Reason.HOLD_EVIDENCE, message=message)
    return proposal


def stabilized(proposal: Proposal, ctx: Context) -> Proposal:
    """A shrink waits until the whole window agrees: nothing unknown, nothing changed, no tick that wanted more."""
    if not shrinks(proposal, ctx):
        return proposal
    window = duration(ctx.shrink_window)
    if ctx.elapsed(ctx.memory.started_at) < ctx.shrink_window:
        message = f"may shrink once the pool has been watched for {window}"
        return keep_replicas(proposal, ctx, reason=Reason.HOLD_STABILIZING, message=message)
    if ctx.assessment.clean_since is None or ctx.elapsed(ctx.assessment.clean_since) < ctx.window:
        message = f"may shrink once metrics have been good for {duration(ctx.window)} without a break"
        return keep_replicas(proposal, ctx, reason=Reason.HOLD_RECOVERING, message=message)
    highest = ctx.memory.highest_recommendation(since=ctx.now - ctx.shrink_window, default=ctx.current.replicas)
    target = max(proposal.levers.replicas, highest)
    if target >= ctx.current.replicas or not _may_turn(ctx):
        message = f"may shrink once fewer replicas have been enough for {window} since the last change"
        return keep_replicas(proposal, ctx, reason=Reason.HOLD_STABILIZING, message=message)
    if proposal.reason is Reason.SCALE_DOWN and ctx.plan is None:
        target = max(target, ctx.current.replicas - 1)
    return proposal.with_levers(replicas=target)


def _may_turn(ctx: Context) -> bool:
    """Whether the last change, of any lever, lies far enough back for a shrink: behind the shortest windows.

    After a growth twice the start-up time too: a replica that took ten minutes to load is not given back after five.
    One shrink may follow another sooner where demand is measured: the whole window agrees to each.
    """
    if ctx.elapsed(ctx.memory.changed_at) < SETTLE_WINDOW_SECONDS:
        return False
    if ctx.elapsed(ctx.memory.grown_at) < ctx.shrink_window:
        return False
    rest = ctx.window if ctx.plan is None else min(ctx.window, NEXT_SHRINK_SECONDS)
    return ctx.elapsed(ctx.memory.replicas_at) >= rest


def kept_for_a_return(proposal: Proposal, ctx: Context) -> Proposal:
    """With the error budget spent, a load that came back after a shrink is waited for, as long as it stayed away."""
    if not shrinks(proposal, ctx) or not ctx.budget_gone:
        return proposal
    returns = ctx.memory.returns
    held = returns.held(now=ctx.now)
    if held < ctx.current.replicas:
        return proposal.with_levers(replicas=max(held, proposal.levers.replicas))
    message = (
        f"may shrink once fewer replicas have been enough for {duration(returns.hold_seconds(now=ctx.now))}: the load "
        "came back after a shrink, and the error budget for that is spent"
    )
    return keep_replicas(proposal, ctx, reason=Reason.HOLD_STABILIZING, message=message)


def evidence(proposal: Proposal, ctx: Context) -> Proposal:
    """A shrink under load needs enough requests within budget, or gauges that prove it harmless."""
    if proposal.reason is not Reason.SCALE_DOWN or proven_by_gauges(ctx, replicas=proposal.levers.replicas):
        return proposal
    if ctx.budget_frozen and ctx.plan is None:
        message = "the error budget is frozen: replicas stay until half of the survivors' slots would stay empty"
        return keep_replicas(proposal, ctx, reason=Reason.HOLD_BUDGET_FROZEN, message=message)
    if proven_by_requests(ctx):
        return proposal
    needed = count(evidence_requests(ctx), "request")
    message = f"may shrink on {needed} within budget in 5 min, or once half of the survivors' slots would stay empty"
    return keep_replicas(proposal, ctx, reason=Reason.HOLD_EVIDENCE, message=message)


def calm_before_relaxing(proposal: Proposal, ctx: Context) -> Proposal:
    """Going back towards the start is voluntary: a calm window first, one step a window, never on a frozen budget."""
    if proposal.reason not in RELAXATIONS:
        return proposal
    if ctx.budget_frozen:
        message = "the error budget is frozen: no voluntary change"
        return hold(ctx, Reason.HOLD_BUDGET_FROZEN, message, proposal.limited)
    calm = ctx.memory.calm_since is not None and ctx.elapsed(ctx.memory.calm_since) >= ctx.window
    if calm and ctx.elapsed(ctx.memory.changed_at) >= ctx.window:
        return proposal
    message = f"goes back towards where the tier starts once it has been calm for {duration(ctx.window)}"
    return hold(ctx, Reason.HOLD_STABILIZING, message, proposal.limited)


def release_stuck(proposal: Proposal, ctx: Context) -> Proposal:
    """Replicas that no node has taken for too long are given back."""
    if ctx.pool.rolling_out or not ctx.assessment.state.known:
        return proposal
    stuck = ctx.memory.unschedulable_since
    left = max(ctx.spec.scaling.replicas.min, ctx.current.replicas - ctx.pool.unschedulable)
    if stuck is None or ctx.elapsed(stuck) < _unschedulable_limit(ctx) or left >= ctx.current.replicas:
        return proposal
    message = (
        f"{count(ctx.current.replicas - left, 'replica')} got no node for {duration(_unschedulable_limit(ctx))}"
        f"{_why_without_a_node(ctx)}"
    )
    limited = Limit(Reason.RELEASE_UNSCHEDULABLE, message)
    levers = proposal.levers.with_replicas(left)
    return Proposal(levers, Reason.RELEASE_UNSCHEDULABLE, message, limited)


def _unschedulable_limit(ctx: Context) -> float:
    return min(UNSCHEDULABLE_SECONDS, float(ctx.spec.rollout.startup_seconds))


def _why_without_a_node(ctx: Context) -> str:
    return f" ({ctx.pool.unschedulable_message})" if ctx.pool.unschedulable_message else ""


def schedulable(proposal: Proposal, ctx: Context) -> Proposal:
    """No growth while the last one has no node, nor soon after it was given back."""
    if not grows(proposal, ctx):
        return proposal
    if ctx.pool.unschedulable > 0:
        has = "has" if ctx.pool.unschedulable == 1 else "have"
        stuck = f"{count(ctx.pool.unschedulable, 'replica')} {has} no node"
        message = f"{stuck}, no more are asked for{_why_without_a_node(ctx)}"
    elif ctx.elapsed(ctx.memory.released_at) < UNSCHEDULABLE_RETRY_SECONDS:
        message = (
            f"the last added replicas got no node: {duration(UNSCHEDULABLE_RETRY_SECONDS)} must pass before more are "
            "asked for; add nodes with free GPUs (or quota, where a queue or the namespace has one), or lower another "
            "tier"
        )
    else:
        return proposal
    return keep_replicas(proposal, ctx, reason=Reason.HOLD_UNSCHEDULABLE, message=message, limited=True)


def started(proposal: Proposal, ctx: Context) -> Proposal:
    """Pods in flight are capacity to come: no growth while they load, unless late or demand exceeds them too."""
    if not grows(proposal, ctx) or (coming := in_flight(ctx.pool, ctx.assessment)) <= 0:
        return proposal
    if proposal.demanded > ctx.current.replicas:
        return proposal.with_levers(replicas=min(proposal.demanded, proposal.levers.replicas))
    if ctx.elapsed(ctx.memory.starting_since) >= start_deadline_seconds(ctx):
        return proposal
    is_are = "is" if coming == 1 else "are"
    message = f"{count(coming, 'replica')} {is_are} starting and {is_are} capacity to come: no more are added meanwhile"
    return keep_replicas(proposal, ctx, reason=Reason.HOLD_STARTING, message=message)


def start_deadline_seconds(ctx: Context) -> float:
    """When a start is late: by the pool's own measured start-up, else by what the spec allows. A measured 17 min gives
    the spec's 30 min (below 34), a measured 40 s gives 80 s."""
    allowed, measured = float(ctx.spec.rollout.startup_seconds), ctx.memory.startup_seconds
    if measured is None:
        return allowed
    return min(allowed, max(LATE_START_FLOOR_SECONDS, LATE_START_FACTOR * measured))


def settled(proposal: Proposal, ctx: Context) -> Proposal:
    """One lever at a time: after a change, what is seen must come from after it. A rollback does not wait."""
    if ctx.finding.calm or proposal.levers == ctx.current or proposal.reason is Reason.ROLL_BACK_CAP:
        return proposal
    if proposal.reason is Reason.RELEASE_UNSCHEDULABLE:
        return proposal
    plan = ctx.plan
    measured = proposal.demanded > ctx.current.replicas or (
        plan is not None
        and ctx.live_reachable
        and (lowered(ctx.current, plan.levers) != ctx.current or (plan.opened and moves_live(proposal, ctx)))
    )
    if measured and ctx.elapsed(ctx.memory.changed_at) >= SETTLE_GAUGE_SECONDS:
        return proposal if _seen(ctx) else _only_demanded(proposal, ctx)
    by_windows = ctx.finding.from_windows
    wait = SETTLE_WINDOW_SECONDS if by_windows else SETTLE_GAUGE_SECONDS
    message = f"the last change must show its effect first: {duration(wait)} must pass"
    if ctx.elapsed(ctx.memory.changed_at) < wait or not _seen(ctx):
        return hold(ctx, Reason.HOLD_SETTLING, message, proposal.limited)
    if grows(proposal, ctx) and ctx.elapsed(ctx.memory.capacity_at) < SETTLE_CAPACITY_SECONDS:
        message = f"a new replica first works off the queue: {duration(SETTLE_CAPACITY_SECONDS)} must pass"
        return keep_replicas(proposal, ctx, reason=Reason.HOLD_SETTLING, message=message)
    if grows(proposal, ctx) and ctx.memory.drain_seconds() <= DRAIN_SECONDS:
        message = f"the queue shrinks and will be gone within {duration(DRAIN_SECONDS)}: no replica is added for it"
        return keep_replicas(proposal, ctx, reason=Reason.HOLD_SETTLING, message=message)
    return proposal


def _seen(ctx: Context) -> bool:
    """Whether the finding shows the present state. Look-back windows do once they reach back behind the last relief; an
    overload is read from gauges and demand, whatever else is found."""
    if ctx.plan is not None and ctx.plan.opened:
        return True
    return not ctx.finding.from_windows or ctx.elapsed(ctx.memory.relieved_at) >= SETTLE_WINDOW_SECONDS


def _only_demanded(proposal: Proposal, ctx: Context) -> Proposal:
    """The growth that demand proves, and live limits that measured steps make smaller, without what old misses ask."""
    right = ctx.plan.levers if ctx.plan is not None else ctx.current
    demanded = min(proposal.demanded, proposal.levers.replicas)
    levers = lowered(ctx.current, right).with_replicas(max(demanded, ctx.current.replicas))
    return dataclasses.replace(proposal, levers=levers)


def no_resize_pending(proposal: Proposal, ctx: Context) -> Proposal:
    """A live limit is not changed again before every pod has shown the last one."""
    if not ctx.pool.resizing or not moves_live(proposal, ctx):
        return proposal
    message = "the last live resize has not reached every pod yet"
    return keep_live(proposal, ctx, reason=Reason.HOLD_RESIZING, message=message)


def only_scaler(proposal: Proposal, ctx: Context) -> Proposal:
    """A pool that something else scales is reported, never fought over."""
    other = ctx.pool.external_scaler
    if other is None:
        return proposal
    message = (
        f"replicas are set by {other!r}: they are left to it; remove that scaler, or set spec.scaling.mode to Fixed "
        "or Paused"
    )
    limit = Limit(Reason.HOLD_EXTERNAL_SCALER, message)
    if proposal.levers.replicas == ctx.current.replicas:
        return dataclasses.replace(proposal, limited=limit)
    return keep_replicas(proposal, ctx, reason=Reason.HOLD_EXTERNAL_SCALER, message=message, limited=True)


def bounded(proposal: Proposal, ctx: Context) -> Proposal:
    """The spec's bounds have the first word on growth, and name the field to change."""
    bounds = ctx.spec.scaling.replicas
    if proposal.levers.replicas <= bounds.max:
        return proposal
    message = f"more than {count(bounds.max, 'replica')} are needed: raise spec.scaling.replicas.max ({bounds.max})"
    limit = Limit(Reason.AT_MAXIMUM, message)
    if ctx.current.replicas >= bounds.max:
        return keep_replicas(proposal, ctx, reason=Reason.AT_MAXIMUM, message=message, limited=True)
    return dataclasses.replace(proposal.with_levers(replicas=bounds.max), limited=limit)


#: In this order: what concerns every change, then a shrink, then a growth, then who else has a hand on the levers.
#: Unknown metrics need no guard: nothing is proposed from them.
GUARDS: tuple[Guard, ...] = (
    traffic_before_growth,
    bounded,
    no_rollout,
    stabilized,
    kept_for_a_return,
    evidence,
    calm_before_relaxing,
    release_stuck,
    schedulable,
    started,
    settled,
    no_resize_pending,
    only_scaler,
)

#: The others look at what changes: where nothing does, as at nearly every tick, there is nothing to take out.
GUARDS_OF_HOLDS: tuple[Guard, ...] = (bounded, release_stuck, only_scaler)


def guarded(proposal: Proposal, ctx: Context) -> Proposal:
    """The proposal after every guard."""
    for guard in GUARDS_OF_HOLDS if proposal.levers == ctx.current else GUARDS:
        proposal = guard(proposal, ctx)
    return proposal
