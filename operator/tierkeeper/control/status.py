"""The status of a tier: built from facts, and written only when it says something new. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from tierkeeper.api.conditions import Condition, ConditionType, set_condition
from tierkeeper.api.status import (
    LARGEST,
    TEXT_LIMIT,
    BurnWindow,
    ErrorRatio,
    LastDecision,
    LimitStatus,
    LiveResizeStatus,
    ReplicaStatus,
    ServiceTierStatus,
    SliName,
    SloStatus,
)
from tierkeeper.control.facts import Facts
from tierkeeper.control.verdicts import verdicts
from tierkeeper.engine.flags import live_resize
from tierkeeper.scaling.model import Decision
from tierkeeper.slo.evaluate import quantile_of
from tierkeeper.slo.model import Assessment, Quantile, Sli, SloAssessment

SUMMARY_WINDOW_SECONDS = 300
"""Window of the burn column: long enough to hold requests, short enough to be about now."""


def rfc3339(wall: float) -> str:
    """Unix seconds as Kubernetes writes times."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def build_status(facts: Facts, *, old: ServiceTierStatus, now_iso: str) -> ServiceTierStatus:
    """The new status. What these facts do not speak of keeps its last word: a fresh operator erases nothing."""
    changes: dict[str, Any] = {
        "observed_generation": facts.generation,
        "conditions": _conditions(facts, old.conditions, now_iso),
    }
    if facts.spec is not None and facts.view is not None:
        changes |= _pool_part(facts, old)
    if facts.assessment is not None:
        changes |= _slo_part(facts.assessment)
    if facts.decision is not None:
        changes["last_decision"] = _decision(facts.decision, facts.decided_at, old.last_decision)
    return old.model_copy(update=changes)


def needs_write(
    old: ServiceTierStatus, new: ServiceTierStatus, *, now: float, written_at: float | None, interval_seconds: float
) -> bool:
    """Whether to write. Times are monotonic seconds; ``written_at`` is None where this process has not written yet.

    What a person or a tool acts on is written at once; figures alone at most once per interval; no change, no write.
    """
    if old == new:
        return False
    if _gist(old) != _gist(new):
        return True
    return written_at is None or now - written_at >= interval_seconds


def _gist(status: ServiceTierStatus) -> tuple[object, ...]:
    """The part of a status that is no mere figure."""
    lifecycle = {ConditionType.READY.value, ConditionType.RECONCILING.value, ConditionType.STALLED.value}
    decision = status.last_decision
    return (
        status.observed_generation,
        tuple((c.type, c.status, c.reason, c.message if c.type in lifecycle else "") for c in status.conditions),
        status.replicas,
        status.max_num_seqs,
        status.max_num_batched_tokens,
        status.live_resize,
        decision and (decision.reason, decision.replicas, decision.max_num_seqs, decision.max_num_batched_tokens),
    )


def _conditions(facts: Facts, old: Iterable[Condition], now_iso: str) -> tuple[Condition, ...]:
    conditions = tuple(old)
    for kind, verdict in verdicts(facts).items():
        conditions = set_condition(
            conditions,
            type=kind,
            status=verdict.status,
            reason=verdict.reason,
            message=verdict.message,
            generation=facts.generation,
            now_iso=now_iso,
        )
    return conditions


def _pool_part(facts: Facts, old: ServiceTierStatus) -> dict[str, Any]:
    spec, view = facts.spec, facts.view
    if spec is None or view is None:
        return {}
    current, desired, shown = view.levers, facts.desired or view.levers, facts.shown
    support = live_resize(spec)
    reason = next(v.reason for k, v in verdicts(facts).items() if k is ConditionType.RESIZING)
    resized = facts.resized
    before = old.live_resize.last_apply_milliseconds if old.live_resize else None
    tokens = None
    if current.max_num_batched_tokens is not None or desired.max_num_batched_tokens is not None:
        tokens = LimitStatus(
            current=current.max_num_batched_tokens,
            desired=desired.max_num_batched_tokens,
            applied=shown.max_num_batched_tokens if shown else None,
        )
    return {
        "replicas": ReplicaStatus(current=current.replicas, ready=view.census.ready, desired=desired.replicas),
        "max_num_seqs": LimitStatus(
            current=current.max_num_seqs,
            desired=desired.max_num_seqs,
            applied=shown.max_num_seqs if shown else None,
        ),
        "max_num_batched_tokens": tokens,
        "live_resize": LiveResizeStatus(
            supported=support.supported,
            reason="Supported" if support.supported else reason.value,
            message=_cut(support.message),
            last_apply_milliseconds=_whole(1000 * resized.seconds) if resized else before,
            count=facts.resizes,
        ),
        "replicas_summary": _arrow(view.census.ready, current.replicas, desired.replicas),
        "seqs": str(current.max_num_seqs)
        if current.max_num_seqs == desired.max_num_seqs
        else f"{current.max_num_seqs}→{desired.max_num_seqs}",
    }


def _arrow(ready: int, current: int, desired: int) -> str:
    """``1/2`` Ready of wanted; ``2/2→3`` where another number is wanted than is set, as in mode Recommend."""
    return f"{ready}/{current}" if current == desired else f"{ready}/{current}→{desired}"


def _slo_part(assessment: Assessment) -> dict[str, Any]:
    slos = list(assessment.slos.values())
    burns = [w.burn.point for slo in slos if (w := slo.window(SUMMARY_WINDOW_SECONDS)) is not None]
    left = [slo.budget_left for slo in slos if slo.budget_left is not None]
    return {
        "slos": tuple(_slo(slo) for slo in slos),
        "ttft": _column(assessment.slos.get(Sli.TTFT)),
        "tpot": _column(assessment.slos.get(Sli.TPOT)),
        "burn": f"{max(burns):.1f}x" if burns else None,
        "budget": f"{100 * min(left):.0f}%" if left else None,
    }


def _slo(slo: SloAssessment) -> SloStatus:
    windows = sorted(slo.windows, key=lambda window: window.seconds)
    summary = slo.window(SUMMARY_WINDOW_SECONDS)
    ratio = summary.ratio if summary else None
    return SloStatus(
        sli=SliName(slo.sli.value),
        threshold_milliseconds=_whole(1000 * slo.threshold_seconds),
        metric=slo.metric,
        state=slo.state.value,
        p50_milliseconds=_milliseconds(quantile_of(slo, 0.5)),
        p95_milliseconds=_milliseconds(quantile_of(slo, 0.95)),
        p99_milliseconds=_milliseconds(slo.p99),
        p99=_shown(slo.p99) and f"{_shown(slo.p99)}ms",
        error_ratio=ErrorRatio(lower=_ratio(ratio.lower), point=_ratio(ratio.point), upper=_ratio(ratio.upper))
        if ratio
        else None,
        burn=tuple(
            BurnWindow(window_seconds=w.seconds, burn=f"{w.burn.point:.2f}", requests=_whole(w.total)) for w in windows
        ),
        budget_left_percent=None if slo.budget_left is None else round(100 * slo.budget_left),
        boundary_aligned=slo.boundary_aligned,
        nearest_aligned_milliseconds=tuple(_whole(1000 * edge) for edge in slo.nearest_aligned_seconds[:2]),
    )


def _decision(decision: Decision, decided_at: float, old: LastDecision | None) -> LastDecision:
    new = LastDecision(
        time=rfc3339(decided_at),
        reason=decision.reason.value,
        message=_cut(decision.message),
        replicas=decision.levers.replicas,
        max_num_seqs=decision.levers.max_num_seqs,
        max_num_batched_tokens=decision.levers.max_num_batched_tokens,
        inputs={name: f"{value:.4g}" for name, value in decision.inputs.items()},
    )
    same = old is not None and (old.reason, old.replicas, old.max_num_seqs, old.max_num_batched_tokens) == (
        new.reason, new.replicas, new.max_num_seqs, new.max_num_batched_tokens,
    )  # fmt: skip
    return new.model_copy(update={"time": old.time}) if same and old is not None else new


def _column(slo: SloAssessment | None) -> str | None:
    return None if slo is None else f"{_shown(slo.p99) or '-'}/{round(1000 * slo.threshold_seconds)}ms"


def _shown(quantile: Quantile | None) -> str | None:
    if quantile is None:
        return None
    return f"{'>=' if quantile.at_or_above else ''}{_milliseconds(quantile)}"


def _milliseconds(quantile: Quantile | None) -> int | None:
    return None if quantile is None else _whole(1000 * quantile.seconds)


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 1] + "…"


def _whole(value: float) -> int:
    return round(min(value, LARGEST))


def _ratio(share: float) -> str:
    """Five digits: one request of 100,000."""
    return f"{share:.5f}"
