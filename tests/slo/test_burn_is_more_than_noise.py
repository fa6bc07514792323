"""When a burn counts: both windows of a pair exceed its factor, and the long one beyond chance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierkeeper.slo.burn import (
    CONTROL_WINDOWS,
    BurnPair,
    Windows,
    budget_left,
    burn,
    evident,
    pair_burns,
    wilson_lower,
)
from tierkeeper.slo.model import Ratio, WindowSli

FAST, MIDDLE, SLOW = CONTROL_WINDOWS.pairs


def window(seconds, total, share, budget=0.01):
    ratio = Ratio(share, share, share)
    return WindowSli(seconds=seconds, total=total, ratio=ratio, burn=burn(ratio, budget=budget))


def burns(pair, short, long, budget=0.01):
    """``short`` and ``long``: (requests, bad ones)."""
    windows = [
        window(pair.short_seconds, short[0], short[1] / short[0], budget),
        window(pair.long_seconds, long[0], long[1] / long[0], budget),
    ]
    return pair_burns(pair, windows, budget=budget)


@pytest.mark.parametrize(("bad", "total", "above"), [(3, 100, 0.01), (7, 300, 0.01), (10, 500, 0.01), (11, 100, 0.06)])
def test_the_fewest_misses_that_show_a_burn_at_a_one_percent_budget(bad, total, above):
    assert evident(bad / total, total, above=above)
    assert not evident((bad - 1) / total, total, above=above)


@pytest.mark.parametrize("pair", CONTROL_WINDOWS.pairs)
def test_one_bad_request_in_ten_is_no_burn(pair):
    assert not burns(pair, short=(10, 1), long=(10, 1))


def test_ten_percent_bad_over_both_fast_windows_burns():
    assert burns(FAST, short=(60, 6), long=(300, 30))


def test_a_burn_that_is_over_does_not_count():
    assert not burns(FAST, short=(60, 0), long=(300, 60))


def test_a_burn_that_has_just_begun_does_not_count_yet():
    """A minute at 10 % after four good ones: 2 % over 5 minutes is below 6 %."""
    assert not burns(FAST, short=(60, 6), long=(300, 6))


def test_a_window_that_is_not_there_never_burns():
    assert not pair_burns(FAST, [window(60, 1000, 1.0)], budget=0.01)


def test_no_pair_asks_for_more_than_half_of_the_requests_to_fail():
    """At a 90 % objective 6x would be 60 %, at 80 % it would be 120 % and could never fire."""
    assert FAST.error_ratio(0.01) == pytest.approx(0.06)
    assert FAST.error_ratio(0.1) == 0.5
    assert FAST.error_ratio(0.2) == 0.5
    assert burns(FAST, short=(60, 36), long=(300, 180), budget=0.2)


def test_no_pair_burns_within_the_budget():
    assert SLOW.error_ratio(0.6) == 0.6
    assert SLOW.error_ratio(0.01) == 0.01


def test_m07_windows_hold_at_least_four_scrapes():
    """A window as long as the scrape interval never holds the two points that a rate needs."""
    assert CONTROL_WINDOWS.for_scrape_interval(15) == CONTROL_WINDOWS
    assert CONTROL_WINDOWS.for_scrape_interval(60).seconds == (240, 1200, 7200, 86400)


def test_rates_use_the_shortest_window_and_evidence_the_one_beside_it():
    assert (CONTROL_WINDOWS.rate, CONTROL_WINDOWS.evidence) == (60, 300)
    assert Windows((BurnPair(4, 8, 6.0),)).seconds == (4, 8)


@given(st.integers(1, 5000), st.floats(0, 1))
def test_the_wilson_bound_is_a_share_below_the_one_that_was_seen(total, share):
    assert 0.0 <= wilson_lower(share * total, total) <= share + 1e-12


@given(st.floats(0, 1), st.integers(1, 2000), st.integers(2, 5))
def test_more_evidence_of_the_same_share_never_hides_a_burn(share, total, more):
    if evident(share, total, above=0.01):
        assert evident(share, total * more, above=0.01)


@given(st.floats(0.001, 0.9), st.sampled_from(CONTROL_WINDOWS.pairs))
def test_what_a_pair_asks_for_can_happen(budget, pair):
    assert budget <= pair.error_ratio(budget) < 1.0


def test_burn_is_the_error_ratio_over_the_budget():
    assert burn(Ratio(0.01, 0.031, 0.05), budget=0.01).point == pytest.approx(3.1)


def test_budget_left_is_what_the_misses_have_not_spent():
    assert budget_left(error_ratio=0.004, total=100_000, budget=0.01) == pytest.approx(0.6)
    assert budget_left(error_ratio=0.02, total=100_000, budget=0.01) == pytest.approx(-1.0)


def test_one_bad_request_in_a_quiet_month_does_not_overspend_the_budget():
    assert budget_left(error_ratio=0.1, total=10, budget=0.01) is None
