"""What will arrive once a replica that is asked for now is Ready: three ways to say it, and a score that picks one.

"As now" is always one of them. Another is used only while it has missed by less: a forecast is never worse than none.
"""

from __future__ import annotations

import math
from enum import StrEnum

from tierkeeper.scaling.demand import Demand
from tierkeeper.scaling.evolve import evolve
from tierkeeper.values import value

#: History is kept in quarters of an hour, for a week and a quarter more.
SLOT_SECONDS = 900.0
SLOTS = 7 * 96 + 1
PERIODS_SECONDS = (86400.0, 7 * 86400.0)

#: Missing a rate from below costs latency, from above a replica for a while: pinball loss at 0.8.
SHORT_COST, EXCESS_COST = 4.0, 1.0

#: Scores forget over this many forecasts: about a day at one in five minutes.
SCORE_MEMORY = 300.0

#: One forecast is put to the test at a time, this long apart at least.
TEST_EVERY_SECONDS = 300.0

#: A season counts once it has been put to the test so often, and must be better by a tenth.
SEASON_TESTS = 12
SEASON_GAIN = 0.9

#: A forecast never goes further than this from what is there now, either way.
MOST_GROWTH = 2.0


class Way(StrEnum):
    NONE = "none"
    TREND = "trend"
    SEASON = "season"


@value(frozen=True, slots=True)
class Test:
    """A forecast whose time has not come."""

    due: float
    said: tuple[float, float, float | None]
    """By way, in their order; the season None while there is no history."""


@value(frozen=True, slots=False)
class Forecaster:
    """State of one tier's forecast."""

    slots: tuple[float, ...] = ()
    """Mean arrivals a second by quarter of an hour, the newest last; the quarters end at ``slot_at``."""
    slot_at: float | None = None
    slot_sum: float = 0.0
    slot_count: int = 0
    tests: tuple[Test, ...] = ()
    losses: tuple[float, float, float] = (0.0, 0.0, 0.0)
    season_tests: int = 0

    @property
    def way(self) -> Way:
        """The way with the best score; a trend that is told from noise has the benefit of the doubt."""
        none, trend, season = self.losses
        best = Way.TREND if trend <= none else Way.NONE
        if self.season_tests >= SEASON_TESTS and season < SEASON_GAIN * min(none, trend):
            return Way.SEASON
        return best


def expected(forecaster: Forecaster, demand: Demand, *, now: float, lead_seconds: float) -> float:
    """Requests a second to be expected ``lead_seconds`` from now."""
    none, trend, season = _said(forecaster, demand, now=now, lead_seconds=lead_seconds)
    way = forecaster.way
    if way is Way.TREND:
        return trend
    return season if way is Way.SEASON and season is not None else none


def observe(forecaster: Forecaster, demand: Demand, *, now: float, lead_seconds: float) -> Forecaster:
    """The forecaster after a tick: history, due tests, and the next test."""
    forecaster = _record(forecaster, now=now, rate=demand.level)
    due = [test for test in forecaster.tests if test.due <= now]
    for test in due:
        forecaster = _score(forecaster, test, actual=demand.level)
    pending = tuple(test for test in forecaster.tests if test.due > now) if due else forecaster.tests
    asked = max((test.due - lead_seconds for test in pending), default=-math.inf)
    if now - asked >= TEST_EVERY_SECONDS and demand.minutes > 0:
        said = _said(forecaster, demand, now=now, lead_seconds=lead_seconds)
        pending = (*pending, Test(now + lead_seconds, said))
    elif not due:
        return forecaster
    return evolve(forecaster, tests=pending)


def _said(
    forecaster: Forecaster, demand: Demand, *, now: float, lead_seconds: float
) -> tuple[float, float, float | None]:
    level = demand.level
    trend = level + demand.slope * lead_seconds
    season = _season(forecaster, level, now=now, lead_seconds=lead_seconds)
    low, high = level / MOST_GROWTH, level * MOST_GROWTH
    return level, min(max(trend, low), high), None if season is None else min(max(season, low), high)


def _season(forecaster: Forecaster, level: float, *, now: float, lead_seconds: float) -> float | None:
    """Today's level times what the same time of day (or of the week) did next: yesterday 8 to 10, today 12 to 15."""
    if len(forecaster.slots) < 2:
        return None
    factors = []
    for period in PERIODS_SECONDS:
        before = _past(forecaster, now - period)
        after = _past(forecaster, now + lead_seconds - period) if before is not None else None
        if before is not None and after is not None and before > 0:
            factors.append(after / before)
    return level * sum(factors) / len(factors) if factors else None


def _past(forecaster: Forecaster, at: float) -> float | None:
    """The rate at a past time, straight between the middles of two quarters."""
    if forecaster.slot_at is None:
        return None
    place = len(forecaster.slots) - 0.5 - (forecaster.slot_at - at) / SLOT_SECONDS
    low = math.floor(place)
    if low < 0 or low + 1 >= len(forecaster.slots):
        return None
    share = place - low
    return forecaster.slots[low] * (1 - share) + forecaster.slots[low + 1] * share


def _record(forecaster: Forecaster, *, now: float, rate: float) -> Forecaster:
    start = forecaster.slot_at
    if start is None:
        return evolve(forecaster, slot_at=now, slot_sum=rate, slot_count=1)
    if now - start < SLOT_SECONDS:
        return evolve(forecaster, slot_sum=forecaster.slot_sum + rate, slot_count=forecaster.slot_count + 1)
    mean = forecaster.slot_sum / max(forecaster.slot_count, 1)
    ended = min(int((now - start) // SLOT_SECONDS), SLOTS)
    return evolve(
        forecaster,
        slots=(*forecaster.slots, *([mean] * ended))[-SLOTS:],
        slot_at=start + int((now - start) // SLOT_SECONDS) * SLOT_SECONDS,
        slot_sum=rate,
        slot_count=1,
    )


def _score(forecaster: Forecaster, test: Test, *, actual: float) -> Forecaster:
    # By what came or what there was, whichever is more: a pool that falls idle would else outweigh a week of errors.
    scale = max(actual, test.said[0])
    if scale <= 0.0:
        return forecaster
    kept = 1.0 - 1.0 / SCORE_MEMORY
    season = test.said[2] if test.said[2] is not None else test.said[0]
    said = (test.said[0], test.said[1], season)
    none, trend, seasonal = (
        kept * loss + _loss(value, actual) / scale for loss, value in zip(forecaster.losses, said, strict=True)
    )
    tests = forecaster.season_tests + (test.said[2] is not None)
    return evolve(forecaster, losses=(none, trend, seasonal), season_tests=tests)


def _loss(said: float, actual: float) -> float:
    return SHORT_COST * (actual - said) if said < actual else EXCESS_COST * (said - actual)
