"""How much of the error budget load may cost now: all of it while the past hours are clean, little once it is spent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scaling.story import KEY, slo
from tierkeeper.scaling.pace import LEAST, MOST, allowed_share
from tierkeeper.slo.model import Assessment, Ratio, SignalState, Sli, SloAssessment, WindowSli
from tierkeeper.tier import Objective

P99 = Objective(ratio=0.99, ttft_seconds=1.5)


def spent(
    *,
    hours: float = 0.0,
    half_hour: float = 0.0,
    total: float = 50_000.0,
    left: float | None = None,
    period: float | None = None,
):
    windows = tuple(
        WindowSli(seconds, total * seconds / 21600, Ratio(*[burn * 0.01] * 3), Ratio(*[burn] * 3))
        for seconds, burn in ((1800, half_hour), (21600, hours))
    )
    ttft = SloAssessment(
        Sli.TTFT, 1.5, SignalState.OK, "Ok", "", windows=windows, budget_left=left, period_requests=period
    )
    return Assessment(KEY, SignalState.OK, "Ok", "", slos={Sli.TTFT: ttft})


def test_clean_hours_allow_the_whole_budget_and_never_more():
    assert allowed_share(P99, spent()) == MOST == 1.0


def test_half_of_it_spent_allows_a_little_more_than_half():
    assert allowed_share(P99, spent(hours=0.57)) == pytest.approx(0.57, abs=0.03)


def test_seven_tenths_spent_leave_the_rest_for_what_cannot_be_foreseen():
    assert allowed_share(P99, spent(hours=0.72)) == LEAST


def test_a_bad_half_hour_slows_before_it_shows_in_the_hours():
    assert allowed_share(P99, spent(hours=0.1, half_hour=1.5)) == LEAST


def test_a_handful_of_requests_is_no_record():
    assert LEAST < allowed_share(P99, spent(hours=5.0, total=20)) < MOST


@pytest.mark.parametrize(("left", "share"), [(0.6, 1.0), (0.35, 0.625), (0.2, LEAST), (-1.0, LEAST)])
def test_a_period_that_runs_low_warns_then_freezes(left, share):
    """50 % warns, 80 % freezes: in between the spending slows."""
    assert allowed_share(P99, spent(left=left)) == pytest.approx(share, abs=0.01)


def test_of_a_period_that_has_just_begun_the_hours_know_more_than_its_own_figure():
    """A quarter of an hour of a month spent nine tenths of its own budget: the hours, that hold it, half of theirs."""
    just_begun = spent(hours=0.4, left=0.08, total=50_000, period=30_000)
    assert allowed_share(P99, just_begun) == allowed_share(P99, spent(hours=0.4)) > 0.9


def test_the_longer_a_period_is_on_record_the_more_its_figure_counts():
    """0.35 left allow 0.625; where half of the record is older than the hours, half of that caution."""
    half, nearly_all = (spent(left=0.35, total=50_000, period=requests) for requests in (100_000, 5_000_000))
    assert allowed_share(P99, half) == pytest.approx(0.8125, abs=0.01)
    assert allowed_share(P99, nearly_all) == pytest.approx(0.625, abs=0.01)


@given(less=st.floats(0, 3), more=st.floats(0, 3), left=st.floats(-2, 1))
def test_who_has_spent_more_may_spend_less(less, more, left):
    lower = allowed_share(P99, spent(hours=less, left=left))
    higher = allowed_share(P99, spent(hours=less + more, left=left))
    assert LEAST <= higher <= lower <= MOST


def test_both_promises_share_one_budget():
    one = slo(Sli.TTFT, threshold=1.5, burn=0.4)
    both = Assessment(
        KEY, SignalState.OK, "Ok", "", slos={Sli.TTFT: one, Sli.TPOT: slo(Sli.TPOT, threshold=0.1, burn=0.4)}
    )
    alone = Assessment(KEY, SignalState.OK, "Ok", "", slos={Sli.TTFT: one})
    assert allowed_share(P99, both) <= allowed_share(P99, alone)
