"""From plan and finding to the levers: demand sizes the pool before it hurts, the finding says what else hurts."""

from __future__ import annotations

import dataclasses
import math

from tierkeeper.scaling.capacity import GROW_FACTOR
from tierkeeper.scaling.context import (
    SETTLE_WINDOW_SECONDS,
    STARTS_BEFORE_TURNING,
    Context,
    Proposal,
    has_room,
)
from tierkeeper.scaling.diagnose import KV_FULL, Diagnosis
from tierkeeper.scaling.guards import SETTLE_GAUGE_SECONDS
from tierkeeper.scaling.levers import (
    CUT_FACTOR,
    drop_unschedulable,
    hold,
    infeasible,
    lately,
    lower_budget,
    lowered,
    raise_cap,
    react,
    starting_levers,
    steady,
)
from tierkeeper.scaling.model import Levers, Limit, Reason
from tierkeeper.scaling.sizing import Plan
from tierkeeper.scaling.wording import count, duration
from tierkeeper.slo.burn import CONTROL_WINDOWS
from tierkeeper.slo.model import Sli

#: A replica more for what burns without the plan knowing why, one at a time.
STEP = 1

#: A calm pool that somebody sized before is not grown on the model alone: its own minutes come first.
OWN_MINUTES = 3.0

#: Right after a shrink a calm pool grows again only for a need this far above it: a tenth more load costs four times
#: the misses (1.1 ** 14) for the minutes of a start-up, and spares a swing. The last minute must show it: of the looks
#: at a scrape or two one in 160 is a false alarm, which is dozens a day.
TURN_MARGIN = 1.1

#: The cap binds where this share of it runs.
BINDS = 0.8

#: A cap this many times the right one lets a burst take twice the TPOT target.
HOLDS_NOTHING = 2.0

#: What an overload may show itself as.
FLOODED = frozenset({Diagnosis.QUEUE_BOUND, Diagnosis.PREFILL_BOUND, Diagnosis.TPOT_PREFILL, Diagnosis.TPOT_BATCH})

#: From this floor on (in budgets) the objective is out of reach at any load.
HOPELESS_FLOOR = 1.0


def propose(ctx: Context) -> Proposal:
    """What plan and finding ask for, if nothing stood in the way."""
    plan = ctx.plan
    if plan is None:
        return react(ctx)
    moved = _open(ctx, plan) if plan.opened else _close(ctx, plan)
    if moved is not None:
        return moved
    match ctx.finding.diagnosis:
        case Diagnosis.HEALTHY:
            return drop_unschedulable(ctx) or _grow(ctx, plan) or _tune(ctx, plan) or _shrink(ctx, plan) or steady(ctx)
        case _ if ctx.finding.presses and not _urgent(ctx):
            return _grow(ctx, plan) or _tune(ctx, plan) or _expected(ctx)
        case _ if (sli := _hopeless(ctx, plan)) is not None:
            return _grow(ctx, plan) or infeasible(ctx, sli)
        case diagnosis if plan.opened and diagnosis in FLOODED:
            return _more(ctx, plan, Reason.QUEUE_BOUND_ADD_REPLICAS, cause="the limits stand open for a backlog")
        case Diagnosis.QUEUE_BOUND:
            return _queue(ctx, plan)
        case Diagnosis.PREFILL_BOUND:
            return _more(ctx, plan, Reason.PREFILL_BOUND_ADD_REPLICAS)
        case Diagnosis.TPOT_PREFILL | Diagnosis.TPOT_BATCH:
            return _tpot(ctx, plan)
        case _:
            return react(ctx)


def _open(ctx: Context, plan: Plan) -> Proposal | None:
    """The limits of an overload, with the replicas that demand asks for; None where they do not help, or stand."""
    if ctx.finding.diagnosis not in FLOODED or plan.levers == ctx.current:
        return None
    if plan.levers.max_num_seqs > ctx.current.max_num_seqs and (ctx.traffic.kv_cache_usage or 0.0) >= KV_FULL:
        return None
    wanted = demanded(ctx, plan)
    why = (
        f"{_demand(ctx, plan)}: whoever waits is late whatever the cap is, so throughput goes before TPOT until the "
        "backlog is gone"
    )
    raises = plan.levers.max_num_seqs > ctx.current.max_num_seqs
    reason = Reason.QUEUE_BOUND_RAISE_CAP if raises else Reason.TUNE_LIMITS
    return Proposal(plan.levers.with_replicas(wanted), reason, why, demanded=wanted)


def _close(ctx: Context, plan: Plan) -> Proposal | None:
    """The limits that keep TPOT, at once when an overload and its backlog are over."""
    if not ctx.memory.stands_open or plan.levers == ctx.current:
        return None
    if ctx.finding.diagnosis is Diagnosis.KV_PRESSURE or ctx.elapsed(ctx.memory.live_at) < SETTLE_GAUGE_SECONDS:
        return None
    wanted = grown.demanded if (grown := _grow(ctx, plan)) is not None else ctx.current.replicas
    levers = plan.levers.with_replicas(wanted)
    return Proposal(levers, Reason.TUNE_LIMITS, "the backlog is gone and TPOT comes first again", demanded=wanted)


def _hopeless(ctx: Context, plan: Plan) -> Sli | None:
    """The target that burns and that no replica more would keep; a queue that stands is another matter, but who waits
    for the step under way waits too long for a target that is shorter."""
    match ctx.finding.diagnosis:
        case Diagnosis.TPOT_PREFILL | Diagnosis.TPOT_BATCH:
            sli = Sli.TPOT
        case Diagnosis.PREFILL_BOUND:
            sli = Sli.TTFT
        case Diagnosis.QUEUE_BOUND if ctx.traffic.waiting_floor <= 0:
            sli = Sli.TTFT
        case _:
            return None
    return sli if sli in plan.out_of_reach else None


def _urgent(ctx: Context) -> bool:
    """Whether what burns calls for more than the plan: a queue that stands through two scrapes, or a burn of both fast
    windows. A budget that is being spent burns a little in some minute or other; that is weighed, not reacted to."""
    if ctx.finding.diagnosis in (Diagnosis.KV_PRESSURE, Diagnosis.INFEASIBLE):
        return True
    if ctx.finding.diagnosis is Diagnosis.QUEUE_BOUND and not ctx.finding.from_windows and ctx.queue_stands:
        return True
    pair, objective = CONTROL_WINDOWS.pairs[0], ctx.spec.objective
    if objective is None:
        return False
    asked = pair.error_ratio(objective.error_budget)
    for slo in ctx.assessment.slos.values():
        shown = slo.window(pair.short_seconds), slo.window(pair.long_seconds)
        if all(window is not None and window.ratio.point >= asked for window in shown):
            return True
    return False


def _expected(ctx: Context) -> Proposal:
    message = "some requests miss their target, within what the error budget is there for: nothing is added for them"
    return hold(ctx, Reason.STEADY, message)


def demanded(ctx: Context, plan: Plan) -> int:
    """Replicas that demand asks for, not below what there are. A pool may double in one tick, and again at the next."""
    current = ctx.current.replicas
    return min(max(plan.grow_to, current), max(current * GROW_FACTOR, current + 1))


def _grow(ctx: Context, plan: Plan) -> Proposal | None:
    wanted = demanded(ctx, plan)
    young = ctx.memory.knowledge.belief.minutes < OWN_MINUTES
    if wanted <= ctx.current.replicas or (young and ctx.finding.calm):
        return None
    if _has_just_shrunk(ctx) and plan.settled_need <= TURN_MARGIN * ctx.current.replicas:
        return None
    limits = ctx.current if has_room(ctx.assessment.tpot) else lowered(ctx.current, plan.levers)
    levers = limits.with_replicas(wanted)
    return Proposal(levers, Reason.DEMAND_ADD_REPLICAS, _demand(ctx, plan), demanded=wanted)


def _has_just_shrunk(ctx: Context) -> bool:
    """Whether the last change of the replicas was a shrink, less than two leads ago: a lead is a start-up and the half
    minute that rates are old, 150 s and so 5 min while no start was measured."""
    shrunk, grown = ctx.memory.replicas_at, ctx.memory.grown_at
    if shrunk is None or (grown is not None and grown >= shrunk):
        return False
    return ctx.elapsed(shrunk) < STARTS_BEFORE_TURNING * ctx.memory.lead_seconds


def _demand(ctx: Context, plan: Plan) -> str:
    said = f"{plan.rate:.3g} requests/s arrive"
    if plan.coming > plan.rate * 1.01:
        lead = duration(round(ctx.memory.lead_seconds, -1))
        said += f", {plan.coming:.3g} are expected in {lead} by {plan.way}"
    here, carries = ctx.current.replicas, "carries" if ctx.current.replicas == 1 else "carry"
    return f"{said}, and {count(here, 'replica')} {carries} {_carries(ctx, plan):.3g} within the objectives"


def _carries(ctx: Context, plan: Plan) -> float:
    """Requests a second that the replicas there are (those that start included) carry within the budget."""
    return plan.coming * ctx.current.replicas / plan.need if plan.need > 0 else 0.0


def _queue(ctx: Context, plan: Plan) -> Proposal:
    """A larger cap where it is to blame and TPOT allows, and the replicas that demand asks for; else one more."""
    raised = raise_cap(ctx)
    wanted = demanded(ctx, plan)
    if raised is not None:
        return dataclasses.replace(raised.with_levers(replicas=wanted), demanded=wanted)
    return _more(ctx, plan, Reason.QUEUE_BOUND_ADD_REPLICAS)


def _more(ctx: Context, plan: Plan, reason: Reason, *, cause: str | None = None) -> Proposal:
    wanted = demanded(ctx, plan)
    if plan.floor >= HOPELESS_FLOOR and wanted <= ctx.current.replicas:
        message = (
            f"{plan.floor:.1f}x the error budget is missed however little load there is: more replicas cannot help; "
            "loosen the objective, give each replica more GPUs or serve shorter prompts"
        )
        return hold(ctx, Reason.INFEASIBLE, message, Limit(Reason.INFEASIBLE, message))
    levers = ctx.current.with_replicas(max(wanted, ctx.current.replicas + STEP))
    return Proposal(levers, reason, f"{cause or ctx.finding.cause}, {_demand(ctx, plan)}", demanded=wanted)


def _tpot(ctx: Context, plan: Plan) -> Proposal:
    """The plan's smaller limits at once; where they are set already, a smaller budget, a smaller batch, a replica."""
    right, wanted, cap = lowered(ctx.current, plan.levers), demanded(ctx, plan), ctx.current.max_num_seqs
    levers = right.with_replicas(wanted)
    if ctx.live_reachable and right != ctx.current:
        reason = Reason.TPOT_LOWER_CAP if right.max_num_seqs < cap else Reason.TPOT_LOWER_TOKEN_BUDGET
        return Proposal(levers, reason, ctx.finding.cause, demanded=wanted)
    # Where no budget keeps steps within the target the plan has the widest: half of it would only cost throughput.
    lower = lower_budget(ctx) if ctx.finding.diagnosis is Diagnosis.TPOT_PREFILL and _has_budget(ctx) else None
    if lower is not None:
        return dataclasses.replace(lower.with_levers(replicas=wanted), demanded=wanted)
    smaller = max(ctx.spec.scaling.max_num_seqs.min, math.floor(cap * CUT_FACTOR))
    # Under more load than the pool carries a smaller batch only carries less of it: replicas are the remedy.
    overloaded = plan.strain > plan.allowed
    if ctx.live_reachable and not overloaded and ctx.batch >= BINDS * cap and smaller < cap:
        levers = dataclasses.replace(ctx.current, max_num_seqs=smaller, replicas=wanted)
        return Proposal(levers, Reason.TPOT_LOWER_CAP, ctx.finding.cause, demanded=wanted)
    return _more(ctx, plan, Reason.TPOT_ADD_REPLICAS)


def _has_budget(ctx: Context) -> bool:
    widest, tokens = starting_levers(ctx.spec).max_num_batched_tokens, ctx.current.max_num_batched_tokens
    return widest is not None and tokens is not None and tokens < widest


def _tune(ctx: Context, plan: Plan) -> Proposal | None:
    """The plan's live limits where they spare a replica or a promise comes near its target; else they stay: what is
    moved without need is noise to who runs the pool, and restarts whoever cannot resize live.

    Not even a frozen budget forbids it: the replicas are planned for the right limits, and wrong ones spend the rest.
    """
    if plan.opened or not ctx.live_reachable or ctx.elapsed(ctx.memory.live_at) < SETTLE_WINDOW_SECONDS:
        return None
    now, tpot_room = ctx.current, has_room(ctx.assessment.tpot)
    levers = Levers(now.replicas, _tuned_cap(ctx, plan, tpot_room), _tuned_tokens(ctx, plan, tpot_room))
    if levers == now:
        return None
    why = f"measured steps of this mix allow a cap of {plan.levers.max_num_seqs} within the TPOT target"
    return Proposal(levers, Reason.TUNE_LIMITS, why)


def _tuned_cap(ctx: Context, plan: Plan, tpot_room: bool) -> int:
    """Up where that spares a replica or the cap binds; down where the load fits and TPOT comes near its target, or the
    cap is so large that it would hold nothing back in a burst."""
    cap, right = ctx.current.max_num_seqs, plan.levers.max_num_seqs
    batch = ctx.worst_load / ctx.serving
    if right > cap:
        spares = min(plan.grow_to_as_set, ctx.current.replicas + 1) > plan.grow_to
        spares = spares and plan.grow_to_as_set > ctx.spec.scaling.replicas.min
        return right if spares or batch > BINDS * cap else cap
    needed = not tpot_room or cap >= HOLDS_NOTHING * right
    return right if needed and batch <= BINDS * right else cap


def _tuned_tokens(ctx: Context, plan: Plan, tpot_room: bool) -> int | None:
    """Down where TPOT comes near its target and TTFT has room, up where TTFT does or a budget is of no use."""
    tokens, right = ctx.current.max_num_batched_tokens, plan.levers.max_num_batched_tokens
    if tokens is None or right is None or right == tokens:
        return tokens
    ttft_room = has_room(ctx.assessment.ttft)
    if right < tokens:
        return right if ttft_room and not tpot_room else tokens
    return right if not (ttft_room and tpot_room) else tokens


def _shrink(ctx: Context, plan: Plan) -> Proposal | None:
    if plan.shrink_to >= ctx.current.replicas:
        return None
    why = f"{ctx.finding.cause}{lately(ctx)}, {_demand(ctx, plan)}"
    return Proposal(ctx.current.with_replicas(plan.shrink_to), Reason.SCALE_DOWN, why)
