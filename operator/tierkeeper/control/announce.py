"""Events about a tier: on transitions only, so that a steady tier posts none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tierkeeper.api.conditions import Condition, ConditionReason, ConditionStatus, ConditionType
from tierkeeper.api.status import ServiceTierStatus
from tierkeeper.control.record import Resized
from tierkeeper.engine.limits import Limits
from tierkeeper.ports import EventType


@dataclass(frozen=True, slots=True)
class Announcement:
    type: EventType
    reason: str
    message: str


_GOOD_IS = {
    ConditionType.READY: ConditionStatus.TRUE,
    ConditionType.STALLED: ConditionStatus.FALSE,
    ConditionType.METRICS_AVAILABLE: ConditionStatus.TRUE,
    ConditionType.SLO_MET: ConditionStatus.TRUE,
    ConditionType.SCALING_LIMITED: ConditionStatus.FALSE,
    ConditionType.BUDGET_FROZEN: ConditionStatus.FALSE,
}
"""Conditions whose change is news. Reconciling and Resizing have events of their own."""


_INTENDED = {ConditionReason.POOL_STARTING.value, ConditionReason.ROLLING_OUT.value}
"""Reasons for not being Ready that are the tier's own wish."""


def transitions(old: ServiceTierStatus, new: ServiceTierStatus) -> Iterator[Announcement]:
    """What is better or worse than in the status before. That one comes from the cluster: a restart says nothing."""
    before = {condition.type: condition for condition in old.conditions}
    for condition in new.conditions:
        yield from _transition(before.get(condition.type), condition)


def _transition(old: Condition | None, new: Condition) -> Iterator[Announcement]:
    good = {kind.value: status for kind, status in _GOOD_IS.items()}.get(new.type)
    if new.type == ConditionType.RESIZING.value and new.reason == ConditionReason.NOT_APPLIED.value:
        if old is None or old.reason != new.reason:
            yield Announcement(EventType.WARNING, f"Resizing{new.reason}", new.message)
        return
    if good is None or new.status is ConditionStatus.UNKNOWN or (old is not None and old.status is new.status):
        return
    if new.status is good:
        # The first word on a young tier is news only where it is that the pool serves.
        was_bad = old is not None and old.status is not ConditionStatus.UNKNOWN
        if was_bad or new.type == ConditionType.READY.value:
            yield Announcement(EventType.NORMAL, new.reason, f"{new.type}: {new.message}".rstrip(": "))
    elif not (old is None and new.type == ConditionType.READY.value):
        kind = EventType.NORMAL if new.reason in _INTENDED else EventType.WARNING
        yield Announcement(kind, new.reason, f"{new.type}={new.status}: {new.message}")


def resized(resize: Resized) -> Announcement:
    """``Resized max-num-seqs 16 → 24 on 3 pods in 1.2 s, no restart``."""
    changes = " and ".join(
        f"{name} {'engine' if old is None else old} → {'engine' if new is None else new}"
        for name, (old, new) in _pairs(resize.before, resize.after).items()
        if old != new
    )
    pods = f"{resize.pods} pod{'' if resize.pods == 1 else 's'}"
    text = f"Resized {changes or 'nothing'} on {pods} in {resize.seconds:.1f} s, no restart"
    return Announcement(EventType.NORMAL, "Resized", text)


def _pairs(before: Limits, after: Limits) -> Mapping[str, tuple[int | None, int | None]]:
    return {
        "max-num-seqs": (before.max_num_seqs, after.max_num_seqs),
        "token budget": (before.max_num_batched_tokens, after.max_num_batched_tokens),
    }
