"""AIBrix's APA: bands, step bounds, and a cooldown that takes the lowest."""

from __future__ import annotations

from tests.sim.laws import Seen, Story
from tierkeeper.sim.peers.apa import ApaLaw, ApaSettings


def story(replicas: int = 4, **settings: object) -> Story:
    law = ApaLaw(ApaSettings(metric="concurrency", target=10.0, **settings))  # type: ignore[arg-type]
    return Story(law, step=10.0, seen=Seen(replicas=replicas, ready=replicas))


def test_kv_usage_of_one_half_is_what_its_sample_keeps():
    apa = Story(ApaLaw(), step=10.0, seen=Seen(replicas=4, ready=4))
    assert apa.tick(load=5.0, kv_usage=0.75) == 6


def test_inside_the_band_nothing_moves():
    assert story().tick(load=10.9) == 4
    assert story().tick(load=9.1) == 4


def test_outside_the_band_the_ratio_counts():
    assert story().tick(load=11.1) == 5
    assert story().tick(load=5.1) == 3


def test_a_step_at_most_doubles_or_halves():
    assert story().tick(load=100.0) == 8
    assert story().tick(load=0.1) == 2


def test_the_value_is_the_average_of_three_minutes():
    apa = story()
    assert set(apa.until(180, load=10.0)) == {4}
    # 17 samples of 10 and one of 28 average 11: still in the band; one more and it is out.
    assert apa.tick(load=28.0) == 4
    assert apa.tick(load=28.0) == 5


def test_pods_that_load_count_as_idle_when_growing():
    apa = story()
    assert apa.tick(load=20.0) == 8
    assert apa.tick(load=20.0, ready=4) == 8


def test_pods_that_load_count_as_busy_when_shrinking():
    # 2 of 4 ready with 5 each would halve; (2 * 5 + 2 * 10) / 10 = 3 are kept.
    assert story().tick(loads=(5.0, 5.0), ready=2) == 3


def test_the_cooldown_takes_the_lowest_wish_and_so_holds_nothing_back():
    apa = story(window_seconds=10.0)
    assert apa.tick(load=10.0) == 4
    assert apa.tick(load=5.0) == 2


def test_a_cooldown_that_takes_the_highest_holds_for_its_window():
    apa = story(window_seconds=10.0, down_select="max")
    assert apa.tick(load=10.0) == 4
    assert set(apa.until(309, load=5.0)) == {4}
    assert apa.tick(load=5.0) == 2


def test_nothing_is_done_where_no_pod_reports():
    assert story().tick(loads=()) == 4
