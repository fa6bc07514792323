"""From a finding to the levers it asks for. What may really be pulled is the guards' affair."""

from __future__ import annotations

import dataclasses
import math

from tierkeeper.scaling.capacity import SHRINK_UTILIZATION, minute_burn, replicas_for_load, smallest_carrying
from tierkeeper.scaling.context import Context, Proposal, has_room
from tierkeeper.scaling.diagnose import KV_FULL, Diagnosis, decoding_lately
from tierkeeper.scaling.model import Levers, Limit, Reason
from tierkeeper.scaling.wording import count, duration, milliseconds
from tierkeeper.slo.model import Sli
from tierkeeper.tier import TierSpec

#: One raise of max-num-seqs: 16 -> 24 -> 36 reaches the double in two steps and costs at most half more TPOT each.
RAISE_FACTOR = 1.5

#: One cut of max-num-seqs; where P99 TPOT is twice the target or more, the cut is by half.
CUT_FACTOR = 0.75
DEEP_CUT_FACTOR = 0.5
DEEP_CUT_OVERSHOOT = 2.0

#: One step of the token budget: four halvings, 2048 to 128, took P99 ITL beside long prompts on vLLM 0.32 from 160 to
#: 18 ms, for 1.6 times their TTFT.
BUDGET_FACTOR = 2

#: A queue is the cap's doing when at least half of the slots are taken; otherwise it waits for KV cache or prefill.
CAP_BOUND_SHARE = 0.5

#: A pod that fails, or a preemption storm, within this time of a raise of max-num-seqs is blamed on the raise.
RAISE_BLAME_SECONDS = 120.0


def starting_levers(spec: TierSpec) -> Levers:
    """Where a tier starts: fewest replicas, the engine's own limits within bounds."""
    budget = spec.scaling.max_num_batched_tokens
    return Levers(
        replicas=spec.scaling.replicas.min,
        max_num_seqs=spec.scaling.max_num_seqs.clamp(spec.engine.max_num_seqs),
        max_num_batched_tokens=None
        if budget is None
        else budget.clamp(spec.engine.max_num_batched_tokens or budget.max),
    )


def lowered(now: Levers, right: Levers) -> Levers:
    """The replicas there are with the smaller of each live limit."""
    tokens = now.max_num_batched_tokens
    if tokens is not None and right.max_num_batched_tokens is not None:
        tokens = min(tokens, right.max_num_batched_tokens)
    return Levers(now.replicas, min(now.max_num_seqs, right.max_num_seqs), tokens)


def within_bounds(spec: TierSpec, levers: Levers) -> Levers:
    """The nearest levers that the spec allows; a token budget it does not bound is None."""
    budget = spec.scaling.max_num_batched_tokens
    tokens = levers.max_num_batched_tokens
    if budget is None:
        tokens = None
    else:
        tokens = starting_levers(spec).max_num_batched_tokens if tokens is None else budget.clamp(tokens)
    replicas, cap = spec.scaling.replicas.clamp(levers.replicas), spec.scaling.max_num_seqs.clamp(levers.max_num_seqs)
    if replicas == levers.replicas and cap == levers.max_num_seqs and tokens == levers.max_num_batched_tokens:
        return levers  # itself, as at nearly every tick: who compares the two is done at once
    return Levers(replicas, cap, tokens)


def react(ctx: Context) -> Proposal:
    """What the finding asks for by gauges and burn alone, if nothing stood in the way."""
    match ctx.finding.diagnosis:
        case Diagnosis.UNKNOWN:
            return hold(ctx, Reason.HOLD_METRICS_UNKNOWN, f"metrics are unknown, nothing moves: {ctx.finding.cause}")
        case Diagnosis.INFEASIBLE:
            return infeasible(ctx, ctx.finding.sli or Sli.TTFT)
        case Diagnosis.KV_PRESSURE:
            return _kv_pressure(ctx)
        case Diagnosis.TPOT_PREFILL | Diagnosis.TPOT_BATCH:
            return _tpot(ctx)
        case Diagnosis.QUEUE_BOUND:
            return raise_cap(ctx) or _queue_replicas(ctx)
        case Diagnosis.PREFILL_BOUND:
            return _add_replicas(ctx, Reason.PREFILL_BOUND_ADD_REPLICAS, ctx.current.replicas + 1)
        case Diagnosis.IDLE | Diagnosis.HEALTHY:
            return drop_unschedulable(ctx) or _shrink(ctx) or _relax(ctx) or steady(ctx)


def hold(ctx: Context, reason: Reason, message: str, limited: Limit | None = None) -> Proposal:
    return Proposal(levers=ctx.current, reason=reason, why=message, limited=limited)


def infeasible(ctx: Context, sli: Sli) -> Proposal:
    """Nothing, since no lever brings this latency within its target, and what the user can do."""
    slo = ctx.assessment.slos[sli]
    field = "spec.slo.ttftMilliseconds" if sli is Sli.TTFT else "spec.slo.tpotMilliseconds"
    message = (
        f"a request that runs nearly alone misses the {sli} target of {milliseconds(slo.threshold_seconds)}: no lever "
        f"can help, so none is pulled; raise {field}, or give each replica more GPUs or a smaller model"
    )
    return hold(ctx, Reason.INFEASIBLE, message, Limit(Reason.INFEASIBLE, message))


def raise_cap(ctx: Context) -> Proposal | None:
    """A larger batch, as far as TPOT, the spec and bad experience allow; None where that is no remedy."""
    cap, traffic = ctx.current.max_num_seqs, ctx.traffic
    if not ctx.live_reachable or (traffic.kv_cache_usage or 0.0) >= KV_FULL:
        return None
    if traffic.running < CAP_BOUND_SHARE * cap * ctx.serving:
        return None
    tpot, planned = ctx.assessment.tpot, ctx.plan.levers.max_num_seqs if ctx.plan is not None else 0
    wanted = min(max(math.ceil(cap * RAISE_FACTOR), planned), ctx.cap_ceiling())
    measured = planned if tpot is None or minute_burn(tpot) < 1.0 else 0
    while wanted > max(cap, measured) and not ctx.tpot_allows(wanted):
        wanted -= 1
    if wanted <= cap:
        return None
    return Proposal(
        levers=dataclasses.replace(ctx.current, max_num_seqs=wanted),
        reason=Reason.QUEUE_BOUND_RAISE_CAP,
        why=f"{ctx.finding.cause}{_tpot_room(ctx)}",
    )


def _tpot_room(ctx: Context) -> str:
    tpot = ctx.assessment.tpot
    if tpot is None or tpot.p99 is None:
        return ", no TPOT is promised"
    return f", TPOT P99 {milliseconds(tpot.p99.seconds)} has room to {milliseconds(tpot.threshold_seconds)}"


def _queue_replicas(ctx: Context) -> Proposal:
    wanted = replicas_for_load(ctx, cap=ctx.current.max_num_seqs)
    return _add_replicas(ctx, Reason.QUEUE_BOUND_ADD_REPLICAS, wanted)


def _add_replicas(ctx: Context, reason: Reason, wanted: int) -> Proposal:
    why = f"{ctx.finding.cause} at max-num-seqs {ctx.current.max_num_seqs}"
    return Proposal(ctx.current.with_replicas(wanted), reason, why)


def _tpot(ctx: Context) -> Proposal:
    if ctx.memory.queue_since is not None and ctx.assessment.ttft is not None:
        # Whoever waits is late whatever the cap is, see ``overload``: to an operator that has just started, a cap that
        # stands open for a backlog looks like one that is too large.
        return _queue_replicas(ctx)
    if ctx.finding.diagnosis is Diagnosis.TPOT_PREFILL and (lower := lower_budget(ctx)) is not None:
        return lower
    tpot = ctx.assessment.tpot
    deep = (
        tpot is not None
        and tpot.p99 is not None
        and not tpot.p99.at_or_above
        and tpot.p99.seconds >= DEEP_CUT_OVERSHOOT * tpot.threshold_seconds
    )
    factor = DEEP_CUT_FACTOR if deep else CUT_FACTOR
    return _lower_cap(ctx, factor, Reason.TPOT_LOWER_CAP, Reason.TPOT_ADD_REPLICAS)


def _kv_pressure(ctx: Context) -> Proposal:
    if (before := recent_raise(ctx)) is not None:
        return roll_back(ctx, before, ctx.finding.cause)
    return _lower_cap(ctx, CUT_FACTOR, Reason.KV_PRESSURE_LOWER_CAP, Reason.KV_PRESSURE_ADD_REPLICAS)


def recent_raise(ctx: Context) -> int | None:
    """The max-num-seqs to go back to where the last raise is to blame for what goes wrong now; None where it is not."""
    last = ctx.memory.last_raise
    if last is None or ctx.elapsed(last.at) >= RAISE_BLAME_SECONDS:
        return None
    before = ctx.spec.scaling.max_num_seqs.clamp(last.before)
    return before if before < ctx.current.max_num_seqs else None


def roll_back(ctx: Context, bound: int, cause: str) -> Proposal:
    return Proposal(
        levers=dataclasses.replace(ctx.current, max_num_seqs=bound),
        reason=Reason.ROLL_BACK_CAP,
        why=f"{cause} right after it was raised; it is not raised above {bound} again with this engine",
    )


def lower_budget(ctx: Context) -> Proposal | None:
    """A smaller token budget: prefill takes longer then, so TTFT needs room. Never below one token for a sequence."""
    bounds, budget = ctx.spec.scaling.max_num_batched_tokens, ctx.current.max_num_batched_tokens
    if bounds is None or budget is None or not ctx.live_reachable or not has_room(ctx.assessment.ttft):
        return None
    planned = ctx.plan.levers.max_num_batched_tokens if ctx.plan is not None else None
    wanted = max(bounds.min, ctx.current.max_num_seqs, min(budget // BUDGET_FACTOR, planned or budget))
    if wanted >= budget:
        return None
    levers = dataclasses.replace(ctx.current, max_num_batched_tokens=wanted)
    return Proposal(levers, Reason.TPOT_LOWER_TOKEN_BUDGET, f"{ctx.finding.cause}, TTFT has room")


def _lower_cap(ctx: Context, factor: float, lower: Reason, add: Reason) -> Proposal:
    """A smaller batch at once, and the replicas that pay for it. Without live resize a cut restarts the pool, so
    replicas are added first and the cut is left for when there are no more."""
    current, bounds = ctx.current, ctx.spec.scaling
    # What made tokens late is the batch of the last minute. A load that has gone since is not cut once more: half of
    # the 17 that ran a minute after an overload of 160 would be a cap of 8, and the next queue.
    batch = min(current.max_num_seqs, math.ceil(max(ctx.batch, decoding_lately(ctx.assessment) / ctx.serving)))
    cap = max(bounds.max_num_seqs.min, math.floor(batch * factor))
    restart = not ctx.live_reachable
    if cap >= current.max_num_seqs or (restart and current.replicas < bounds.replicas.max):
        return _add_replicas(ctx, add, replicas_for_load(ctx, cap=current.max_num_seqs))
    pays = ctx.load > cap * current.replicas
    wanted = replicas_for_load(ctx, cap=cap) if pays else current.replicas
    return Proposal(dataclasses.replace(current, max_num_seqs=cap, replicas=wanted), lower, ctx.finding.cause)


def drop_unschedulable(ctx: Context) -> Proposal | None:
    """Replicas that found no node carry nothing: when calm they go first and all at once. An idle pool goes to its
    minimum anyway."""
    if ctx.finding.diagnosis is Diagnosis.IDLE:
        return None
    replicas = max(ctx.spec.scaling.replicas.min, ctx.current.replicas - ctx.pool.unschedulable)
    if ctx.pool.unschedulable <= 0 or replicas >= ctx.current.replicas:
        return None
    why = f"they have no node and are not needed, {ctx.finding.cause}"
    return Proposal(ctx.current.with_replicas(replicas), Reason.RELEASE_UNSCHEDULABLE, why)


def _shrink(ctx: Context) -> Proposal | None:
    """The replicas that this load needs, whatever the step: the sliding maximum and the guards do the rest."""
    current = ctx.current
    if ctx.finding.diagnosis is Diagnosis.IDLE:
        least = ctx.spec.scaling.replicas.min
        if current.replicas <= least:
            return None
        return Proposal(current.with_replicas(least), Reason.IDLE, f"{ctx.finding.cause}{lately(ctx)}")
    replicas = smallest_carrying(ctx)
    if replicas >= current.replicas:
        return None
    used = ctx.worst_load / (current.max_num_seqs * current.replicas)
    why = f"{ctx.finding.cause}{lately(ctx)}, {used:.0%} of the slots are taken"
    return Proposal(current.with_replicas(replicas), Reason.SCALE_DOWN, why)


def lately(ctx: Context) -> str:
    return f" for {duration(ctx.window)}"


def _relax(ctx: Context) -> Proposal | None:
    """One step of the live levers back to where the tier starts."""
    if not ctx.live_reachable:
        return None
    return _relax_budget(ctx) or _restore_cap(ctx)


def _relax_budget(ctx: Context) -> Proposal | None:
    budget, start = ctx.current.max_num_batched_tokens, starting_levers(ctx.spec).max_num_batched_tokens
    if budget is None or start is None or budget >= start or not has_room(ctx.assessment.tpot):
        return None
    wanted = min(start, budget * BUDGET_FACTOR)
    levers = dataclasses.replace(ctx.current, max_num_batched_tokens=wanted)
    why = f"calm{lately(ctx)} and TPOT has room, it goes back towards {start}"
    return Proposal(levers, Reason.RELAX_TOKEN_BUDGET, why)


def _restore_cap(ctx: Context) -> Proposal | None:
    cap, start = ctx.current.max_num_seqs, starting_levers(ctx.spec).max_num_seqs
    if cap < start:
        wanted = min(math.ceil(cap * RAISE_FACTOR), start, ctx.cap_ceiling())
        allowed = wanted > cap and ctx.tpot_allows(wanted)
    else:
        wanted = max(math.floor(cap / RAISE_FACTOR), start)
        allowed = wanted < cap and ctx.worst_load <= SHRINK_UTILIZATION * wanted * ctx.serving
    if not allowed:
        return None
    why = f"calm{lately(ctx)} and the load fits, it goes back towards {start}"
    return Proposal(dataclasses.replace(ctx.current, max_num_seqs=wanted), Reason.RESTORE_CAP, why)


def steady(ctx: Context) -> Proposal:
    """Nothing to do. The message has no live figure, so that an unchanged pool is an unchanged text."""
    setting = f"{count(ctx.current.replicas, 'replica')} at max-num-seqs {ctx.current.max_num_seqs}"
    if ctx.finding.diagnosis is Diagnosis.IDLE:
        return hold(ctx, Reason.IDLE, f"idle with {setting}: nothing runs, waits or arrives")
    if ctx.spec.objective is None:
        return hold(ctx, Reason.NO_OBJECTIVE, f"steady with {setting}: no objective is promised and no queue stands")
    least = ctx.spec.scaling.replicas.min
    if ctx.current.replicas > least and ctx.worst_load <= ctx.current.max_num_seqs * ctx.current.replicas / 2:
        message = f"stays with {setting}: with one less, the others could not carry the load within the objectives"
        return hold(ctx, Reason.HOLD_SURVIVORS, message)
    return hold(ctx, Reason.STEADY, f"steady with {setting}: every objective holds and no queue stands")
