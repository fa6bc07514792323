"""The demo's own checks. Each is a value beside what is wanted, so that a failure reads as one line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from e2e import audit
from e2e.demo.story import GOLD_RECOVERY_SECONDS, PROMISES, starts
from e2e.demo.timeline import Timeline
from e2e.load.report import LoadReport


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    value: Any
    wanted: str
    ok: bool


def at_least(name: str, value: float | None, floor: float) -> Check:
    return Check(name, value, f">= {floor:g}", value is not None and value >= floor)


def at_most(name: str, value: float | None, ceiling: float) -> Check:
    return Check(name, value, f"<= {ceiling:g}", value is not None and value <= ceiling)


def is_true(name: str, value: bool) -> Check:
    return Check(name, value, "true", value)


def is_zero(name: str, value: int) -> Check:
    return Check(name, value, "0", value == 0)


def attainment(report: LoadReport, tier: str, *, since: float = 0.0) -> float | None:
    """The share of a tier's requests, of those that arrived from a second of the run on, that met its promise."""
    promise = PROMISES[tier]
    value = report.targets[tier].attainment(ttft_ms=promise.ttft_ms, tpot_ms=promise.tpot_ms, since=since)
    return None if value is None else round(value, 4)


def gold_after_its_step(report: LoadReport) -> float | None:
    """Gold's attainment to the end of the run, from whichever moment within its time to recover suits it best.

    It recovers at no moment known before, and the longer what follows is, the less one stall of the machine decides.
    """
    step = starts()["step on Gold"]
    found = [attainment(report, "gold", since=step + after) for after in range(0, GOLD_RECOVERY_SECONDS + 1, 5)]
    return max((share for share in found if share is not None), default=None)


def scaled(timeline: Timeline, tier: str) -> tuple[bool, bool]:
    """Did the tier's Ready replicas rise above their start, and did they come down from their peak afterwards?"""
    ready = [s.ready for s in timeline.of(tier)]
    if not ready:
        return False, False
    peak = max(ready)
    return peak > ready[0], ready[-1] < peak and peak > ready[0]


def writes_by_operator(audit_lines: Iterable[str], *, resource: str, subresource: str = "") -> int:
    """Writes the operator made to a resource, from the API server's audit log.

    ``subresource=""`` counts writes to the object itself: ``spec`` and metadata, never the status subresource.
    """
    objects = [event.get("objectRef", {}) for event in audit.writes(audit_lines)]
    return sum(ref.get("resource") == resource and ref.get("subresource", "") == subresource for ref in objects)


def footprint(tiers: Iterable[dict[str, Any]]) -> int:
    """Finalizers and annotations of ours on the users' objects."""
    count = 0
    for tier in tiers:
        metadata = tier["metadata"]
        count += len(metadata.get("finalizers", []))
        count += sum("tierkeeper" in key or "kopf" in key for key in metadata.get("annotations", {}))
    return count


def all_ready(tiers: Iterable[dict[str, Any]]) -> bool:
    statuses = [
        {c["type"]: c["status"] for c in tier.get("status", {}).get("conditions", [])}.get("Ready") for tier in tiers
    ]
    return bool(statuses) and all(status == "True" for status in statuses)


def live_resizes(timeline: Timeline, tier: str) -> tuple[int, float | None]:
    """How many live resizes the operator confirmed on every pod since the first sample; the slowest in seconds."""
    samples = timeline.of(tier)
    before = samples[0].resizes if samples else 0
    since = [s for s in samples if s.resizes > before]
    slowest = max((s.last_apply_seconds for s in since if s.last_apply_seconds is not None), default=None)
    return max((s.resizes for s in since), default=before) - before, slowest
