"""Overload: the live cap first while TPOT has room, then replicas, never more while they are coming."""

import dataclasses

import pytest

from tests.scaling.story import START, TICK, Story, tier
from tierkeeper.scaling.model import Lever, Reason
from tierkeeper.slo.model import Sli


def overloaded(**spec) -> Story:
    story = Story(tier(**spec))
    story.tick()
    return story.queue(12).burns(ttft=8.1, p99=0.061)


def test_a_queue_raises_the_cap_at_once_while_tpot_has_room():
    decision = overloaded().tick()
    assert decision.levers.max_num_seqs == 24
    assert decision.reason is Reason.QUEUE_BOUND_RAISE_CAP
    assert decision.message == (
        "raise max-num-seqs 16 → 24: TTFT burns 8.1x its budget over 1 min and 8.1x over 5 min, 12 requests wait, "
        "the queue is 4 s long, TPOT P99 61 ms has room to 100 ms"
    )


def test_an_overload_that_stays_gets_the_cap_then_replicas_within_forty_seconds():
    story = overloaded()
    story.pass_time(35)
    assert story.now - START <= 45
    assert story.changes() == [(Lever.MAX_NUM_SEQS,), (Lever.MAX_NUM_SEQS,), (Lever.REPLICAS,)]
    assert (story.levers.max_num_seqs, story.levers.replicas) == (36, 2)


def test_a_cap_is_raised_only_as_far_as_the_predicted_tpot_allows():
    """10 run at 75 ms; 19 would take 75 x (8.5 + 19 x 0.466) / (8.5 + 10 x 0.466) = 99 ms, 20 would take 102 ms."""
    story = overloaded()
    story.queue(12, running=10).burns(ttft=8.1, p99=0.075)
    assert story.tick().levers.max_num_seqs == 19


def test_without_tpot_room_replicas_come_at_once():
    story = overloaded()
    story.burns(ttft=8.1, p99=0.081)
    decision = story.tick()
    assert decision.changed == (Lever.REPLICAS,)
    assert decision.reason is Reason.QUEUE_BOUND_ADD_REPLICAS


def test_a_p99_in_the_open_top_bucket_is_no_room():
    story = overloaded()
    story.burns(ttft=8.1, p99=0.05, p99_open=True)
    assert story.tick().changed == (Lever.REPLICAS,)


def test_without_a_tpot_objective_the_cap_goes_to_its_maximum_first():
    story = overloaded(tpot=None)
    for _ in range(10):
        story.queue(12).tick()
    assert story.levers.max_num_seqs == 64
    assert story.levers.replicas == 1


def test_without_live_resize_replicas_come_instead_of_a_restart():
    story = overloaded()
    story.pool["live_resize"] = False
    assert story.tick().changed == (Lever.REPLICAS,)


def test_a_full_kv_cache_makes_a_larger_cap_useless():
    story = overloaded()
    story.queue(12, kv_cache_usage=0.95)
    assert story.tick().changed == (Lever.REPLICAS,)


def test_a_queue_before_half_empty_slots_is_not_the_caps_doing():
    story = overloaded()
    story.queue(12, running=4)
    assert story.tick().changed == (Lever.REPLICAS,)


def test_a_kv_cache_at_a_third_does_not_veto_what_the_queue_says():
    story = overloaded()
    story.queue(40, kv_cache_usage=0.32)
    assert story.tick().changed == (Lever.MAX_NUM_SEQS,)


@pytest.mark.parametrize(("waiting", "replicas"), [(2, 3), (12, 4), (500, 4)])
def test_replicas_follow_the_load_and_at_most_double(waiting, replicas):
    story = Story(tier(seqs=(4, 16)), replicas=2)
    story.queue(waiting).burns(ttft=8.0)
    assert story.tick().levers.replicas == replicas


def test_a_stuck_queue_scales_up_though_it_yields_no_bad_sample():
    story = Story(tier(seqs=(4, 16)), replicas=1)
    story.queue(500, requests_per_second=0.2, finished_per_second=0.2).burns(ttft=0.0)
    story.tick()
    assert story.levers.replicas == 1
    story.pass_time(10)
    assert story.levers.replicas == 2
    assert story.decisions[-1].reason is Reason.QUEUE_BOUND_ADD_REPLICAS


def test_a_queue_that_one_look_catches_is_a_blip():
    story = Story()
    story.queue(12).tick()
    story.calm().pass_time(60)
    assert story.changes() == []


def test_without_any_objective_a_queue_that_never_empties_grows_the_pool():
    story = Story(tier(ttft=None, tpot=None, seqs=(4, 16)))
    story.queue(5, floor=0).pass_time(60)
    assert story.decisions[-1].reason is Reason.NO_OBJECTIVE
    story.queue(5).pass_time(15)
    assert story.levers.replicas == 2


def test_starting_pods_are_capacity_to_come():
    """2 Ready, 2 starting, TTFT over its target for 10 ticks: still 4."""
    story = Story(tier(seqs=(4, 16)), replicas=2)
    story.queue(40).burns(ttft=50.0).tick()
    assert story.levers.replicas == 4
    for _ in range(10):
        decision = story.tick()
        assert decision.levers.replicas == 4
    assert decision.reason is Reason.HOLD_STARTING


def test_a_cap_may_still_be_raised_while_pods_load():
    story = Story(tier(seqs=(4, 16)), replicas=2)
    story.queue(40).burns(ttft=50.0).tick()
    story.spec = tier(seqs=(4, 32))
    story.pass_time(15)
    assert (story.levers.replicas, story.levers.max_num_seqs) == (4, 24)


def test_a_new_replica_first_works_off_the_queue():
    story = Story(tier(seqs=(4, 16)))
    story.queue(40).burns(ttft=50.0).tick()
    story.pass_time(60)
    story.pods_become_ready().queue(40)
    story.pass_time(30)
    assert story.levers.replicas == 2
    story.pass_time(TICK)
    assert story.levers.replicas == 4


@pytest.mark.parametrize(("pace", "replicas"), [(10, 2), (1, 4)])
def test_a_queue_that_will_be_gone_within_a_minute_gets_no_replica(pace, replicas):
    """70 wait after 30 s: at 2 requests/s fewer they are gone in 35 s, at 0.2 in six minutes."""
    story = Story(tier(seqs=(4, 16)), replicas=2)
    story.pool["rolling_out"] = True
    for look in range(6):
        story.queue(70 + pace * (6 - look)).tick()
    story.pool["rolling_out"] = False
    story.queue(70).burns(ttft=50.0).tick()
    assert story.levers.replicas == replicas


def test_the_hold_follows_the_measured_start_of_seventeen_minutes():
    story = Story(tier(seqs=(4, 16)))
    story.tick()
    story.queue(40).burns(ttft=50.0).tick()
    story.pass_time(17 * 60)
    assert story.levers.replicas == 2
    story.pods_become_ready().queue(40)
    story.pass_time(70)
    assert story.levers.replicas == 4
    assert story.memory.startup_seconds == pytest.approx(17 * 60, abs=2 * TICK)
    story.pass_time(28 * 60)
    assert story.levers.replicas == 4


def test_a_start_that_is_late_by_the_measured_time_no_longer_holds_growth():
    story = Story(tier(seqs=(4, 16)))
    story.tick()
    story.queue(40).burns(ttft=50.0).tick()
    story.pass_time(40)
    story.pods_become_ready().queue(40)
    story.pass_time(70)
    assert story.levers.replicas == 4
    story.pass_time(90)
    assert story.levers.replicas > 4


def test_overloaded_pods_that_fail_readiness_are_not_starting_ones():
    """All NotReady, series still present, queue high: never down, and up is allowed."""
    story = Story(tier(seqs=(4, 16)), replicas=3)
    story.queue(60).burns(ttft=50.0)
    story.ready, story.observed = 0, 3
    decision = story.tick()
    assert decision.levers.replicas == 6


def test_slow_first_tokens_with_an_empty_queue_need_replicas():
    story = Story()
    story.calm(running=9).burns(ttft=9.0)
    decision = story.tick()
    assert decision.levers.replicas == 2
    assert decision.reason is Reason.PREFILL_BOUND_ADD_REPLICAS
    assert "the queue is empty" in decision.message


def test_a_burn_that_is_only_the_echo_of_a_mended_queue_adds_nothing():
    story = overloaded()
    story.tick()
    story.calm(running=20).burns(ttft=8.1)
    story.pass_time(70)
    assert story.changes() == [(Lever.MAX_NUM_SEQS,)]


def test_a_backlog_that_has_drained_by_itself_adds_nothing_for_the_bad_minute_it_leaves():
    story = Story(tier(seqs=(4, 16)))
    story.queue(12).tick()
    story.queue(0, running=8).burns(ttft=20.0)
    story.pass_time(70)
    assert story.changes() == []
    story.pass_time(20)
    assert story.levers.replicas == 2


def test_a_lone_request_that_misses_its_target_costs_no_gpu():
    story = Story()
    story.calm(running=1).burns(ttft=100.0)
    story.pass_time(600)
    assert story.changes() == []
    decision = story.decisions[-1]
    assert decision.reason is Reason.INFEASIBLE
    assert decision.limited is not None
    assert decision.limited.reason is Reason.INFEASIBLE
    assert "spec.slo.ttftMilliseconds" in decision.limited.message


def test_one_bad_request_in_ten_is_not_a_page():
    story = Story()
    story.calm(running=9).burns(ttft=10.0)
    ttft = story.slos[Sli.TTFT]
    ten = tuple(dataclasses.replace(w, total=10.0) for w in ttft.windows)
    story.slos[Sli.TTFT] = dataclasses.replace(ttft, windows=ten)
    story.pass_time(120)
    assert story.changes() == []


def test_at_the_maximum_the_message_names_the_field_to_raise():
    story = Story(tier(replicas=(1, 2), seqs=(4, 16)), replicas=2)
    story.queue(40).burns(ttft=50.0)
    decision = story.tick()
    assert decision.changed == ()
    assert decision.reason is Reason.AT_MAXIMUM
    assert decision.limited is not None
    assert decision.limited.message == "more than 2 replicas are needed: raise spec.scaling.replicas.max (2)"


def test_growth_stops_at_the_maximum_and_says_that_more_is_needed():
    story = Story(tier(replicas=(1, 3), seqs=(4, 16)), replicas=2)
    story.queue(40).burns(ttft=50.0)
    decision = story.tick()
    assert decision.levers.replicas == 3
    assert decision.limited is not None
    assert decision.limited.reason is Reason.AT_MAXIMUM


def test_a_resize_that_never_arrives_makes_way_for_replicas():
    story = overloaded()
    story.tick()
    story.pool["resizing"] = True
    assert story.pass_time(60).reason is Reason.HOLD_RESIZING
    story.pass_time(90)
    assert story.levers.replicas == 2


def test_a_cap_raise_that_kills_a_pod_is_rolled_back_and_remembered():
    story = Story(replicas=3)
    story.tick()
    story.queue(30).burns(ttft=8.1, p99=0.06).tick()
    assert story.levers.max_num_seqs == 24
    story.pool["failing"], story.ready = 1, 2
    decision = story.tick()
    assert decision.levers.max_num_seqs == 16
    assert decision.reason is Reason.ROLL_BACK_CAP
    story.pool["failing"], story.ready = 0, 3
    story.queue(30).pass_time(3600)
    assert story.levers.max_num_seqs == 16
    assert story.levers.replicas > 3


def test_another_engine_forgets_the_bound():
    story = Story(replicas=3)
    story.queue(30).burns(ttft=8.1, p99=0.06).tick()
    story.pool["failing"] = 1
    story.tick()
    assert story.memory.cap_bound == 16
    story.spec = tier(start=20)
    story.tick()
    assert story.memory.cap_bound is None
