"""Arrivals: what a queue hides is counted, a step is seen within two looks, noise is not followed, a trend is."""

import random

import pytest

from tierkeeper.scaling.demand import Demand, Look, Minute, arrivals, demand, look, minute_over
from tierkeeper.slo.model import Traffic

TICK = 15.0


def minutes(*rates: float, work: float = 1.0) -> tuple[Minute, ...]:
    return tuple(Minute(60.0 * k, rate, rate * work) for k, rate in enumerate(rates))


def seen(before: tuple[Minute, ...], *, rate: float, looks: tuple[Look, ...] = (), finished: float = 0.0) -> Demand:
    return demand(looks, before, rate=rate, work=1.0, traffic=Traffic(finished_per_second=finished))


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


def test_a_step_is_seen_in_the_gauges_before_the_minute_shows_it():
    """20/s double: after 30 s the minute says 26, but 300 more requests are present than were."""
    looks = tuple(Look(k * TICK, 0.0, 120.0, 4) for k in range(3)) + tuple(
        Look((3 + k) * TICK, 0.0, 120.0 + 200.0 * (k + 1), 4) for k in range(2)
    )
    found = seen(minutes(*[20] * 6), rate=26.0, looks=looks, finished=24.0)
    assert found.level == pytest.approx(24 + 400 / 30)


def test_a_pod_that_has_just_come_into_view_is_no_step():
    looks = (Look(0, 0, 100.0, 2), Look(15, 0, 100.0, 2), Look(30, 0, 300.0, 3))
    assert seen(minutes(*[20] * 6), rate=20.0, looks=looks, finished=20.0).level == pytest.approx(20.0)


def test_a_slow_rise_is_a_trend_and_a_flat_noise_is_none():
    rising = seen(minutes(*[20 + 0.8 * k for k in range(15)]), rate=31.0)
    assert rising.slope * 60 == pytest.approx(0.8)
    rng = random.Random(3)
    flat = seen(minutes(*[20 + rng.gauss(0, 0.8) for _ in range(15)]), rate=20.0)
    assert flat.slope == 0.0


def test_prompts_that_grow_are_a_trend_though_the_rate_is_flat():
    growing = tuple(Minute(60.0 * k, 20.0, 20.0 * (1 + 0.1 * k)) for k in range(10))
    found = demand((), growing, rate=20.0, work=1.9, traffic=Traffic())
    assert found.level >= 20.0
    assert found.slope * 60 == pytest.approx(2.0 / 1.9)


def test_minutes_are_kept_a_minute_apart():
    kept: tuple[Minute, ...] = ()
    for k in range(40):
        kept = minute_over(kept, now=k * TICK, rate=1.0, work=1.0)
    assert [m.at for m in kept] == [60.0 * k for k in range(10)]
