"""Arrivals: what a queue hides is counted, a step is seen within two looks, noise is not followed, a trend is."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierkeeper.scaling.demand import (
    Demand,
    Look,
    Minute,
    Minutes,
    arrivals,
    bunching_of,
    demand,
    look,
    minute_over,
)
from tierkeeper.slo.model import Traffic

TICK = 15.0


def minutes(*rates: float, work: float = 1.0) -> Minutes:
    return Minutes(Minute(60.0 * k, rate, rate * work) for k, rate in enumerate(rates))


def seen(before: Minutes, *, rate: float, looks: tuple[Look, ...] = ()) -> Demand:
    return demand(looks, before, rate=rate, work=1.0)


def test_a_growing_queue_counts_as_arrivals():
    """4 first tokens a second while the queue grows by 6 a second: 10 arrive."""
    looks: tuple[Look, ...] = ()
    for k in range(5):
        traffic = Traffic(running=32, waiting=6 * TICK * k, requests_per_second=4.0)
        looks = look(looks, now=k * TICK, traffic=traffic)
    assert arrivals(looks, traffic=traffic, share_seen=1.0) == pytest.approx(10.0)


def test_a_draining_queue_is_not_demand():
    looks: tuple[Look, ...] = ()
    for k in range(5):
        traffic = Traffic(running=32, waiting=400 - 6 * TICK * k, requests_per_second=10.0)
        looks = look(looks, now=k * TICK, traffic=traffic)
    assert arrivals(looks, traffic=traffic, share_seen=1.0) == pytest.approx(4.0)


def test_pods_that_are_not_seen_carry_as_much_as_the_others():
    assert arrivals((), traffic=Traffic(requests_per_second=7.0), share_seen=7 / 8) == pytest.approx(8.0)


def test_rejected_requests_arrived_too():
    traffic = Traffic(requests_per_second=4.0, rejected_per_second=1.0)
    assert arrivals((), traffic=traffic, share_seen=1.0) == pytest.approx(5.0)


def test_a_minute_of_noise_is_not_followed():
    """12 requests/s a minute are 720 +- 38 with bunches: 12.9 is chance, 15 is not."""
    steady = minutes(12, 12, 12, 12, 12)
    assert seen(steady, rate=12.9).level == pytest.approx(12.0)
    assert seen(steady, rate=15.0).level == 15.0


def test_what_is_noisy_by_nature_is_believed_later():
    wild = minutes(12, 17, 9, 16, 8, 15, 12, 9, 16)
    assert seen(wild, rate=16.0).level < 16.0


def test_what_came_before_a_step_counts_no_more():
    """Two minutes of a burst between quiet ones: neither the burst's mean nor its edges are held against the quiet."""
    assert seen(minutes(1.0, 1.0, 1.1, 3.5, 3.4, 0.6), rate=0.5).level == 0.5
    assert seen(minutes(1.0, 1.0, 1.1, 3.5, 3.4, 0.6, 0.5), rate=0.5).level == pytest.approx(0.55)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_burst_is_over_wherever_its_edges_lie_in_the_minutes(share):
    """Calm, two minutes of a burst and quiet again, with both edges inside a minute: two quiet minutes say so."""
    rising, falling = 1.0 + share * 2.4, 3.4 - share * 2.9
    assert seen(minutes(1.0, rising, 3.4, falling, 0.6, 0.5), rate=0.5).level < 1.0


@pytest.mark.parametrize("factor", [3.0, 10.0])
def test_the_edges_of_a_burst_are_no_noise(factor):
    rng = random.Random(4)
    calm = [20 + rng.gauss(0, 0.8) for _ in range(12)]
    burst = [*calm[:6], *(factor * rate for rate in calm[6:9]), *calm[9:]]
    quiet = seen(minutes(*calm), rate=20.0).doubt
    assert seen(minutes(*burst), rate=20.0).doubt < 2 * quiet


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_bursts_that_follow_each_other_are_no_noise_without_end(share):
    """40/s and 0.2/s in turn, three minutes each, hardly leave a minute that is no edge. The last burst is over."""
    turn = [0.2 + share * 39.8, 40.0, 40.0, 40.0 - share * 39.8, 0.2, 0.2]
    before = minutes(*[*turn, *turn, *turn][1:-2])
    assert before.bunching < 32.0
    assert seen(before, rate=0.2).level < 1.0


def gauges(*presents: float, finished: tuple[float, ...], pods: int = 4) -> tuple[Look, ...]:
    """A look a tick: what is present, 120 of it running, and what finished a second over the minute before."""
    pairs = zip(presents, finished, strict=True)
    return tuple(
        Look(k * TICK, max(present - 120.0, 0.0), present, left, pods) for k, (present, left) in enumerate(pairs)
    )


def test_a_step_is_seen_in_the_gauges_before_the_minute_shows_it():
    """20/s double. After 30 s a pool that finishes 30/s has 150 more present, and each 15 s have put 15 * 10 more into
    the minute's 20/s: 22.5, 25."""
    looks = gauges(120, 120, 120, 270, 420, finished=(20, 20, 20, 22.5, 25))
    found = seen(minutes(*[20] * 6), rate=25.0, looks=looks)
    assert found.level == pytest.approx(40.0)
    assert found.settled == pytest.approx(25.0)
    assert seen(minutes(*[20] * 6), rate=25.0).settled is None


def test_what_finishes_soon_after_a_leap_of_the_cap_is_no_step():
    """A larger batch first reads all its prompts. When those 15 s without an end leave the minute, 30/s become 34."""
    looks = gauges(600, 610, 620, finished=(30, 30, 34))
    before = minutes(*[32] * 6)
    assert demand(looks, before, rate=32.0, work=1.0).level > 45
    assert demand(looks, before, rate=32.0, work=1.0, steady=False).level == pytest.approx(32.0)


def test_a_backlog_that_drains_is_no_demand_though_much_finishes():
    """40/s arrive, 52 finish while the queue drains, then 40 again: the minute still says 49."""
    looks = gauges(500, 320, 140, 140, 140, finished=(52, 52, 52, 49, 46))
    assert seen(minutes(*[40] * 6), rate=40.0, looks=looks).level == pytest.approx(40.0)


def test_a_pod_that_has_just_come_into_view_is_no_step():
    looks = (Look(0, 0, 100.0, 20.0, 2), Look(15, 0, 100.0, 20.0, 2), Look(30, 0, 300.0, 20.0, 3))
    assert seen(minutes(*[20] * 6), rate=20.0, looks=looks).level == pytest.approx(20.0)


def test_a_slow_rise_is_a_trend_and_a_flat_noise_is_none():
    rising = seen(minutes(*[20 + 0.8 * k for k in range(15)]), rate=31.0)
    assert rising.slope * 60 == pytest.approx(0.8)
    rng = random.Random(3)
    flat = seen(minutes(*[20 + rng.gauss(0, 0.8) for _ in range(15)]), rate=20.0)
    assert flat.slope == 0.0


def test_prompts_that_grow_are_a_trend_though_the_rate_is_flat():
    growing = Minutes(Minute(60.0 * k, 20.0, 20.0 * (1 + 0.1 * k)) for k in range(10))
    found = demand((), growing, rate=20.0, work=1.9)
    assert found.level >= 20.0
    assert found.slope * 60 == pytest.approx(2.0 / 1.9)


def test_minutes_are_kept_a_minute_apart():
    kept = Minutes()
    for k in range(40):
        kept = minute_over(kept, now=k * TICK, rate=1.0, work=1.0)
    assert [m.at for m in kept] == [60.0 * k for k in range(10)]


@given(st.lists(st.tuples(st.floats(0.0, 1000.0), st.floats(0.01, 1.0)), max_size=80))
def test_what_is_kept_of_the_minutes_is_what_they_say_anew(ticks):
    kept = Minutes()
    for number, (rate, work) in enumerate(ticks):
        kept = minute_over(kept, now=number * TICK, rate=rate, work=work)
        anew = Minutes(list(kept))
        assert kept.bunching == bunching_of(list(kept))
        assert kept.stretches == anew.stretches
        assert demand((), kept, rate=rate, work=work) == demand((), anew, rate=rate, work=work)


@pytest.mark.parametrize(
    ("rates", "flat"),
    [
        ((20, 21, 19, 20, 21, 20, 20), True),
        ((32, 30, 28, 26, 24, 22, 20), True),
        ((20, 22, 24, 26, 28, 30, 32), False),
        ((20, 22, 20, 23, 22, 25, 24), False),
        ((20, 20, 20), False),
        ((), False),
    ],
)
def test_a_load_is_flat_once_it_is_known_not_to_rise(rates, flat):
    assert minutes(*rates).flat is flat
