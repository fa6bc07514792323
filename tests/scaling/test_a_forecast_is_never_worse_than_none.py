"""Trend and season are used while they miss by less than "as now" does, and never go further than twice the level."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tierkeeper.scaling.demand import Demand
from tierkeeper.scaling.forecast import Forecaster, Way, expected, observe

TICK, LEAD, DAY = 60.0, 600.0, 86400.0


def lived(rate, *, seconds: float, slope: float = 0.0) -> Forecaster:
    """``rate``: requests/s, or a function of the time."""
    forecaster, now = Forecaster(), 0.0
    while now < seconds:
        level = rate(now) if callable(rate) else rate
        forecaster = observe(forecaster, Demand(level, slope, 15), now=now, lead_seconds=LEAD)
        now += TICK
    return forecaster


def test_a_trend_that_is_right_is_used():
    forecaster = lived(lambda at: 10 + at / 600, seconds=2 * 3600, slope=1 / 600)
    assert forecaster.way is Way.TREND
    assert expected(forecaster, Demand(20.0, 1 / 600, 15), now=7200.0, lead_seconds=LEAD) == pytest.approx(21.0)


def test_a_trend_that_keeps_missing_is_dropped():
    forecaster = lived(10.0, seconds=2 * 3600, slope=1 / 100)
    assert forecaster.way is Way.NONE
    assert expected(forecaster, Demand(10.0, 1 / 100, 15), now=7200.0, lead_seconds=LEAD) == 10.0


def test_yesterday_tells_of_a_morning_that_no_trend_sees():
    """Each day at nine the load doubles within a quarter of an hour."""

    def rate(at: float) -> float:
        hour = at % DAY / 3600
        return 10 + 10 * min(1.0, max(0.0, (hour - 9) * 4)) - 10 * min(1.0, max(0.0, (hour - 18) * 4))

    forecaster = lived(rate, seconds=3 * DAY)
    assert forecaster.way is Way.SEASON
    before_nine = 3 * DAY + 9 * 3600 - 300
    assert expected(forecaster, Demand(10.0, 0.0, 15), now=before_nine, lead_seconds=LEAD) > 11.5


def test_a_history_without_a_pattern_is_not_used():
    forecaster = lived(lambda at: 10 + 3 * math.sin(at / 7777.0), seconds=3 * DAY)
    assert forecaster.way is not Way.SEASON


def test_an_idle_night_does_not_decide_the_forecast_of_the_day_after():
    """A forecast that falls due when nothing arrives any more missed all of it, and not a billion times nothing."""

    def rate(at: float) -> float:
        return 0.0 if 6 * 3600 <= at < 12 * 3600 else 10.0

    forecaster = lived(rate, seconds=14 * 3600, slope=1 / 100)
    assert max(forecaster.losses) < 1000.0
    assert forecaster.way is Way.NONE


@settings(max_examples=50)
@given(level=st.floats(0, 1e4), slope=st.floats(-100, 100), lead=st.floats(1, 3600))
def test_a_forecast_stays_between_half_and_twice_the_level(level, slope, lead):
    said = expected(Forecaster(), Demand(level, slope, 15), now=0.0, lead_seconds=lead)
    assert level / 2 <= said <= level * 2


def test_history_is_kept_for_a_week_and_no_longer():
    forecaster = lived(10.0, seconds=9 * DAY)
    assert len(forecaster.slots) == 7 * 96 + 1
