"""What goes wrong on the way from pods to policy, and how a run is set up with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tierkeeper.engine.latency import Profile
from tierkeeper.sim.policy import Ours, Policy
from tierkeeper.sim.scrape import NO_FAULTS, Faults, Span


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

    @property
    def misleads(self) -> bool:
        return (self.speed, self.prefill) != (1.0, 1.0)


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
        Fault("start-30", "replicas start in 30 s", startup_seconds=30.0),
        Fault("start-300", "replicas start in 5 min", startup_seconds=300.0),
        Fault("start-600", "replicas start in 10 min", startup_seconds=600.0),
    )
}


def misled(make: Callable[[], Policy], fault: Fault) -> Policy:
    """The policy, with a wrong profile where the fault is one; peers are given none anyway."""
    policy = make()
    if not fault.misleads or not isinstance(policy, Ours):
        return policy
    return dataclasses.replace(policy, profile=wrong(policy.profile, speed=fault.speed, prefill=fault.prefill))


def wrong(profile: Profile, *, speed: float, prefill: float) -> Profile:
    """A profile whose every constant is ``speed`` times the one given, the prefill's ``prefill`` times that."""
    return dataclasses.replace(
        profile,
        base_seconds=profile.base_seconds * speed,
        per_sequence_seconds=profile.per_sequence_seconds * speed,
        per_context_token_seconds=profile.per_context_token_seconds * speed,
        per_prefill_token_seconds=profile.per_prefill_token_seconds * speed * prefill,
    )
