"""How many requests arrive: told from noise, seen early, and never hidden by overload.

First tokens count what was served, not what came: where a queue grows, arrivals are first tokens plus the growth of
the queue. Three readings are kept, from slow to fast, and a faster one counts only where it cannot be chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tierkeeper.slo.model import Traffic

#: Arrivals come in bunches: their count varies more than a Poisson process by this factor (Azure 2023: coefficient of
#: variation of the gaps 1.09, so 1.2; chat clients of ServeGen 1 to 3).
BUNCHING = 2.0

#: A faster reading must lie this many standard deviations above the slower one: one false alarm in 160 looks.
CERTAIN = 2.5

#: Gauges are compared over at least this long: two scrapes of 15 s.
LOOK_BACK_SECONDS = 30.0

#: Looks and minutes that are kept.
LOOKS_SECONDS = 75.0
MINUTES = 15

#: The mean of so many minutes is the slow reading.
SLOW_MINUTES = 5


@dataclass(frozen=True, slots=True)
class Look:
    """The gauges at one tick."""

    at: float
    waiting: float
    present: float
    """Requests in the pool: running and waiting."""


@dataclass(frozen=True, slots=True)
class Minute:
    """Arrivals a second over one minute that ended at ``at``."""

    at: float
    rate: float


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests a second."""

    level: float
    """What arrives now, as far as it can be told from noise."""
    slope: float = 0.0
    """Requests a second, a second: zero where no trend can be told from noise."""
    minutes: int = 0
    """How many minutes it rests on."""


def look(looks: Sequence[Look], *, now: float, traffic: Traffic) -> tuple[Look, ...]:
    """The looks with this one."""
    kept = tuple(one for one in looks if now - LOOKS_SECONDS <= one.at < now)
    return (*kept, Look(now, traffic.waiting, traffic.running + traffic.waiting))


def arrivals(looks: Sequence[Look], *, traffic: Traffic, share_seen: float) -> float:
    """Arrivals a second over the last minute: first tokens, growth of the queue, rejections.

    ``share_seen``: observed pods / ready pods; those that are not seen are taken to carry as much as the others.
    """
    growth = 0.0
    if len(looks) > 1 and looks[-1].at - looks[0].at >= LOOK_BACK_SECONDS:
        growth = (looks[-1].waiting - looks[0].waiting) / (looks[-1].at - looks[0].at)
    seen = traffic.requests_per_second + traffic.rejected_per_second + growth
    return max(seen, 0.0) / share_seen


def minute_over(minutes: Sequence[Minute], *, now: float, rate: float) -> tuple[Minute, ...]:
    """The minutes with this one, once a whole minute lies behind the last."""
    if minutes and now - minutes[-1].at < 60.0:
        return tuple(minutes)
    return (*minutes, Minute(now, rate))[-MINUTES:]


def demand(looks: Sequence[Look], minutes: Sequence[Minute], *, rate: float, traffic: Traffic) -> Demand:
    """What arrives now. ``rate`` is the last minute's arrivals a second."""
    recent = [m.rate for m in minutes[-SLOW_MINUTES:]]
    slow = sum(recent) / len(recent) if recent else rate
    level = slow
    if abs(rate - slow) > CERTAIN * deviation(slow, 60.0 * (1 + 1 / max(len(recent), 1))):
        level = rate
    jump = _jump(looks, traffic)
    if jump is not None and jump > level + CERTAIN * deviation(level, LOOK_BACK_SECONDS):
        level = max(level, jump)
    return _with_trend(level, minutes)


def deviation(rate: float, seconds: float) -> float:
    """Standard deviation of a rate counted over so many seconds, at least that of one request."""
    return math.sqrt(BUNCHING * max(rate, 1.0 / seconds) / seconds)


def _jump(looks: Sequence[Look], traffic: Traffic) -> float | None:
    """Arrivals a second over the last two scrapes, from gauges: what left, and what is there more than before."""
    if not looks:
        return None
    last = looks[-1]
    before = [one for one in looks if last.at - one.at >= LOOK_BACK_SECONDS - 1.0]
    if not before:
        return None
    return traffic.finished_per_second + (last.present - before[-1].present) / (last.at - before[-1].at)


def _with_trend(level: float, minutes: Sequence[Minute]) -> Demand:
    """The least-squares line through the minutes, where its slope cannot be chance; else the level alone."""
    count = len(minutes)
    if count < SLOW_MINUTES:
        return Demand(level, 0.0, count)
    mean_at = sum(m.at for m in minutes) / count
    mean_rate = sum(m.rate for m in minutes) / count
    spread = sum((m.at - mean_at) ** 2 for m in minutes)
    slope = sum((m.at - mean_at) * (m.rate - mean_rate) for m in minutes) / spread
    if abs(slope) <= CERTAIN * deviation(mean_rate, 60.0) / math.sqrt(spread):
        return Demand(level, 0.0, count)
    # A mean over five minutes is 2.5 minutes old: on a slope the line's end is the better reading of now.
    line = mean_rate + slope * (minutes[-1].at - mean_at)
    return Demand(max(level, line) if slope > 0 else level, slope, count)
