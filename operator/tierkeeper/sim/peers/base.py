"""From a law to a policy: one law a tier, replicas only; the live limits stay where the tier started."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tierkeeper.scaling.model import Levers
from tierkeeper.sim.peers.figures import Figures, Scraped
from tierkeeper.sim.policy import TierView
from tierkeeper.tier import TierKey, TierSpec


class Law(Protocol):
    """A published scaling law for one tier, with its memory."""

    def desired(self, *, now: float, figures: Figures) -> int:
        """Replicas wanted at ``now`` (seconds); whoever calls clamps them to the tier's bounds."""
        ...


@dataclass(slots=True)
class Peer:
    """A peer as a policy. ``interval_seconds`` is its own tick; whoever runs it calls ``decide`` that often."""

    name: str
    interval_seconds: float
    make: Callable[[TierSpec], Law]
    """A fresh law for a tier seen for the first time."""
    _laws: dict[TierKey, Law] = field(default_factory=dict)

    def decide(self, *, now: float, views: Mapping[TierKey, TierView]) -> Mapping[TierKey, Levers]:
        return {key: self._decide(now, key, view) for key, view in views.items()}

    def _decide(self, now: float, key: TierKey, view: TierView) -> Levers:
        law = self._laws.get(key)
        if law is None:
            law = self._laws[key] = self.make(view.spec)
        wanted = law.desired(now=now, figures=Scraped(view, now))
        return dataclasses.replace(view.pool.current, replicas=view.spec.scaling.replicas.clamp(wanted))
