"""One tick of the control law for one tier: what is seen in, a decision and the next memory out."""

from __future__ import annotations

from tierkeeper.engine.latency import LLAMA_8B_2XA100, Profile
from tierkeeper.scaling import returns
from tierkeeper.scaling.context import Context, Proposal, changed_levers
from tierkeeper.scaling.diagnose import Diagnosis, diagnose, queue_too_long
from tierkeeper.scaling.evolve import evolve
from tierkeeper.scaling.guards import guarded
from tierkeeper.scaling.inputs import Inputs
from tierkeeper.scaling.levers import hold, recent_raise, roll_back, starting_levers, within_bounds
from tierkeeper.scaling.memory import (
    CapMark,
    CapRaise,
    Memory,
    Strain,
    Words,
    observe,
    remember_recommendation,
    since,
)
from tierkeeper.scaling.model import Decision, Lever, Levers, PoolState, Reason
from tierkeeper.scaling.planned import propose
from tierkeeper.scaling.sizing import Plan, plan
from tierkeeper.scaling.wording import count
from tierkeeper.slo.model import Assessment
from tierkeeper.tier import Mode, TierSpec

#: The shortest look-back window: what moved a figure for a moment has left it by then.
WORDS_SECONDS = 60.0

_MARKS_CAP = frozenset({Reason.TPOT_LOWER_CAP, Reason.KV_PRESSURE_LOWER_CAP})


def decide(
    *,
    now: float,
    spec: TierSpec,
    assessment: Assessment,
    pool: PoolState,
    memory: Memory,
    profile: Profile = LLAMA_8B_2XA100,
) -> tuple[Decision, Memory]:
    """Decides one tick of one tier. Pure: the same arguments give the same answer.

    ``now`` is monotonic seconds, on the clock of ``assessment.clean_since`` and of the memory. In mode Recommend the
    decision is what Auto would do, and the memory takes nothing of it for done. ``profile`` gives the shape of the
    engine's latency; its speeds are measured. Raises nothing.
    """
    memory = observe(memory, now=now, spec=spec, assessment=assessment, pool=pool, profile=profile)
    profile = memory.knowledge.engine.shaped(profile)
    queued = assessment.state.known and queue_too_long(spec, assessment.traffic)
    if queued or memory.queue_since is not None:
        queued_at = now if queued else memory.queued_at
        memory = evolve(memory, queue_since=since(memory.queue_since, queued, now), queued_at=queued_at)
    finding = diagnose(now=now, assessment=assessment, pool=pool, memory=memory, profile=profile)
    calm_since = since(memory.calm_since, finding.calm, now)
    if finding.presses or calm_since != memory.calm_since:
        memory = evolve(memory, calm_since=calm_since, pressed_at=now if finding.presses else memory.pressed_at)
    ctx = Context(now=now, spec=spec, assessment=assessment, pool=pool, memory=memory, finding=finding, profile=profile)
    sized = _plan(ctx)
    if sized is not None:
        memory = _remember_peak(ctx, sized)
    ctx = evolve(ctx, plan=sized, memory=memory)
    proposal = _overriding(ctx)
    if proposal is None:
        wanted = propose(ctx)
        replicas = spec.scaling.replicas.clamp(_enough(ctx, wanted))
        memory = remember_recommendation(
            memory, now=now, replicas=replicas, current=ctx.current.replicas, window_seconds=ctx.shrink_window
        )
        ctx = evolve(ctx, memory=memory)
        proposal = guarded(wanted, ctx)
    decision = Decision(
        levers=proposal.levers,
        reason=proposal.reason,
        message=_say(proposal, ctx),
        changed=changed_levers(pool.current, proposal.levers),
        limited=proposal.limited,
        basis=Inputs(assessment, ctx.plan, pool.ready),
    )
    words = _words(ctx, decision)
    memory = _remember(ctx, decision, words)
    if words is not None and (words.reason, words.message) != (decision.reason, decision.message):
        decision = evolve(decision, reason=words.reason, message=words.message)
    return decision, memory


def _plan(ctx: Context) -> Plan | None:
    if not ctx.assessment.state.known:
        return None
    return plan(
        spec=ctx.spec,
        assessment=ctx.assessment,
        pool=ctx.pool,
        knowledge=ctx.memory.knowledge,
        now=ctx.now,
        lead_seconds=ctx.memory.lead_seconds,
        live=ctx.live_reachable,
        cap_ceiling=ctx.cap_ceiling(),
        tokens_ceiling=ctx.tokens_ceiling(),
        open_ceiling=ctx.cap_ceiling(tpot=False),
        opened=ctx.memory.stands_open,
    )


def _remember_peak(ctx: Context, plan: Plan) -> Memory:
    memory = ctx.memory
    seen = returns.observe(
        memory.returns,
        now=ctx.now,
        needed=plan.lasting,
        serving=ctx.serving,
        queued_seconds=ctx.queued_seconds,
        window_seconds=ctx.shrink_window,
    )
    return memory if seen is memory.returns else evolve(memory, returns=seen)


def _enough(ctx: Context, wanted: Proposal) -> int:
    """How many replicas this tick would have been content with: what a later shrink is held against."""
    if ctx.plan is None or ctx.finding.diagnosis is Diagnosis.IDLE:
        return wanted.levers.replicas
    return ctx.plan.shrink_to if ctx.finding.calm else max(wanted.levers.replicas, ctx.plan.shrink_to)


def _words(ctx: Context, decision: Decision) -> Words | None:
    """What a calm pool that changes nothing says; None where it is not calm or something changes.

    Load is noisy: near some threshold the reason to hold would be another one at every tick. So one gives way to the
    next only when it has not been right for a minute.
    """
    if decision.changed or not ctx.finding.calm or ctx.spec.scaling.mode is Mode.PAUSED:
        return None
    now, said = ctx.now, ctx.memory.words
    right = Words(decision.reason, decision.message, ctx.current, wanted_at=now)
    if said is None or said.levers != ctx.current or ctx.elapsed(said.wanted_at) >= WORDS_SECONDS:
        return right
    return right if (said.reason, said.message) == (right.reason, right.message) else said


def _overriding(ctx: Context) -> Proposal | None:
    """What comes before any wish: the mode, the spec's bounds, and a raise that killed a pod."""
    scaling = ctx.spec.scaling
    if scaling.mode is Mode.PAUSED:
        return hold(ctx, Reason.PAUSED, "paused by spec.scaling.mode: nothing is changed")
    if scaling.mode is Mode.FIXED:
        start = starting_levers(ctx.spec)
        why = f"spec.scaling.mode is Fixed: {count(start.replicas, 'replica')} at max-num-seqs {start.max_num_seqs}"
        return Proposal(_leave_to_scaler(ctx, start), Reason.FIXED, why)
    bounded = _leave_to_scaler(ctx, within_bounds(ctx.spec, ctx.current))
    if bounded is not ctx.current and bounded != ctx.current:
        return Proposal(bounded, Reason.BACK_IN_BOUNDS, "the spec allows no other value")
    before, last = recent_raise(ctx), ctx.memory.last_raise
    if before is None or last is None or ctx.pool.failing <= last.failing or ctx.pool.rolling_out:
        return None
    return roll_back(ctx, before, f"{count(ctx.pool.failing - last.failing, 'pod')} failed")


def _leave_to_scaler(ctx: Context, levers: Levers) -> Levers:
    """Replicas that something else sets stay as they are."""
    if ctx.pool.external_scaler is None:
        return levers
    return levers.with_replicas(ctx.current.replicas)


def _say(proposal: Proposal, ctx: Context) -> str:
    """The whole sentence: what changes, why, and what another hand did meanwhile."""
    before, after = ctx.current, proposal.levers
    changes = []
    if after.max_num_seqs != before.max_num_seqs:
        verb = "raise" if after.max_num_seqs > before.max_num_seqs else "lower"
        changes.append(f"{verb} max-num-seqs {before.max_num_seqs} → {after.max_num_seqs}")
    if after.max_num_batched_tokens != before.max_num_batched_tokens:
        changes.append(f"set the token budget {_tokens(before)} → {_tokens(after)}")
    if after.replicas != before.replicas:
        verb = "add" if after.replicas > before.replicas else "remove"
        number = count(abs(after.replicas - before.replicas), "replica")
        changes.append(f"{verb} {number} {before.replicas} → {after.replicas}")
    said = f"{' and '.join(changes)}: {proposal.why}" if changes else proposal.why
    return f"{said}; {ctx.memory.drift}" if ctx.memory.drift else said


def _tokens(levers: Levers) -> str:
    return "of the engine" if levers.max_num_batched_tokens is None else str(levers.max_num_batched_tokens)


def _remember(ctx: Context, decision: Decision, words: Words | None) -> Memory:
    """The memory for the next tick. Only what is acted upon counts as changed."""
    now, current, memory = ctx.now, ctx.current, ctx.memory
    acts = ctx.spec.scaling.mode is not Mode.RECOMMEND
    opened = _stands_open(ctx, decision) if acts else memory.stands_open
    memory = evolve(memory, seen=current, decided=current, words=words, stands_open=opened)
    if not (acts and decision.changed):
        return memory
    live = Lever.MAX_NUM_SEQS in decision.changed or Lever.TOKEN_BUDGET in decision.changed
    memory = evolve(memory, decided=decision.levers, decided_at=now, live_at=now if live else memory.live_at)
    if Lever.MAX_NUM_SEQS in decision.changed:
        memory = _remember_cap(ctx, decision, memory)
    if decision.reason is Reason.TPOT_LOWER_TOKEN_BUDGET and decision.levers.max_num_batched_tokens is not None:
        memory = evolve(memory, tokens_mark=CapMark(now, decision.levers.max_num_batched_tokens))
    if decision.levers.replicas > current.replicas and not ctx.finding.calm:
        memory = evolve(memory, strain=Strain(now, ctx.traffic.running / ctx.serving))
    if decision.reason is Reason.RELEASE_UNSCHEDULABLE and not ctx.finding.calm:
        memory = evolve(memory, released_at=now)
    return memory


def _stands_open(ctx: Context, decision: Decision) -> bool:
    """Whether the limits stand open: whichever of them was moved for it, and also where an operator that has just
    started finds them so."""
    plan, after = ctx.plan, decision.levers
    if plan is not None and plan.levers.has_limits_of(after):
        return plan.opened
    return ctx.memory.stands_open and Lever.MAX_NUM_SEQS not in decision.changed


def _remember_cap(ctx: Context, decision: Decision, memory: Memory) -> Memory:
    before, after = ctx.current.max_num_seqs, decision.levers.max_num_seqs
    if after > before:
        raised = CapRaise(at=ctx.now, before=before, after=after, failing=ctx.pool.failing)
        return evolve(memory, last_raise=raised)
    memory = evolve(memory, last_raise=None)
    if decision.reason is Reason.ROLL_BACK_CAP:
        return evolve(memory, cap_bound=after)
    if decision.reason in _MARKS_CAP:
        of_cache = decision.reason is Reason.KV_PRESSURE_LOWER_CAP
        return evolve(memory, cap_mark=CapMark(ctx.now, after, of_cache))
    return memory
