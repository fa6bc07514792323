"""What goes wrong on the way from pods to policy, and how a run is set up with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from tierkeeper.engine.latency import Profile
from tierkeeper.scaling.model import Decision, Levers
from tierkeeper.sim.policy import Ours, Policy, TierView
from tierkeeper.sim.scrape import NO_FAULTS, Faults, Span
from tierkeeper.tier import TierKey


@dataclass(frozen=True, slots=True)
class Fault:
    """One line of the matrix."""

    name: str
    about: str
    faults: Faults = NO_FAULTS
    startup_seconds: float | None = None
    """None: that of the run."""
    speed: float = 1.0
    """The profile that our law is given is so many times the usual one in each of its constants."""
    prefill: float = 1.0
    """Its prefill constant alone is so many times the usual one: another shape, which no measured speed corrects."""
    restart_seconds: float = inf
    """Our operator starts anew this often, and has forgotten everything."""

    @property
    def misleads(self) -> bool:
        return (self.speed, self.prefill) != (1.0, 1.0)

    @property
    def ours_alone(self) -> bool:
        """It goes wrong in our operator: no peer's run is another one for it."""
        return self.misleads or self.restart_seconds != inf


@dataclass(slots=True)
class Restarted:
    """Our law in an operator that starts anew now and then: without memory, history or what it said last."""

    law: Ours
    """As it is right after a start."""
    every_seconds: float
    name: str = "restarted"
    decisions: dict[TierKey, Decision] = field(default_factory=dict)
    _running: Ours | None = None
    _since: float = 0.0

    def decide(self, *, now: float, views: Mapping[TierKey, TierView]) -> Mapping[TierKey, Levers]:
        if self._running is None or now - self._since >= self.every_seconds:
            self._running, self._since = dataclasses.replace(self.law, decisions={}, _memories={}), now
        seen = {key: self._seen(view) for key, view in views.items()}
        levers = self._running.decide(now=now, views=seen)
        self.decisions = self._running.decisions
        return levers

    def _seen(self, view: TierView) -> TierView:
        """The view as an operator has it that has watched since its start."""
        since = view.assessment.clean_since
        if since is None or since >= self._since:
            return view
        return dataclasses.replace(view, assessment=dataclasses.replace(view.assessment, clean_since=self._since))


NONE = Fault("none", "nothing goes wrong")

_SHORT = tuple(Span(at, at + 300.0) for at in (600.0, 2400.0, 3200.0))
"""Five minutes each, none at the moment of a step: nobody can answer what is not shown."""

FAULTS: Mapping[str, Fault] = {
    fault.name: fault
    for fault in (
        NONE,
        Fault("lost-10", "one scrape in ten is lost", Faults(lost_scrapes=0.1)),
        Fault("lost-30", "three scrapes in ten are lost", Faults(lost_scrapes=0.3)),
        Fault("nan-10", "one page in ten has NaN in its histograms", Faults(nan_scrapes=0.1)),
        Fault("resets", "a pod's counters start again twice an hour", Faults(resets_per_hour=2.0)),
        Fault("frozen", "Prometheus repeats itself for 5 minutes, three times an hour", Faults(frozen=_SHORT)),
        Fault("down", "Prometheus cannot be reached for 5 minutes, three times an hour", Faults(down=_SHORT)),
        Fault("profile-slow", "the profile's constants are 30 % above the truth", speed=1.3),
        Fault("profile-fast", "the profile's constants are 30 % below the truth", speed=0.7),
        Fault("prefill-slow", "the profile's prefill alone is 30 % above the truth", prefill=1.3),
        Fault("prefill-fast", "the profile's prefill alone is 30 % below the truth", prefill=0.7),
        Fault("restarts", "the operator restarts every ten minutes, and has forgotten all", restart_seconds=600.0),
        Fault("start-30", "replicas start in 30 s", startup_seconds=30.0),
        Fault("start-300", "replicas start in 5 min", startup_seconds=300.0),
        Fault("start-600", "replicas start in 10 min", startup_seconds=600.0),
    )
}


def misled(make: Callable[[], Policy], fault: Fault) -> Policy:
    """The policy, with a wrong profile or restarts where the fault is one. Peers have no profile, and keep what they
    remember."""
    policy = make()
    if not isinstance(policy, Ours):
        return policy
    if fault.misleads:
        policy = dataclasses.replace(policy, profile=wrong(policy.profile, speed=fault.speed, prefill=fault.prefill))
    return policy if fault.restart_seconds == inf else Restarted(policy, fault.restart_seconds)


def wrong(profile: Profile, *, speed: float, prefill: float) -> Profile:
    """A profile whose every constant is ``speed`` times the one given, the prefill's ``prefill`` times that."""
    return dataclasses.replace(
        profile,
        base_seconds=profile.base_seconds * speed,
        per_sequence_seconds=profile.per_sequence_seconds * speed,
        per_context_token_seconds=profile.per_context_token_seconds * speed,
        per_prefill_token_seconds=profile.per_prefill_token_seconds * speed * prefill,
    )
