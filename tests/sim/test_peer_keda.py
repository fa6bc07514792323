"""KEDA on P99 TTFT: value or average, and what is read as idle."""

from __future__ import annotations

from tests.sim.laws import Seen, Story
from tierkeeper.sim.peers.keda import KedaLaw, KedaSettings


def four_pods(**changes: object) -> Seen:
    return Seen(replicas=4, ready=4, **changes)  # type: ignore[arg-type]


def test_twice_the_target_doubles_the_ready_pods():
    assert Story(KedaLaw(), seen=four_pods()).tick(ttft_seconds=3.0) == 8


def test_pods_that_load_are_left_out_of_a_value():
    assert Story(KedaLaw(), seen=four_pods()).tick(ttft_seconds=3.0, ready=2) == 4


def test_an_average_value_takes_the_quotient_for_the_number_of_replicas():
    law = KedaLaw(KedaSettings(metric_type="AverageValue"))
    assert Story(law, seen=four_pods()).tick(ttft_seconds=15.0) == 8  # 10 are wanted, 8 the rate allows
    law = KedaLaw(KedaSettings(metric_type="AverageValue"))
    assert Story(law, seen=four_pods()).until(330, ttft_seconds=1.4)[-1] == 1


def test_a_lost_metric_reads_as_idle_and_drains_the_pool():
    assert Story(KedaLaw(), seen=four_pods()).until(330, ttft_seconds=None)[-1] == 0


def test_a_lost_metric_holds_where_null_values_are_errors():
    law = KedaLaw(KedaSettings(ignore_null_values=False))
    assert set(Story(law, seen=four_pods()).until(900, ttft_seconds=None)) == {4}


def test_a_source_that_is_down_holds():
    assert set(Story(KedaLaw(), seen=four_pods()).until(900, ttft_seconds=None, reachable=False)) == {4}


def test_a_cached_metric_is_polled_every_thirty_seconds():
    story = Story(KedaLaw(KedaSettings(use_cached_metrics=True)), seen=four_pods())
    assert story.tick(ttft_seconds=1.5) == 4
    assert story.tick(ttft_seconds=3.0) == 4
    assert story.tick(ttft_seconds=3.0) == 8


def test_a_tier_without_a_ttft_target_is_left_alone():
    assert Story(KedaLaw(), seen=four_pods(ttft_target_seconds=None)).tick(ttft_seconds=9.0) == 4
