"""Events about a tier: on transitions only, so that a steady tier posts none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tierkeeper.api.conditions import Condition, ConditionReason, ConditionStatus, ConditionType, find_condition
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

_CRASH = "crash"
_FAILING = {
    ConditionReason.CRASH_LOOP.value: _CRASH,
    ConditionReason.ENGINE_EXITED.value: _CRASH,
    ConditionReason.OUT_OF_MEMORY.value: _CRASH,
    ConditionReason.IMAGE_PULL.value: "image",
    ConditionReason.INVALID_IMAGE.value: "image",
    ConditionReason.CONTAINER_CONFIG.value: "configuration",
    ConditionReason.CONTAINER_CREATE.value: "container",
    ConditionReason.UNSCHEDULABLE.value: "node",
    ConditionReason.QUOTA_EXCEEDED.value: "quota",
}
"""Reasons for not being Ready that are news even while the tier is not Ready anyway, by what is wrong: a pod in a crash
loop goes from one reason to the other and back at each turn, which is no news."""


def transitions(old: ServiceTierStatus, new: ServiceTierStatus) -> Iterator[Announcement]:
    """What is better or worse than in the status before. That one comes from the cluster: a restart says nothing."""
    before = {condition.type: condition for condition in old.conditions}
    told = set()
    for condition in new.conditions:
        for one in _transition(before.get(condition.type), condition):
            told.add(condition.type)
            yield one
    if told.isdisjoint({ConditionType.READY.value, ConditionType.STALLED.value}):  # Stalled carries the cause too
        ready = find_condition(new.conditions, ConditionType.READY)
        yield from _worse(before.get(ConditionType.READY.value), ready)


def _worse(old: Condition | None, new: Condition | None) -> Iterator[Announcement]:
    """A tier that was not Ready, and now is not for a cause that may need a person."""
    if old is None or new is None or not old.status is new.status is ConditionStatus.FALSE:
        return
    if new.reason in _FAILING and _FAILING[new.reason] != _FAILING.get(old.reason):
        yield Announcement(EventType.WARNING, new.reason, f"{new.type}={new.status}: {new.message}")


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
            yield _good(old, new)
    elif not (old is None and new.type == ConditionType.READY.value):
        kind = EventType.NORMAL if new.reason in _INTENDED else EventType.WARNING
        yield Announcement(kind, new.reason, f"{new.type}={new.status}: {new.message}")


def _good(old: Condition | None, new: Condition) -> Announcement:
    if old is not None and new.reason == ConditionReason.AS_EXPECTED.value:
        return Announcement(EventType.NORMAL, "Cleared", f"{new.type} is over: {old.reason} no longer holds")
    return Announcement(EventType.NORMAL, new.reason, f"{new.type}: {new.message}".rstrip(": "))


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
