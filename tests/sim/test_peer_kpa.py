"""Knative's windows: a minute for calm, six seconds for panic."""

from __future__ import annotations

from tests.sim.laws import Seen, Story
from tierkeeper.sim.peers.kpa import KpaLaw, KpaSettings


def story(*, replicas: int, **settings: float) -> Story:
    law = KpaLaw(KpaSettings(container_concurrency=10.0, **settings))
    return Story(law, step=2.0, seen=Seen(replicas=replicas, ready=replicas))


def test_the_average_of_a_minute_is_divided_by_seventy_percent_of_a_pod():
    # 12 requests on one pod: 12 / 7 = 1.7, so 2 pods.
    assert story(replicas=1).tick(load=12.0) == 2


def test_a_target_is_seventy_percent_of_the_cap_where_no_concurrency_is_given():
    kpa = Story(KpaLaw(), step=2.0, seen=Seen(replicas=1, ready=1, max_num_seqs=20))
    assert kpa.tick(load=14.0) == 1
    kpa = Story(KpaLaw(), step=2.0, seen=Seen(replicas=1, ready=1, max_num_seqs=20))
    assert kpa.tick(load=15.0) == 2


def test_a_burst_of_six_seconds_starts_a_panic_and_is_answered_at_once():
    kpa = story(replicas=1)
    assert kpa.until(60, load=5.0) == [1] * 30
    # Three samples of 42 fill the six seconds: 42 / 7 = 6 pods, while the minute says (27 * 5 + 3 * 42) / 30 / 7 = 1.2.
    assert [kpa.tick(load=42.0, ready=1) for _ in range(3)] == [3, 5, 6]


def test_nothing_shrinks_while_it_panics_and_for_a_minute_after():
    kpa = story(replicas=1)
    kpa.until(60, load=5.0)
    for _ in range(3):
        kpa.tick(load=42.0, ready=1)
    # It was last over the threshold at 66 s, and ends more than 60 s after that.
    assert set(kpa.until(126, load=0.5)) == {6}
    assert kpa.tick(load=0.5) == 3


def test_a_step_down_is_at_most_half():
    kpa = story(replicas=1)
    kpa.until(60, load=1.0)
    kpa.seen = Seen(replicas=9, ready=9)
    assert kpa.tick(load=0.0) == 4


def test_more_than_one_pod_at_the_start_is_a_panic_until_a_minute_is_seen():
    kpa = story(replicas=3)
    assert set(kpa.until(62, load=0.5)) == {3}
    assert kpa.tick(load=0.5) == 1


def test_the_scale_down_delay_holds_the_highest_answer():
    kpa = story(replicas=1, scale_down_delay_seconds=180.0)
    assert kpa.tick(load=12.0) == 2
    # From one pod to two is a panic, which answers 2 up to 62 s.
    assert set(kpa.until(62 + 179, load=0.0)) == {2}
    assert kpa.tick(load=0.0) == 1


def test_without_a_sample_nothing_is_done():
    kpa = story(replicas=4)
    assert kpa.tick(loads=()) == 4


def test_a_pod_that_was_not_scraped_is_taken_for_an_average_one():
    kpa = story(replicas=4)
    assert kpa.tick(loads=(14.0, 14.0, 14.0)) == 8  # 4 * 14 / 7
