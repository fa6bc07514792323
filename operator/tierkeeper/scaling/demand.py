"""How many requests arrive: told from noise, seen early, and never hidden by overload.

First tokens count what was served, not what came: where a queue grows, arrivals are first tokens plus the growth of
the queue. Three readings are kept, from slow to fast, and a faster one counts only where it cannot be chance.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from operator import attrgetter, mul

from tierkeeper.slo.model import Traffic
from tierkeeper.values import value

#: Arrivals come in bunches: their count varies more than a Poisson process by this factor, until the minutes of the
#: tier have shown their own (gaps of the Azure 2023 trace have a coefficient of variation of 1.09, so 1.2; chat clients
#: of ServeGen 1 to 3). It counts as much as so many of them.
BUNCHING, BUNCHING_WEIGHT = 2.0, 5.0

#: Most loads bunch less than this from minute to minute: nine in ten quarters of an hour of the recorded weeks. What
#: differs more may be the edge of a burst; it has two, and each may lie across a minute.
MOST_BUNCHING, BURST_EDGES = 5.0, 4

#: A faster reading must lie this many standard deviations above the slower one: one false alarm in 160 looks.
CERTAIN = 2.5

#: Gauges are compared over at least this long: two scrapes of 15 s.
LOOK_BACK_SECONDS, SCRAPE_SECONDS = 30.0, 15.0

#: The rates of ``Traffic`` look back over the shortest window.
RATE_SECONDS = 60.0

#: So long after a leap of the cap what finishes tells of the leap: a minute, half of one in which sequences that began
#: together end together, and the two scrapes that are compared.
STEADY_SECONDS = 120.0

#: Looks and minutes that are kept.
LOOKS_SECONDS = 75.0
MINUTES = 15

#: The mean of so many minutes is the slow reading.
SLOW_MINUTES = 5

#: Minutes of the shorter of the two lines by which a trend is read.
SHORT_MINUTES = 7


@value(frozen=True, slots=True)
class Look:
    """The gauges at one tick."""

    at: float
    waiting: float
    present: float
    """Requests in the pool: running and waiting."""
    finished: float
    """Requests a second that finished, over the RATE_SECONDS before."""
    pods: int = 0
    """Pods that were seen. A young pod serves before it is seen, so looks at unlike numbers cannot be compared."""


@value(frozen=True, slots=True)
class Minute:
    """Arrivals a second over one minute that ended at ``at``."""

    at: float
    rate: float
    work: float
    """The same in seconds of work a second: the mix may change while the rate does not."""


@value(frozen=True, slots=True)
class Stretch:
    """The least-squares line through some minutes, in seconds of work a second: another mix only scales it."""

    mean: float
    slope: float
    """A second."""
    off: float
    """Mean of the squares by which the minutes lie off the line."""
    spread: float
    """Root of the squares of the times added up; seconds after the middle."""
    end: float
    """Time of the last minute, in seconds after the middle."""

    @classmethod
    def of(cls, times: Sequence[float], works: Sequence[float]) -> Stretch:
        """At least three minutes: when each ended, and its work."""
        count = len(works)
        mean, middle = sum(works) / count, sum(times) / count
        times, works = [at - middle for at in times], [work - mean for work in works]
        squares = sum(map(mul, times, times))
        slope = sum(map(mul, times, works)) / squares
        off = max(sum(map(mul, works, works)) - slope * slope * squares, 0.0) / (count - 2)
        return cls(mean, slope, off, math.sqrt(squares), times[-1])


class Minutes(tuple[Minute, ...]):
    """The last minutes, older first, and what follows from them alone: worked out once a minute, for ticks are more
    frequent."""

    @cached_property
    def bunching(self) -> float:
        return bunching_of(self)

    @cached_property
    def stretches(self) -> tuple[Stretch, ...]:
        """By which a trend is read: first the short line, which follows a turn, then the long one, which tells a slow
        slope from noise."""
        spans = [span for span in (SHORT_MINUTES, MINUTES) if len(self) >= min(span, SLOW_MINUTES + 1)]
        times, works = [minute.at for minute in self], [minute.work for minute in self]
        return tuple([Stretch.of(times[-span:], works[-span:]) for span in spans])

    @cached_property
    def flat(self) -> bool:
        """Whether the short line is known and does not rise by more than a standard deviation of its slope."""
        short = next(iter(self.stretches), None)
        return short is not None and short.slope <= math.sqrt(short.off) / short.spread


@value(frozen=True, slots=True)
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
    settled: float | None = None
    """The level by whole minutes alone, where the last scrape or two show more; None: they do not."""


_AT = attrgetter("at")


def look(looks: Sequence[Look], *, now: float, traffic: Traffic) -> tuple[Look, ...]:
    """The looks, older first, with this one."""
    start, end = bisect_left(looks, now - LOOKS_SECONDS, key=_AT), bisect_left(looks, now, key=_AT)
    present = traffic.running + traffic.waiting
    return (*looks[start:end], Look(now, traffic.waiting, present, traffic.finished_per_second, traffic.observed_pods))


def arrivals(looks: Sequence[Look], *, traffic: Traffic, share_seen: float) -> float:
    """Arrivals a second over the last minute: first tokens, growth of the queue, rejections.

    ``share_seen``: observed pods / ready pods; those that are not seen are taken to carry as much as the others.
    """
    growth = 0.0
    if looks and looks[-1].at - looks[0].at >= LOOK_BACK_SECONDS - 1.0:
        growth = (looks[-1].waiting - looks[0].waiting) / (looks[-1].at - looks[0].at)
    seen = traffic.requests_per_second + traffic.rejected_per_second + growth
    return max(seen, 0.0) / share_seen


def minute_over(minutes: Minutes, *, now: float, rate: float, work: float) -> Minutes:
    """The minutes with this one, once a whole minute lies behind the last. ``work``: seconds that a request costs."""
    if minutes and now - minutes[-1].at < 60.0:
        return minutes
    return Minutes((*minutes, Minute(now, rate, rate * work))[-MINUTES:])


def demand(looks: Sequence[Look], minutes: Minutes, *, rate: float, work: float, steady: bool = True) -> Demand:
    """What arrives now. ``rate`` is the last minute's arrivals a second, ``work`` the seconds that a request costs;
    ``steady``: the cap has made no leap for STEADY_SECONDS."""
    bunching = minutes.bunching
    settled, counted = _level(minutes, rate, bunching)
    level = settled
    for jump, seconds in _jumps(looks, steady=steady):
        # Two stretches of that length are compared, the one that ends now and the one that has left the minute.
        if jump > level + CERTAIN * math.sqrt(2.0) * deviation(level, seconds, bunching):
            level = jump
    found = _with_trend(level, deviation(level, 60.0 * counted, bunching), minutes, bunching, work)
    if level == settled:
        return found
    return dataclasses.replace(found, settled=_with_trend(settled, found.doubt, minutes, bunching, work).level)


def _level(minutes: Sequence[Minute], rate: float, bunching: float) -> tuple[float, int]:
    """The mean of as many of the last SLOW_MINUTES as belong together with the present rate, and how many those are.

    From the newest back, each minute is held against the mean of what is newer: where they cannot be one load, a step
    lies between, and what was before it says nothing of now. Held against all minutes at once, a busy minute among four
    quiet ones would pass for noise: 3.0, 0.8 and now 0.5 requests/s have a mean of 1.9 with a deviation of 0.3, and 3.0
    against the 0.65 of the newer two is another load.
    """
    newer, counted = rate, 1
    total, kept = 0.0, 0
    least, certain = 1.0 / 60.0, CERTAIN * CERTAIN * bunching / 60.0  # ``deviation`` over a minute, squared
    for minute in reversed(minutes[-SLOW_MINUTES:]):
        one = minute.rate
        both = (one + counted * newer) / (counted + 1)
        apart = one - newer
        if apart * apart > certain * (both if both > least else least) * (1.0 + 1.0 / counted):
            break
        total += one  # the present rate looks back into the newest minute and is not counted twice
        kept += 1
        newer, counted = total / kept, kept
    return (newer, counted) if kept > 1 else (rate, 1)


def deviation(rate: float, seconds: float, bunching: float) -> float:
    """Standard deviation of a rate counted over so many seconds, at least that of one request."""
    least = 1.0 / seconds
    return math.sqrt(bunching * (rate if rate > least else least) / seconds)


def bunching_of(minutes: Sequence[Minute]) -> float:
    """Variance over mean of a minute's count. From differences of neighbours, which no slow trend enters. Steps of the
    load are no noise: the largest difference is left out, and the next three where no noise reaches them.

    Two minutes of 3.5 and 1.8 requests/s: 60 * 1.7 ** 2 / 5.3 = 33, that of 20 and 22: 60 * 2 ** 2 / 42 = 5.7. A burst
    of two minutes after a minute of calm is all edges: so few differences count for no more than most loads bunch. Nor
    is their mean ever more than noise reaches. Bursts of three minutes every three leave few that are no edges: 40 and
    0.2 requests/s in turn showed 160, by which 34/s differed from the 0.2 that arrive by chance alone.
    """
    rates = [minute.rate for minute in minutes]
    shown = [60.0 * (b - a) ** 2 / max(a + b, 1.0 / 60.0) for a, b in itertools.pairwise(rates)]
    noise, reach = sorted(shown)[:-1], CERTAIN**2 * MOST_BUNCHING
    while noise and len(noise) > len(shown) - BURST_EDGES and noise[-1] > reach:
        noise.pop()
    if len(shown) < SHORT_MINUTES:
        noise = [min(one, MOST_BUNCHING) for one in noise]
    return min((sum(noise) + BUNCHING * BUNCHING_WEIGHT) / (len(noise) + BUNCHING_WEIGHT), reach)


def _jumps(looks: Sequence[Look], *, steady: bool) -> list[tuple[float, float]]:
    """Arrivals a second over the last two scrapes and over the last one, and their seconds: what finished, and what is
    present more than before. Half of two scrapes may lie before a step: one is enough where it cannot be chance.

    A rate looks back a minute, so what finished in the last 15 s is told by how much it moved: 20/s that have become 23
    are 20 + 3 * 60 / 15 = 32, if nothing changed in the 15 s that left the minute meanwhile. Where no queue grows, what
    finishes faster than before comes from a backlog, and counts for no more than the minute says. No more does it soon
    after a leap of the cap (not ``steady``): a batch three times as large first stands still over its prompts, and when
    that leaves the minute, 40/s that arrive look like 58.
    """
    if not looks:
        return []
    last, found = looks[-1], []
    for span in (LOOK_BACK_SECONDS, SCRAPE_SECONDS):
        first = _before(looks, span - 1.0)
        if first is not None:
            seconds = last.at - first.at
            finished = first.finished + (last.finished - first.finished) * RATE_SECONDS / seconds
            if last.waiting <= first.waiting or not steady:
                finished = min(finished, last.finished)
            found.append((max(finished, 0.0) + (last.present - first.present) / seconds, seconds))
    return found


def _before(looks: Sequence[Look], seconds: float) -> Look | None:
    """The newest look at least so long before the last one; None where there is none, or other pods were seen since."""
    last = looks[-1]
    for one in reversed(looks):
        if one.pods != last.pods:
            return None
        if last.at - one.at >= seconds:
            return one
    return None


def _with_trend(level: float, doubt: float, minutes: Minutes, bunching: float, work: float) -> Demand:
    """The least-squares line through the last minutes, where its slope cannot be chance; else the level alone."""
    for stretch in minutes.stretches:
        line = _line(stretch, bunching, work)
        if line is not None:
            end, slope = line
            # A mean over five minutes is 2.5 minutes old: on a slope the line's end is the better reading of now.
            return Demand(max(level, end) if slope > 0 else level, slope, len(minutes), doubt)
    return Demand(level, 0.0, len(minutes), doubt)


def _line(stretch: Stretch, bunching: float, work: float) -> tuple[float, float] | None:
    """Value at the end and slope of the line through the minutes, in requests of the present mix; None where the slope
    may be chance, or the minutes lie off the line by more than that: steps are no trend."""
    mean, slope = stretch.mean / work, stretch.slope / work
    noise = CERTAIN * deviation(mean, 60.0, bunching)
    if abs(slope) * stretch.spread <= noise or stretch.off > (noise * work) ** 2:
        return None
    return mean + slope * stretch.end, slope
