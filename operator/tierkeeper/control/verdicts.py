"""What each condition of a tier says, and why. Pure: facts in, verdicts out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tierkeeper.api.conditions import ConditionReason as Why
from tierkeeper.api.conditions import ConditionType
from tierkeeper.control.facts import Facts, reason_for
from tierkeeper.control.pods import OPENS_A_GATE, PodPhase, PodView
from tierkeeper.control.pool import PoolView
from tierkeeper.control.resize import overdue
from tierkeeper.control.snapshot import SOON_SECONDS
from tierkeeper.engine.flags import live_resize
from tierkeeper.render.promql import BUDGET_EVERY_SECONDS, MAX_BUDGET_POINTS, SECONDS_PER_DAY
from tierkeeper.slo.burn import requests_to_tell
from tierkeeper.slo.messages import names, span
from tierkeeper.slo.model import Assessment, SignalState
from tierkeeper.tier import LiveResize, Mode, Objective, TierSpec


@dataclass(frozen=True, slots=True)
class Verdict:
    """Status (None: Unknown), reason and message of one condition."""

    status: bool | None
    reason: Why
    message: str


_FINE = Verdict(False, Why.AS_EXPECTED, "")


def verdicts(facts: Facts) -> Mapping[ConditionType, Verdict]:
    """One verdict a condition. A condition on which these facts say nothing new is left out: it keeps its last word."""
    found = dict(_lifecycle(facts))
    spec = facts.spec
    if spec is None:
        return found
    if facts.view is not None:
        found[ConditionType.RESIZING] = _resizing(facts, spec)
    if facts.assessment is not None:
        found[ConditionType.METRICS_AVAILABLE] = _metrics(facts.assessment)
        found[ConditionType.SLO_MET] = _slo_met(facts.assessment, spec)
        found[ConditionType.BUDGET_FROZEN] = _budget(facts.assessment, spec)
    if facts.decision is not None or (facts.view is not None and _forbidden(facts.view) is not None):
        found[ConditionType.SCALING_LIMITED] = _scaling_limited(facts)
    return found


def _lifecycle(facts: Facts) -> Mapping[ConditionType, Verdict]:
    """Ready, Reconciling and Stalled belong together: kstatus reads Stalled as failed, Reconciling as in progress."""
    stalled = _stalled(facts)
    ready = _ready(facts)
    return {
        ConditionType.READY: ready,
        ConditionType.RECONCILING: _FINE if stalled.status else _reconciling(facts, ready),
        ConditionType.STALLED: stalled,
    }


def _stalled(facts: Facts) -> Verdict:
    trouble, view, spec = facts.trouble, facts.view, facts.spec
    if trouble is not None and trouble.hopeless:
        return Verdict(True, trouble.reason, trouble.message)
    if view is None or spec is None:
        return _FINE
    short = view.census.ready < spec.scaling.replicas.min or view.rolling_out
    if view.stuck and short:
        worst = view.census.worst
        return Verdict(True, Why.ROLLOUT_STUCK, f"{view.stuck}. {_said(worst)}" if worst else view.stuck)
    if short and view.refused:
        return Verdict(True, Why.API_REFUSED, view.refused)
    for pod in view.census.of(PodPhase.FAILING):
        if short and pod.hopeless and pod.reason is not None:
            why = Why.MISSING_REFERENCE if pod.reason is Why.CONTAINER_CONFIG else pod.reason
            return Verdict(True, why, pod.message)
    return _FINE


def _ready(facts: Facts) -> Verdict:
    """Ready means: at least the fewest replicas serve, and the pods are of the present template.

    A live resize or a scale-up beyond the minimum does not take it away.
    """
    trouble, view, spec = facts.trouble, facts.view, facts.spec
    if view is None or spec is None:
        why = trouble.reason if trouble else Why.NOT_YET_KNOWN
        return Verdict(False, why, trouble.message if trouble else "The pool has not been looked at yet.")
    wanted = view.levers.replicas
    have = f"{view.census.ready} of {wanted} replicas Ready"
    worst = view.census.worst
    if view.rolling_out:
        return Verdict(False, Why.ROLLING_OUT, f"{have}; some pods still run the previous template.")
    if trouble is not None and (trouble.outdated or not view.exists):
        return Verdict(False, trouble.reason, trouble.message)
    if spec.scaling.mode is Mode.PAUSED and not view.exists:
        return Verdict(False, Why.PAUSED, "There is no pool, and spec.scaling.mode is Paused: set another mode.")
    if view.census.ready >= max(1, spec.scaling.replicas.min):
        return _serving(view, have)
    if worst is not None and worst.reason is not None:
        return Verdict(False, worst.reason, f"{have}. {_said(worst)}")
    if view.quota or view.refused:
        why = Why.QUOTA_EXCEEDED if view.quota else Why.API_REFUSED
        return Verdict(False, why, f"{have}. {view.quota or view.refused}")
    if view.census.lost:
        return Verdict(False, Why.POOL_DEGRADED, f"{have}. {_lost(view)}")
    if view.census.starting or view.missing:
        return Verdict(False, Why.POOL_STARTING, f"{have}; {_on_the_way(view)}.")
    if view.census.ready >= max(1, wanted):
        least, mode = spec.scaling.replicas.min, spec.scaling.mode
        remedy = "scale the pool, or let mode Auto do it"
        said = f"{have}, but spec.scaling.replicas.min is {least} and the mode is {mode}: {remedy}."
        return Verdict(False, Why.POOL_DEGRADED, said)
    return Verdict(False, Why.NO_READY_REPLICAS, f"{have}.")


def _serving(view: PoolView, have: str) -> Verdict:
    """Enough replicas are Ready; is anything wrong with the others?"""
    if view.census.ready >= view.levers.replicas:
        return Verdict(True, Why.POOL_READY, f"{have}.")
    if (worst := view.census.worst) is not None:
        return Verdict(True, Why.POOL_DEGRADED, f"{have}. {_said(worst)}")
    if view.quota or view.refused:
        return Verdict(True, Why.POOL_DEGRADED, f"{have}. {view.quota or view.refused}")
    if view.census.lost:
        return Verdict(True, Why.POOL_DEGRADED, f"{have}. {_lost(view)}")
    return Verdict(True, Why.SCALING_UP, f"{have}; {_on_the_way(view)}.")


def _lost(view: PoolView) -> str:
    return f"{names(view.census.lost)} served and is not Ready any more: see its node, its events and its log."


def _on_the_way(view: PoolView) -> str:
    said = f"{view.census.starting + view.missing} on the way"
    return f"{said}, {view.census.unmade} of them waiting for image or volumes" if view.census.unmade else said


_PREEMPTION = re.compile(r"\W*(no new claims to deallocate, )?preemption: .*", re.DOTALL)
"""What the scheduler says of pods that it might evict: nothing that a reader could act upon."""


def _said(pod: PodView) -> str:
    """A failing pod's message. The scheduler's own words say what is short, and not what to do."""
    if pod.reason is not Why.UNSCHEDULABLE:
        return pod.message
    if pod.gated:
        return f"{pod.message}: {OPENS_A_GATE}."
    said = _PREEMPTION.sub("", pod.message).rstrip(". ") or "No node has room"
    if "volume" in said.lower() and "Insufficient" not in said:
        return f"{said}: have the claim there and bound (`kubectl get pvc`), or correct spec.model.volumeClaim."
    remedy = "free it or add a node, ask for less in spec.resources, or correct nodeSelector, tolerations or affinity"
    return f"{said}: {remedy} in spec.pod."


def _reconciling(facts: Facts, ready: Verdict) -> Verdict:
    if facts.trouble is not None:
        return Verdict(True, facts.trouble.reason, facts.trouble.message)
    if ready.status or ready.reason is Why.PAUSED:
        return _FINE
    return Verdict(True, ready.reason, ready.message)


def _resizing(facts: Facts, spec: TierSpec) -> Verdict:
    support = live_resize(spec)
    if not support.supported:
        if spec.engine.live_resize is LiveResize.DISABLED:
            why = Why.LIVE_RESIZE_DISABLED
        elif spec.engine.version is None:
            why = Why.UNKNOWN_ENGINE_VERSION
        else:
            why = Why.UNSUPPORTED_ENGINE_VERSION
        return Verdict(False, why, support.message)
    resize = facts.resize
    if resize is None:
        if not facts.view or not facts.view.census.ready:
            return Verdict(False, Why.APPLIED, "No pod is Ready; those to come start with the wanted limits.")
        return Verdict(False, Why.APPLIED, "Every Ready pod shows the wanted limits.")
    waiting = names(resize.waiting_for) or "the pods"
    limits = f"max-num-seqs {resize.wanted.max_num_seqs}"
    if resize.wanted.max_num_batched_tokens is not None:
        limits += f", token budget {resize.wanted.max_num_batched_tokens}"
    if overdue(resize, now=facts.now):
        remedy = "read their logs for tierkeeper_live_limit; `kubectl delete pod` starts them with the wanted limits"
        return Verdict(True, Why.NOT_APPLIED, f"Not shown in time ({limits}) by {waiting}: {remedy}.")
    if resize.before is None:
        return Verdict(False, Why.APPLIED, "Every Ready pod shows the wanted limits, or has just become Ready.")
    return Verdict(True, Why.WAITING_FOR_PODS, f"Waiting for {waiting} to show {limits}.")


def _metrics(assessment: Assessment) -> Verdict:
    state = reason_for(assessment.state.value, otherwise=Why.NO_DATA)
    why = reason_for(assessment.reason, otherwise=state)
    if assessment.state.known:
        return Verdict(True, why, assessment.message)
    # Nothing to measure yet is no fault: neither True, nor the alarm that False is.
    return Verdict(None if why is Why.WAITING_FOR_SAMPLES else False, why, assessment.message)


def _slo_met(assessment: Assessment, spec: TierSpec) -> Verdict:
    if spec.objective is None:
        return Verdict(True, Why.NO_OBJECTIVE, "The tier promises no latency.")
    slos = list(assessment.slos.values())
    missed = [slo for slo in slos if slo.met is False]
    if missed:
        return Verdict(False, Why.OBJECTIVE_BURNING, " ".join(slo.message for slo in missed))
    if slos and all(slo.met for slo in slos):
        return Verdict(True, Why.OBJECTIVES_MET, "Every promised latency is kept.")
    unsure = next((slo for slo in slos if slo.met is None), None)
    if unsure is None:
        return Verdict(None, Why.NOT_YET_KNOWN, assessment.message)
    if unsure.state is SignalState.OK:
        return Verdict(None, Why.TOO_FEW_REQUESTS, unsure.message)
    state = reason_for(unsure.state.value, otherwise=Why.NO_DATA)
    return Verdict(None, reason_for(unsure.reason, otherwise=state), unsure.message)


def _budget(assessment: Assessment, spec: TierSpec) -> Verdict:
    if spec.objective is None:
        return Verdict(False, Why.NO_OBJECTIVE, "The tier promises no latency.")
    spent, policy = assessment.budget_spent_percent, spec.objective.budget
    if spent is None:
        return Verdict(None, Why.NOT_YET_KNOWN, _budget_unknown(spec.objective))
    message = f"{spent:.0f}% of the error budget of {spec.objective.window_days} days is spent"
    if spent >= policy.freeze_percent:
        limit = f"freezePercent is {policy.freeze_percent}: nothing is taken away from the pool"
        return Verdict(True, Why.BUDGET_SPENT, f"{message}; {limit}.")
    why = Why.BUDGET_LOW if spent >= policy.warn_percent else Why.BUDGET_LEFT
    return Verdict(False, why, f"{message}.")


def _budget_unknown(objective: Objective) -> str:
    """What it takes to know the budget: at 99 %, 300 requests, since three misses must fit into it."""
    step = max(60, objective.window_days * SECONDS_PER_DAY // MAX_BUDGET_POINTS)
    return (
        f"The error budget is not known yet: that takes {requests_to_tell(objective.error_budget)} requests, counted "
        f"over {objective.window_days} days in steps of {span(step)}. It is looked at every "
        f"{span(round(BUDGET_EVERY_SECONDS))}, and every {span(round(SOON_SECONDS))} once the last hours hold so many."
    )


def _scaling_limited(facts: Facts) -> Verdict:
    forbidden = _forbidden(facts.view) if facts.view is not None else None
    if forbidden is not None:
        return forbidden
    limited = facts.decision.limited if facts.decision is not None else None
    if limited is None:
        return _FINE
    return Verdict(True, reason_for(limited.reason.value, otherwise=Why.AT_MAXIMUM), limited.message)


def _forbidden(view: PoolView) -> Verdict | None:
    if view.quota:
        return Verdict(True, Why.QUOTA_EXCEEDED, view.quota)
    if view.external_scaler:
        remedy = "delete it, then set the replicas once by `kubectl scale`, and the loop takes over"
        message = f"{view.external_scaler} sets the replicas of the pool, so the loop leaves them alone: {remedy}."
        return Verdict(True, Why.HOLD_EXTERNAL_SCALER, message)
    return None
