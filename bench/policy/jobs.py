"""What is to be played: a policy on a scenario, done once for each content, see ``cache``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from bench.policy import cache
from bench.policy.faults import NONE, Fault
from bench.policy.measures import Row
from bench.policy.play import Progress, part, run
from bench.policy.policies import Entry, Kind
from bench.policy.scenarios import DAY, Scenario, scenario

HOUR = 3600.0

QUICK: Mapping[str, tuple[float, float]] = {
    "azure-2024-week": (2 * DAY, 3 * DAY),
    "servegen-week": (2 * DAY, 3 * DAY),
    "idle-night": (5 * HOUR, 19 * HOUR),
    "tuning-day": (3 * HOUR, 6 * HOUR),
    "tuning-servegen": (7 * HOUR, 10 * HOUR),
}
"""Which part of the long scenarios a quick run plays, seconds."""

LONG = ("azure-2024-week", "servegen-week")
"""Played with the usual start-up only, unless asked for."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to run. ``quick``: the long scenarios are cut."""

    scenario: str
    entry: Entry
    startup_seconds: float = 120.0
    seed: int = 0
    quick: bool = False
    fault: Fault = NONE

    @property
    def start(self) -> float:
        """Median seconds from a pod scheduled to Ready: the fault's, where it has some."""
        return self.fault.startup_seconds or self.startup_seconds

    @property
    def title(self) -> str:
        """``azure-2023, start-up 120 s, tierkeeper, fault down``."""
        fault = f", fault {self.fault.name}" if self.fault != NONE else ""
        return f"{self.scenario}, start-up {self.start:g} s, {self.entry.name}{fault}"

    @property
    def key(self) -> str:
        stretch = QUICK.get(self.scenario) if self.quick else None
        what = (self.scenario, self.start, self.seed, stretch, self.entry.settings or self.entry.name)
        given = (
            self.fault if self.entry.kind is Kind.OURS else NONE
        )  # the others have no profile that could be wrong, nor a restart
        return cache.key(self.entry.kind, (*what, self.fault.faults, given.speed, given.prefill, given.restart_seconds))


def done(job: Job) -> Row | None:
    """The result that is stored of a job."""
    return cache.load(job.key)


def do(job: Job, progress: Progress | None = None) -> Row:
    """The result of a job, from the store or by running it."""
    found = done(job)
    if found is None:
        began = time.perf_counter()
        built = traffic(job.scenario, job.start, job.seed, job.quick)
        found = run(built, job.entry, seed=job.seed, fault=job.fault, progress=progress) | {
            "story": told(job, built),
            "recorded": built.recorded,
            "seconds": built.seconds,
        }
        found["wall_seconds"] = time.perf_counter() - began
        cache.store(job.key, found)
    return found


@lru_cache(maxsize=1)
def traffic(name: str, startup_seconds: float, seed: int, quick: bool) -> Scenario:
    """A scenario; cut where it is long and the run quick. The last one is kept: jobs come by scenario."""
    built = scenario(name, startup_seconds=startup_seconds, seed=seed)
    return part(built, *QUICK[name]) if quick and name in QUICK else built


def told(job: Job, built: Scenario) -> str:
    """What a scenario is about, and which part of it is played."""
    start, end = QUICK.get(job.scenario, (0.0, 0.0)) if job.quick else (0.0, 0.0)
    return f"{built.story}: hours {start / HOUR:.0f} to {end / HOUR:.0f}" if end else built.story


def startups(name: str, asked: tuple[float, ...], every: tuple[float, ...], *, quick: bool) -> tuple[float, ...]:
    """With which start-up times a scenario is played: those asked for, else all, the long and the quick ones with the
    usual one."""
    if asked:
        return asked
    return (120.0,) if quick or name in LONG else every
