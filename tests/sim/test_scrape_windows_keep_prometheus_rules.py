"""The rules of range and instant vectors, each on figures small enough to work out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierkeeper.sim.tsdb import Subquery, Tsdb

MINUTE = 60_000
START = 1_700_006_400_000


def store(*values: float | None, every: int = 15_000, gauge: float = 0.0) -> Tsdb:
    """One pod with one counter and one gauge, scraped so often; None is a scrape that failed."""
    made = Tsdb(counters=1, gauges=1, interval_ms=every, range_ms=30 * MINUTE)
    for number, value in enumerate(values):
        at = START + number * every
        made.next_round(at)
        if value is None:
            made.mark_stale("a", at)
        else:
            made.append("a", at, np.array([value, gauge]))
    return made


def increase(made: Tsdb, *, at: int, seconds: int) -> list[float]:
    return made.increases(at_ms=START + at * 1000, range_ms=seconds * 1000, columns=slice(0, 1))[:, 0].tolist()


def test_an_increase_is_stretched_to_the_borders_of_its_range() -> None:
    """Samples at 15 .. 60 s grow by 30 in 45 s; the range (5, 65] is 60 s long: 30 x 60 / 45 = 40."""
    assert increase(store(100, 110, 120, 130, 140), at=65, seconds=60) == pytest.approx([40.0])


def test_a_range_excludes_its_left_end() -> None:
    """At 60 s the range (0, 60] holds the samples at 15 .. 60 s: 30 in 45 s, stretched by 15 s."""
    assert increase(store(100, 110, 120, 130, 140), at=60, seconds=60) == pytest.approx([40.0])


def test_a_far_border_is_approached_by_half_a_distance() -> None:
    """The pod began at 0 s in a range from -285 s: 30 in 45 s, stretched by 7.5 s before and 15 s after."""
    assert increase(store(1000, 1010, 1020, 1030), at=60, seconds=345) == pytest.approx([30 * 67.5 / 45])


def test_no_counter_is_stretched_to_before_it_was_zero() -> None:
    """2 at the first sample and 10 a distance: zero lies 3 s before it, not 7.5 s."""
    assert increase(store(2, 12, 22, 32), at=45, seconds=345) == pytest.approx([30 * 48 / 45])


def test_a_reset_is_no_fall() -> None:
    """110, then 5 and 15: grown by 10 + 5 + 10."""
    assert increase(store(100, 110, 5, 15), at=45, seconds=60) == pytest.approx([25 * 60 / 45])


def test_a_reset_before_the_range_does_not_count_in_it() -> None:
    assert increase(store(100, 5, 105, 115, 125, 135), at=75, seconds=60) == pytest.approx([40.0])


def test_one_sample_tells_no_increase() -> None:
    assert increase(store(100), at=10, seconds=60) == []


def test_lost_scrapes_leave_a_gap_that_is_bridged() -> None:
    assert increase(store(100, None, None, 130, 140), at=60, seconds=75) == pytest.approx([50.0])


def test_a_nan_between_two_samples_is_overlooked_and_at_an_end_it_is_the_answer() -> None:
    assert increase(store(100, float("nan"), 120, 130), at=45, seconds=60) == pytest.approx([40.0])
    assert np.isnan(increase(store(100, 110, 120, float("nan")), at=45, seconds=60)).all()


def test_an_instant_value_is_the_newest_one_and_stays_for_five_minutes() -> None:
    made = store(100, 110)
    names, times, values = made.instant(at_ms=START + 300_000, columns=slice(0, 1))
    assert (names, times.tolist(), values.tolist()) == (["a"], [START + 15_000], [[110.0]])
    assert made.instant(at_ms=START + 315_000, columns=slice(0, 1))[0] == []


def test_a_failed_scrape_ends_an_instant_value_until_the_next_one() -> None:
    made = store(100, None, 120)
    assert made.instant(at_ms=START + 20_000, columns=slice(0, 1))[0] == []
    assert made.instant(at_ms=START + 30_000, columns=slice(0, 1))[2].tolist() == [[120.0]]


def test_the_instant_value_of_a_counter_is_as_scraped_after_resets_too() -> None:
    made = store(100, 5, 3)
    assert made.instant(at_ms=START + 30_000, columns=slice(0, 1))[2].tolist() == [[3.0]]


def test_nothing_after_the_moment_that_is_asked_for_is_seen() -> None:
    made = store(100, 110, 120, 130, 140)
    assert increase(made, at=30, seconds=60) == pytest.approx([20 * 37.5 / 30 + 0])


def test_the_lowest_value_of_a_window_passes_over_nan() -> None:
    made = Tsdb(counters=0, gauges=1, interval_ms=15_000, range_ms=MINUTE)
    for number, value in enumerate([1.0, 5.0, float("nan"), 4.0, 7.0]):
        made.next_round(START + number * 15_000)
        made.append("a", START + number * 15_000, np.array([value]))
    assert made.lowest(at_ms=START + 60_000, range_ms=MINUTE, column=0) == {"a": 4.0}


def test_a_subquery_takes_the_values_at_multiples_of_its_step() -> None:
    """Steps at 0, 60, 120 s see 100, 140, 180: grown by 80 in 120 s; half a step is added on the far left."""
    asked = Subquery(range_ms=10 * MINUTE, step_ms=MINUTE, columns=1)
    made = Tsdb(counters=1, gauges=0, interval_ms=15_000, range_ms=MINUTE, subqueries=[asked])
    for number in range(9):
        made.next_round(START + number * 15_000)
        made.append("a", START + number * 15_000, np.array([100.0 + 10 * number]))
    found = made.stepped_increases(asked, at_ms=START + 120_000)
    assert found.tolist() == [pytest.approx([80 * 150 / 120])]


def test_pods_and_rounds_that_no_range_reaches_are_forgotten_and_the_rest_is_kept() -> None:
    made = Tsdb(counters=1, gauges=0, interval_ms=15_000, range_ms=MINUTE)
    for number in range(2000):
        at = START + number * 15_000
        made.next_round(at)
        made.append("old" if number < 10 else "young", at, np.array([float(number)]))
    found = made.increases(at_ms=START + 1999 * 15_000, range_ms=MINUTE, columns=slice(0, 1))
    assert found.tolist() == [pytest.approx([4.0])]
    assert made.instant(at_ms=START + 1999 * 15_000, columns=slice(0, 1))[0] == ["young"]


@given(
    steps=st.lists(st.integers(0, 50), min_size=3, max_size=30),
    resets=st.sets(st.integers(1, 29), max_size=3),
    seconds=st.sampled_from([60, 120, 300]),
)
def test_counters_that_only_grow_or_reset_never_have_a_negative_increase(
    steps: list[int], resets: set[int], seconds: int
) -> None:
    value, values = 0.0, []
    for number, step in enumerate(steps):
        value = float(step) if number in resets else value + step
        values.append(value)
    for at in range(15, 15 * len(values), 15):
        assert all(found >= 0 for found in increase(store(*values), at=at, seconds=seconds))
