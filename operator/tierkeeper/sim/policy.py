"""Who decides: the face that every policy shows, and the operator's own code behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from tierkeeper.engine.latency import LLAMA_8B_2XA100, Profile
from tierkeeper.scaling.arbitrate import Claim, arbitrate
from tierkeeper.scaling.decide import decide
from tierkeeper.scaling.memory import Memory
from tierkeeper.scaling.model import Decision, Levers, PoolState
from tierkeeper.sim.scrape import View
from tierkeeper.slo.model import Assessment
from tierkeeper.tier import Mode, TierKey, TierSpec


@dataclass(frozen=True, slots=True)
class TierView:
    """All that a policy may know of a tier at a tick: what a cluster would show."""

    spec: TierSpec
    assessment: Assessment
    pool: PoolState
    samples: View
    """The scraped series, for who reads others than the assessment does."""


class Policy(Protocol):
    """Sets the levers of all tiers at each tick."""

    @property
    def name(self) -> str: ...

    def decide(self, *, now: float, views: Mapping[TierKey, TierView]) -> Mapping[TierKey, Levers]:
        """The levers that each tier shall have; a tier that is left out keeps what it has. ``now``: seconds."""
        ...


@runtime_checkable
class Explains(Protocol):
    """A policy that says why: the decisions of its last tick."""

    @property
    def decisions(self) -> Mapping[TierKey, Decision]: ...


@runtime_checkable
class Paced(Protocol):
    """A policy with a rhythm of its own, faster than scrapes perhaps, that reads samples rather than assessments.

    Its assessments are made anew once a scrape only: between two scrapes they would say the same.
    """

    @property
    def interval_seconds(self) -> float: ...


@dataclass(slots=True)
class Ours:
    """The operator's own law, ``decide`` and ``arbitrate`` as they ship, with one memory a tier."""

    name: str = "tierkeeper"
    profile: Profile = LLAMA_8B_2XA100
    """The shape that the law starts from; the operator ships this one."""
    decisions: dict[TierKey, Decision] = field(default_factory=dict)
    _memories: dict[TierKey, Memory] = field(default_factory=dict)

    def decide(self, *, now: float, views: Mapping[TierKey, TierView]) -> Mapping[TierKey, Levers]:
        claims = {key: self._claim(now, key, view) for key, view in views.items()}
        for key, (decision, memory) in arbitrate(now, claims).items():
            self.decisions[key], self._memories[key] = decision, memory
        return {
            key: view.pool.current if view.spec.scaling.mode is Mode.RECOMMEND else self.decisions[key].levers
            for key, view in views.items()
        }

    def _claim(self, now: float, key: TierKey, view: TierView) -> Claim:
        decision, memory = decide(
            now=now,
            spec=view.spec,
            assessment=view.assessment,
            pool=view.pool,
            memory=self._memories.get(key) or Memory.fresh(now),
            profile=self.profile,
        )
        return Claim(view.spec, view.assessment, view.pool, decision, memory)


@dataclass(frozen=True, slots=True)
class Static:
    """Nothing is ever changed: the pool stays as it starts."""

    name: str = "static"

    def decide(self, *, now: float, views: Mapping[TierKey, TierView]) -> Mapping[TierKey, Levers]:  # noqa: ARG002
        return {}
