"""Less load: late, one replica at a time, only what the survivors can carry, and never on a guess."""

import dataclasses

import pytest

from tests.scaling.story import START, Story, tier
from tierkeeper.scaling.memory import Memory
from tierkeeper.scaling.model import Lever, Reason
from tierkeeper.slo.model import Ratio, SignalState, Sli
from tierkeeper.tier import Mode


def test_five_minutes_pass_still_four_ten_seconds_more_now_three():
    story = Story(tier(window=300), replicas=4)
    story.calm(running=8).pass_time(300)
    assert story.levers.replicas == 4
    assert story.decisions[-1].reason is Reason.HOLD_STABILIZING
    story.pass_time(10)
    assert story.levers.replicas == 3
    assert story.decisions[-2].message == (
        "remove 1 replica 4 → 3: no objective burns and no queue stands for 5 min, 12% of the slots are taken"
    )


def test_at_most_one_replica_goes_in_a_window():
    story = Story(tier(window=300), replicas=4)
    story.calm(running=4).pass_time(305)
    assert story.levers.replicas == 3
    story.pass_time(290)
    assert story.levers.replicas == 3
    story.pass_time(20)
    assert story.levers.replicas == 2


def test_after_a_change_of_any_lever_a_shrink_waits_until_windows_show_its_effect():
    story = Story(tier(window=0), replicas=4)
    story.calm(running=8)
    story.memory = dataclasses.replace(story.memory, live_at=story.now)
    story.pass_time(75)
    assert story.levers.replicas == 4
    story.pass_time(10)
    assert story.levers.replicas == 3


def test_what_takes_ten_minutes_to_start_is_given_back_after_twenty():
    """Nobody saw a start yet, but the pods' own objects tell of theirs."""
    story = Story(tier(window=300), replicas=4)
    story.pool["startup_seconds"] = 600.0
    story.calm(running=8).pass_time(1200)
    assert story.levers.replicas == 4
    assert story.decisions[-1].message == "may shrink once the pool has been watched for 20 min"
    story.pass_time(10)
    assert story.levers.replicas == 3


def test_a_start_that_was_seen_counts_before_what_pods_tell():
    story = Story(tier(window=300), replicas=4)
    story.pool["startup_seconds"] = 600.0
    story.memory = dataclasses.replace(story.memory, spec=story.spec, startup_seconds=60.0)
    story.calm(running=8).pass_time(310)
    assert story.levers.replicas == 3


def test_a_pool_that_was_paused_is_watched_for_a_window_before_it_shrinks():
    """While a tier is paused nothing says how many replicas would have been enough."""
    story = Story(tier(window=300), replicas=4)
    story.calm(running=8).tick()
    story.spec = dataclasses.replace(story.spec, scaling=dataclasses.replace(story.spec.scaling, mode=Mode.PAUSED))
    story.pass_time(900)
    story.spec = tier(window=300)
    story.pass_time(290)
    assert story.levers.replicas == 4
    story.pass_time(20)
    assert story.levers.replicas == 3


def test_a_process_that_stood_still_watches_for_a_window_again():
    story = Story(tier(window=300), replicas=4)
    story.queue(20.0, running=60.0).tick()
    story.now += 3600.0
    story.calm(running=8).pass_time(290)
    assert story.levers.replicas >= 4


def test_a_pod_that_is_not_ready_for_a_moment_tells_nothing_of_a_start():
    story = Story(tier(window=300), replicas=4)
    story.pool["startup_seconds"] = 600.0
    story.calm(running=60).pass_time(60)
    story.ready = 3
    story.tick()
    story.ready = 4
    story.pass_time(30)
    assert story.memory.startup_seconds is None
    assert story.memory.known_startup == 600.0


def test_idle_goes_to_the_minimum_after_the_window():
    """The quantile is not a number for 30 minutes, while the count and queue series say: nothing runs."""
    story = Story(tier(window=300), replicas=4)
    story.calm(running=60).pass_time(600)
    story.idle().pass_time(290)
    assert story.levers.replicas == 4
    story.pass_time(20)
    assert story.levers.replicas == 1
    assert next(d for d in story.decisions if d.changed).reason is Reason.IDLE
    assert story.pass_time(1500).changed == ()


def test_nothing_at_all_for_twenty_ticks_stays_at_the_minimum():
    story = Story().idle()
    for _ in range(20):
        assert story.tick().changed == ()
    assert story.decisions[-1].reason is Reason.IDLE


def test_a_counter_that_stands_still_is_no_load():
    story = Story()
    story.calm(running=0, requests_per_second=0, requests_5m=50).pass_time(600)
    assert story.changes() == []


def test_a_survivor_takes_over_the_load_so_two_at_seventy_percent_stay_two():
    story = Story(replicas=2)
    story.calm(running=0.7 * 16 * 2).pass_time(3600)
    assert story.changes() == []


def test_two_replicas_below_half_stay_two_where_one_would_be_nearly_full():
    story = Story(replicas=2)
    story.calm(running=15).pass_time(900)
    assert story.changes() == []
    assert story.decisions[-1].reason is Reason.HOLD_SURVIVORS


def test_one_busy_moment_in_the_window_keeps_the_replicas():
    story = Story(tier(window=300), replicas=2)
    story.calm(running=4).pass_time(200)
    story.calm(running=30).tick()
    story.calm(running=4).pass_time(295)
    assert story.levers.replicas == 2
    story.pass_time(15)
    assert story.levers.replicas == 1


@pytest.mark.parametrize(("ratio", "enough"), [(0.9, 40), (0.99, 400), (0.999, 4000)])
def test_few_requests_are_no_evidence_where_the_survivors_would_be_fuller_than_half(ratio, enough):
    spec = tier(window=60)
    story = Story(dataclasses.replace(spec, objective=dataclasses.replace(spec.objective, ratio=ratio)), replicas=2)
    story.calm(running=9, requests_5m=enough - 1).pass_time(300)
    assert story.levers.replicas == 2
    assert story.decisions[-1].reason is Reason.HOLD_EVIDENCE
    assert f"{enough} requests within budget" in story.decisions[-1].message
    story.calm(running=9, requests_5m=enough).tick()
    assert story.levers.replicas == 1


def test_gauges_prove_a_shrink_of_a_quiet_pool_without_requests():
    story = Story(tier(window=60), replicas=2)
    story.calm(running=8, requests_5m=20).pass_time(90)
    assert story.levers.replicas == 1


def test_a_pessimistic_reading_over_budget_is_no_evidence():
    story = Story(tier(window=60), replicas=2)
    story.calm(running=9)
    ttft = story.slos[Sli.TTFT]
    wide = tuple(dataclasses.replace(w, burn=Ratio(0.0, 0.2, 3.0)) for w in ttft.windows)
    story.slos[Sli.TTFT] = dataclasses.replace(ttft, windows=wide, boundary_aligned=False)
    story.pass_time(300)
    assert story.decisions[-1].reason is Reason.HOLD_EVIDENCE


def test_a_last_minute_that_spends_faster_than_the_budget_keeps_the_replicas():
    story = Story(tier(window=60), replicas=2)
    story.calm(running=4).burns(ttft=1.5)
    story.pass_time(600)
    assert story.changes() == []


def test_a_pod_without_series_counts_as_full():
    """7 of 8 report: the eighth may be full, so the pool keeps a replica more than the others' load needs."""
    story = Story(tier(window=60, replicas=(1, 8)), replicas=2)
    story.observed = 1
    story.calm(running=2).pass_time(300)
    assert story.changes() == []
    assert story.decisions[-1].inputs["observedPods"] == 1
    assert story.decisions[-1].inputs["readyPods"] == 2
    story.observed = 2
    story.pass_time(90)
    assert story.levers.replicas == 1


def test_seven_reporting_pods_still_decide():
    story = Story(tier(replicas=(1, 16), seqs=(4, 16)), replicas=8)
    story.observed = 7
    story.queue(60).burns(ttft=20.0)
    assert story.tick().levers.replicas > 8


def test_a_new_operator_watches_a_full_window_first():
    story = Story(tier(window=300), replicas=4)
    story.calm(running=4).pass_time(250)
    story.memory = Memory.fresh(story.now)
    story.pass_time(290)
    assert story.levers.replicas == 4
    story.pass_time(20)
    assert story.levers.replicas == 3


def test_after_an_outage_a_full_clean_window_passes():
    """503 for 10 minutes, then nothing, then small values: hold at 6 until a window of samples is complete."""
    story = Story(tier(window=300), replicas=6)
    story.calm(running=70).pass_time(400)
    story.blind(SignalState.SOURCE_DOWN, "ServerError").pass_time(600)
    story.blind(SignalState.NO_DATA, "NoSeries").pass_time(30)
    assert story.levers.replicas == 6
    story.calm(running=1)
    story.clean_since = story.now
    story.pass_time(290)
    assert story.levers.replicas == 6
    story.pass_time(20)
    assert story.levers.replicas == 5


def test_an_outage_says_that_it_recovers():
    story = Story(tier(window=300), replicas=6)
    story.calm(running=1)
    story.memory = Memory.fresh(START - 1000)
    story.clean_since = START - 100
    assert story.tick().reason is Reason.HOLD_RECOVERING


def test_a_pool_does_not_go_back_to_the_load_at_which_it_burned():
    """Prefill-bound at 9 requests in one replica: a half-empty cap is no proof that one replica is enough."""
    story = Story(tier(window=60, seqs=(4, 64), start=64), cap=64)
    story.calm(running=9).burns(ttft=9.0).tick()
    assert story.levers.replicas == 2
    story.pods_become_ready().calm(running=9).pass_time(1800)
    assert story.levers.replicas == 2
    story.calm(running=6).pass_time(90)
    assert story.levers.replicas == 1


def test_a_hand_scaled_pool_is_reported_at_once_and_trimmed_after_a_window():
    story = Story(tier(window=300))
    story.pass_time(600)
    story.levers = dataclasses.replace(story.levers, replicas=5)
    story.ready = 5
    decision = story.tick()
    assert "replicas were changed 1 → 5 by another hand" in decision.message
    story.pass_time(65)
    assert "another hand" not in story.decisions[-1].message
    story.pass_time(210)
    assert story.levers.replicas == 5
    story.pass_time(30)
    assert story.levers.replicas == 4


def test_a_frozen_budget_keeps_replicas_that_are_not_plainly_spare():
    story = Story(tier(window=60), replicas=2)
    story.calm(running=9)
    frozen = {k: dataclasses.replace(v, budget_left=0.1) for k, v in story.slos.items()}
    story.slos = frozen
    assert story.pass_time(300).reason is Reason.HOLD_BUDGET_FROZEN
    story.calm(running=8)
    story.slos = frozen
    story.pass_time(70)
    assert story.levers.replicas == 1


def test_a_raised_cap_creeps_back_to_its_start_one_step_a_window():
    story = Story(tier(window=60), cap=36)
    story.calm(running=5).pass_time(55)
    assert story.levers.max_num_seqs == 36
    story.pass_time(15)
    assert story.levers.max_num_seqs == 24
    story.pass_time(65)
    assert story.levers.max_num_seqs == 16
    story.pass_time(300)
    assert story.changes() == [(Lever.MAX_NUM_SEQS,)] * 2


def test_a_frozen_budget_leaves_the_live_limits_where_they_are():
    story = Story(tier(window=60), cap=36)
    story.calm(running=5)
    story.slos = {k: dataclasses.replace(v, budget_left=0.1) for k, v in story.slos.items()}
    assert story.pass_time(600).reason is Reason.HOLD_BUDGET_FROZEN
    assert story.changes() == []


def test_a_cap_is_not_lowered_onto_its_load():
    story = Story(tier(window=60), cap=24)
    story.calm(running=12).pass_time(600)
    assert story.changes() == []


@pytest.mark.parametrize(
    "state", [SignalState.NO_DATA, SignalState.STALE, SignalState.AMBIGUOUS, SignalState.SOURCE_DOWN]
)
def test_unknown_is_not_zero(state):
    """Every query answers with nothing at peak hour: 4 stay 4."""
    story = Story(tier(window=60), replicas=4)
    story.calm(running=50).pass_time(300)
    story.blind(state, "NoSeries").pass_time(1800)
    assert story.changes() == []
    assert {d.reason for d in story.decisions[-100:]} == {Reason.HOLD_METRICS_UNKNOWN}


def test_a_failing_query_holds_without_a_swing():
    """bad_data on each tick for 30 minutes: one text, no change."""
    story = Story(tier(window=60), replicas=3)
    story.blind(SignalState.SOURCE_DOWN, "BadQuery").pass_time(1800)
    assert story.changes() == []
    assert len({d.message for d in story.decisions}) == 1


def test_a_value_that_is_no_number_is_no_load():
    story = Story(tier(window=60), replicas=3)
    story.blind(SignalState.AMBIGUOUS, "NotANumber")
    for _ in range(5):
        assert story.tick().levers.replicas == 3
