"""Freshness is judged by Prometheus' own clock: the age of each newest sample, and an evaluation time that moves."""

import pytest

from tests.slo.world import EVENING, SCRAPE, Pod, Pool, look, misses
from tierkeeper.slo.model import SignalState


def pool(**ages):
    return Pool(pods={name: Pod(age=age) for name, age in ages.items()}).ttft(misses(400, 2))


@pytest.mark.parametrize(("age", "state"), [(45.0, SignalState.OK), (45.1, SignalState.STALE)])
def test_samples_older_than_three_scrapes_are_stale(age, state):
    seen = look(pool(a=age, b=age))
    assert seen.state is state
    assert 3 * SCRAPE == 45


def test_the_age_is_said():
    seen = look(pool(a=131.0, b=200.0))
    assert seen.reason == "SamplesTooOld"
    assert "131 s old" in seen.message


def test_c07_one_stale_pod_of_eight_does_not_stop_the_others():
    ages = {f"p{n}": 5.0 for n in range(7)} | {"p7": 90.0}
    seen = look(pool(**ages))
    assert seen.state is SignalState.OK
    assert (seen.traffic.observed_pods, seen.traffic.live_pods, seen.traffic.unobserved) == (7, 8, ("p7",))
    assert "7 of 8 pods report" in seen.message


@pytest.mark.parametrize("shift", [-120.0, 0.0, 120.0])
def test_t13_the_operators_clock_has_no_say(shift):
    """Two minutes apart in either direction: ages come as differences on one clock, so nothing changes."""
    seen = look(Pool(at=EVENING).ttft(misses(400, 2)), now=10_000.0 + shift)
    assert (seen.state, seen.traffic.requests_5m) == (SignalState.OK, pytest.approx(400.0))


def test_answers_that_repeat_one_evaluation_time_are_stale():
    frozen = Pool(at=EVENING).ttft(misses(400, 2))
    first = look(frozen, now=1_000.0)
    second = look(frozen, now=1_045.0, previous=first)
    third = look(frozen, now=1_060.0, previous=second)
    assert [s.state for s in (first, second, third)] == [SignalState.OK, SignalState.OK, SignalState.STALE]
    assert third.reason == "EvaluationFrozen"
    assert "60 s" in third.message


def test_two_looks_in_the_same_moment_are_not_frozen():
    frozen = Pool(at=EVENING).ttft(misses(400, 2))
    assert look(frozen, now=1_000.2, previous=look(frozen, now=1_000.0)).state is SignalState.OK


def test_a_clock_that_steps_back_is_not_frozen():
    before = look(Pool(at=EVENING).ttft(misses(400, 2)), now=1_000.0)
    assert look(Pool(at=EVENING - 60).ttft(misses(400, 2)), now=1_100.0, previous=before).state is SignalState.OK


def test_an_outage_does_not_count_as_a_frozen_clock():
    before = look(pool(a=5.0), now=1_000.0)
    down = look(None, live=["a"], now=1_600.0, previous=before, error=("Timeout", "no answer within 5 s"))
    assert look(pool(a=5.0), now=1_615.0, previous=down).state is SignalState.OK


def test_a_pod_without_an_age_is_not_observed():
    nan_age = look(pool(a=float("nan"), b=5.0))
    assert nan_age.traffic.unobserved == ("a",)
