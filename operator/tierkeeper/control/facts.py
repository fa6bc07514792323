"""Everything that a tier's status is made from, gathered by one reconcile."""

from __future__ import annotations

from dataclasses import dataclass

from tierkeeper.api.conditions import ConditionReason
from tierkeeper.control.pool import PoolView
from tierkeeper.control.record import Resize, Resized
from tierkeeper.engine.limits import Limits
from tierkeeper.scaling.model import Decision, Levers
from tierkeeper.slo.model import Assessment
from tierkeeper.tier import TierSpec


@dataclass(frozen=True, slots=True)
class Trouble:
    """What keeps the tier from being served as its spec says."""

    reason: ConditionReason
    message: str
    hopeless: bool = True
    """True: nothing more will happen until a person acts. False: the operator tries again."""
    outdated: bool = False
    """The Deployment could not be made what the spec asks for: its pods are of another template."""


@dataclass(frozen=True, slots=True)
class Facts:
    """One tier at one moment. ``spec`` is None where it cannot be read, ``view`` where the pool was not looked at."""

    generation: int
    now: float
    """Monotonic seconds."""
    spec: TierSpec | None = None
    view: PoolView | None = None
    desired: Levers | None = None
    """What the operator wants to be set; in mode Recommend the recommendation."""
    decision: Decision | None = None
    decided_at: float = 0.0
    """Wall clock."""
    assessment: Assessment | None = None
    resize: Resize | None = None
    resized: Resized | None = None
    resizes: int = 0
    """Live resizes seen through over the tier's life."""
    shown: Limits | None = None
    """The limits that every Ready pod has shown; None while they differ or do not say."""
    trouble: Trouble | None = None


_BY_WORD = {reason.value: reason for reason in ConditionReason}


def reason_for(word: str, *, otherwise: ConditionReason) -> ConditionReason:
    """The condition reason of that name: the loop's and the metrics' causes carry the same words."""
    return _BY_WORD.get(word, otherwise)
