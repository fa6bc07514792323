"""The HPA's ratio, its tolerance, its silent pods and its two directions."""

from __future__ import annotations

import pytest

from tests.sim.laws import Seen, Story
from tierkeeper.sim.peers.behavior import DEFAULT, Scale
from tierkeeper.sim.peers.hpa import HpaLaw, HpaSettings, external_average, external_value, pods_metric


def law() -> HpaLaw:
    return HpaLaw(HpaSettings(target_per_pod=10.0))


def test_twice_the_target_doubles_the_pods_at_the_next_sync():
    assert Story(law()).tick(load=20.0) == 4


def test_ten_percent_off_is_near_enough():
    assert Story(law(), seen=Seen(replicas=4, ready=4)).tick(load=11.0) == 4
    assert Story(law(), seen=Seen(replicas=4, ready=4)).tick(load=11.1) == 5


def test_the_target_is_eighty_percent_of_the_cap_where_none_is_given():
    assert Story(HpaLaw(), seen=Seen(replicas=2, ready=2, max_num_seqs=20)).tick(load=16.0) == 2
    assert Story(HpaLaw(), seen=Seen(replicas=2, ready=2, max_num_seqs=20)).tick(load=24.0) == 3


def test_pods_that_load_count_as_idle_so_that_growth_is_not_asked_for_twice():
    story = Story(law())
    assert story.tick(load=20.0) == 4
    assert story.tick(load=20.0, ready=2) == 4


def test_pods_that_load_count_as_busy_so_that_none_is_shed_for_their_silence():
    assert pods_metric([8.0, 8.0], replicas=4, target=10.0, tolerance=0.1) == 4


def test_growth_and_silence_that_turn_the_direction_round_change_nothing():
    assert pods_metric([12.0, 12.0], replicas=4, target=10.0, tolerance=0.1) == 4


def test_growth_is_at_most_double_or_four_more_in_fifteen_seconds():
    story = Story(law(), seen=Seen(replicas=2, ready=2))
    assert story.tick(load=1000.0) == 6
    assert story.tick(load=1000.0, ready=6) == 12
    assert story.tick(load=1000.0, ready=12) == 24


def test_shrinking_waits_until_the_highest_wish_is_300_seconds_old():
    story = Story(law(), seen=Seen(replicas=4, ready=4))
    assert story.tick(load=10.0) == 4
    assert story.until(14 + 300, load=2.5) == [4] * 19
    assert story.tick(load=2.5) == 1


def test_a_wish_in_between_starts_the_wait_anew():
    story = Story(law(), seen=Seen(replicas=4, ready=4))
    story.until(150, load=2.5)
    assert story.tick(load=8.0) == 4  # 3.2 pods: a wish for 4
    assert set(story.until(165 + 299, load=2.5)) == {4}
    assert story.tick(load=2.5) == 1


def test_nothing_is_done_where_no_pod_reports_or_the_source_is_down():
    assert Story(law(), seen=Seen(replicas=4, ready=4)).tick(loads=()) == 4
    assert Story(law(), seen=Seen(replicas=4, ready=4)).tick(load=90.0, reachable=False) == 4


@pytest.mark.parametrize(
    ("replicas", "ready", "value", "wanted"), [(4, 4, 3.0, 8), (4, 2, 3.0, 4), (4, 4, 1.6, 4), (4, 4, 0.0, 0)]
)
def test_an_external_value_scales_the_ready_pods(replicas, ready, value, wanted):
    assert external_value(value, replicas=replicas, ready=ready, target=1.5, tolerance=0.1) == wanted


@pytest.mark.parametrize(("value", "wanted"), [(9.0, 6), (6.5, 4), (6.7, 5), (0.0, 0)])
def test_an_external_average_is_divided_whatever_runs(value, wanted):
    assert external_average(value, replicas=4, target=1.5, tolerance=0.1) == wanted


def test_the_first_sight_of_a_target_is_its_first_recommendation():
    scale = Scale(DEFAULT)
    assert scale.next(now=0.0, current=5, desired=1) == 5
    assert scale.next(now=299.0, current=5, desired=1) == 5
    assert scale.next(now=300.0, current=5, desired=1) == 1
