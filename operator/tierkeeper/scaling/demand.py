"""How many requests arrive: told from noise, seen early, and never hidden by overload.

First tokens count what was served, not what came: where a queue grows, arrivals are first tokens plus the growth of
the queue. Three readings are kept, from slow to fast, and a faster one counts only where it cannot be chance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tierkeeper.slo.model import Traffic

#: Arrivals come in bunches: their count varies more than a Poisson process by this factor, until the minutes of the
#: tier have shown their own (gaps of the Azure 2023 trace have a coefficient of variation of 1.09, so 1.2; chat clients
#: of ServeGen 1 to 3). It counts as much as so many of them.
BUNCHING, BUNCHING_WEIGHT = 2.0, 5.0

#: A faster reading must lie this many standard deviations above the slower one: one false alarm in 160 looks.
CERTAIN = 2.5

#: Gauges are compared over at least this long: two scrapes of 15 s.
LOOK_BACK_SECONDS = 30.0

#: Looks and minutes that are kept.
LOOKS_SECONDS = 75.0
MINUTES = 15

#: The mean of so many minutes is the slow reading.
SLOW_MINUTES = 5

#: Minutes of the shorter of the two lines by which a trend is read.
SHORT_MINUTES = 7


@dataclass(frozen=True, slots=True)
class Look:
    """The gauges at one tick."""

    at: float
    waiting: float
    present: float
    """Requests in the pool: running and waiting."""
    pods: int = 0
    """Pods that were seen. A young pod serves before it is seen, so looks at unlike numbers cannot be compared."""


@dataclass(frozen=True, slots=True)
class Minute:
    """Arrivals a second over one minute that ended at ``at``."""

    at: float
    rate: float
    work: float
    """The same in seconds of work a second: the mix may change while the rate does not."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests a second."""

    level: float
    """What arrives now, as far as it can be told from noise."""
    slope: float = 0.0
    """Requests of the present mix a second, a second: zero where no trend can be told from noise."""
    minutes: int = 0
    """How many minutes it rests on."""
    doubt: float = 0.0
    """Standard deviation of the level, by chance alone."""


def look(looks: Sequence[Look], *, now: float, traffic: Traffic) -> tuple[Look, ...]:
    """The looks with this one."""
    kept = tuple(one for one in looks if now - LOOKS_SECONDS <= one.at < now)
    return (*kept, Look(now, traffic.waiting, traffic.running + traffic.waiting, traffic.observed_pods))


def arrivals(looks: Sequence[Look], *, traffic: Traffic, share_seen: float) -> float:
    """Arrivals a second over the last minute: first tokens, growth of the queue, rejections.

    ``share_seen``: observed pods / ready pods; those that are not seen are taken to carry as much as the others.
    """
    growth = 0.0
    if looks and looks[-1].at - looks[0].at >= LOOK_BACK_SECONDS - 1.0:
        growth = (looks[-1].waiting - looks[0].waiting) / (looks[-1].at - looks[0].at)
    seen = traffic.requests_per_second + traffic.rejected_per_second + growth
    return max(seen, 0.0) / share_seen


def minute_over(minutes: Sequence[Minute], *, now: float, rate: float, work: float) -> tuple[Minute, ...]:
    """The minutes with this one, once a whole minute lies behind the last. ``work``: seconds that a request costs."""
    if minutes and now - minutes[-1].at < 60.0:
        return tuple(minutes)
    return (*minutes, Minute(now, rate, rate * work))[-MINUTES:]


def demand(looks: Sequence[Look], minutes: Sequence[Minute], *, rate: float, work: float, traffic: Traffic) -> Demand:
    """What arrives now. ``rate`` is the last minute's arrivals a second, ``work`` the seconds that a request costs."""
    recent = [m.rate for m in minutes[-SLOW_MINUTES:]]
    slow = sum(recent) / len(recent) if recent else rate
    level, bunching = slow, _bunching(minutes)
    if abs(rate - slow) > CERTAIN * deviation(slow, 60.0, bunching) * math.sqrt(1.0 + 1.0 / max(len(recent), 1)):
        level = rate
    jump = _jump(looks, traffic)
    if jump is not None and jump > level + CERTAIN * deviation(level, LOOK_BACK_SECONDS, bunching):
        level = max(level, jump)
    return _with_trend(level, minutes, bunching, work)


def deviation(rate: float, seconds: float, bunching: float) -> float:
    """Standard deviation of a rate counted over so many seconds, at least that of one request."""
    return math.sqrt(bunching * max(rate, 1.0 / seconds) / seconds)


def _bunching(minutes: Sequence[Minute]) -> float:
    """Variance over mean of a minute's count. From differences of neighbours, which no slow trend enters; the largest
    is left out, since one step of the load is no noise.

    A burst is two steps, up and down: the smaller of them counts as noise for as long as it is among the MINUTES.
    """
    squares = sorted((b.rate - a.rate) ** 2 / 2.0 for a, b in itertools.pairwise(minutes))[:-1]
    if not squares:
        return BUNCHING
    mean = max(sum(m.rate for m in minutes) / len(minutes), 1.0 / 60.0)
    shown = 60.0 * sum(squares) / mean
    return (shown + BUNCHING * BUNCHING_WEIGHT) / (len(squares) + BUNCHING_WEIGHT)


def _jump(looks: Sequence[Look], traffic: Traffic) -> float | None:
    """Arrivals a second over the last two scrapes, from gauges: what left, and what is there more than before."""
    if not looks:
        return None
    last = looks[-1]
    before = [one for one in looks if last.at - one.at >= LOOK_BACK_SECONDS - 1.0]
    if not before or any(one.pods != last.pods for one in looks if one.at >= before[-1].at):
        return None
    return traffic.finished_per_second + (last.present - before[-1].present) / (last.at - before[-1].at)


def _with_trend(level: float, minutes: Sequence[Minute], bunching: float, work: float) -> Demand:
    """The least-squares line through the last minutes, where its slope cannot be chance; else the level alone.

    A short line follows a turn, a long one tells a slow slope from noise: the short one first.
    """
    doubt = deviation(level, 60.0 * SLOW_MINUTES, bunching)
    for span in (SHORT_MINUTES, MINUTES):
        line = _line(minutes[-span:], bunching, work) if len(minutes) >= min(span, SLOW_MINUTES + 1) else None
        if line is not None:
            end, slope = line
            # A mean over five minutes is 2.5 minutes old: on a slope the line's end is the better reading of now.
            return Demand(max(level, end) if slope > 0 else level, slope, len(minutes), doubt)
    return Demand(level, 0.0, len(minutes), doubt)


def _line(minutes: Sequence[Minute], bunching: float, work: float) -> tuple[float, float] | None:
    """Value at the end and slope of the line through the minutes, in requests of the present mix; None where the slope
    may be chance."""
    count = len(minutes)
    mean_at = sum(m.at for m in minutes) / count
    mean_rate = sum(m.work for m in minutes) / count / work
    spread = sum((m.at - mean_at) ** 2 for m in minutes)
    slope = sum((m.at - mean_at) * (m.work / work - mean_rate) for m in minutes) / spread
    if abs(slope) <= CERTAIN * deviation(mean_rate, 60.0, bunching) / math.sqrt(spread):
        return None
    return mean_rate + slope * (minutes[-1].at - mean_at), slope
