"""What stops the loop: the mode, the bounds, a rollout, pods without a node, another scaler."""

import dataclasses

import pytest

from tests.scaling.story import Story, tier
from tierkeeper.scaling.levers import starting_levers
from tierkeeper.scaling.model import Lever, Levers, Reason
from tierkeeper.slo.model import SignalState
from tierkeeper.tier import Mode


def overloaded(story: Story) -> Story:
    return story.queue(40).burns(ttft=50.0)


def test_a_tier_starts_at_its_fewest_replicas_and_the_engines_own_limits_within_bounds():
    assert starting_levers(tier(replicas=(2, 4), seqs=(4, 12), start=16)) == Levers(2, 12, None)
    assert starting_levers(tier(tokens=(256, 2048))).max_num_batched_tokens == 2048


def test_paused_changes_nothing_whatever_burns():
    story = overloaded(Story(tier(mode=Mode.PAUSED, replicas=(2, 8)), replicas=1))
    story.pass_time(600)
    assert story.changes() == []
    assert story.decisions[-1].reason is Reason.PAUSED


def test_fixed_holds_the_minimum_and_the_engines_limits():
    story = overloaded(Story(tier(mode=Mode.FIXED, replicas=(2, 8)), replicas=4, cap=40))
    decision = story.tick()
    assert decision.levers == Levers(2, 16, None)
    assert decision.reason is Reason.FIXED
    assert story.tick().changed == ()


def test_recommend_says_what_auto_would_do_and_counts_nothing_as_done():
    story = overloaded(Story(tier(mode=Mode.RECOMMEND)))
    for _ in range(5):
        decision = story.tick()
        assert decision.changed == (Lever.MAX_NUM_SEQS,)
        assert decision.levers.max_num_seqs == 24
    assert story.levers.max_num_seqs == 16


@pytest.mark.parametrize(("replicas", "back"), [(1, 2), (9, 4)])
def test_replicas_out_of_bounds_come_back_at_once_even_without_metrics(replicas, back):
    story = Story(tier(replicas=(2, 4)), replicas=replicas)
    story.blind(SignalState.SOURCE_DOWN, "Timeout")
    decision = story.tick()
    assert decision.levers.replicas == back
    assert decision.reason is Reason.BACK_IN_BOUNDS


def test_a_cap_and_a_budget_out_of_bounds_come_back_at_once():
    story = Story(tier(seqs=(4, 12), start=12, tokens=(256, 2048)), cap=64)
    story.levers = dataclasses.replace(story.levers, max_num_batched_tokens=None)
    assert story.tick().levers == Levers(1, 12, 2048)
    assert story.tick().changed == ()


def test_a_rollout_freezes_scaling():
    """The image changes on 8 replicas while the load is constant: it ends at 8."""
    story = overloaded(Story(tier(replicas=(1, 16)), replicas=8))
    story.pool["rolling_out"] = True
    story.ready = 7
    story.pass_time(300)
    assert story.changes() == []
    assert story.decisions[-1].reason is Reason.HOLD_ROLLOUT


def test_what_the_status_counts_is_never_written_back():
    """Spec 4, one pod too many for a moment, load as it should be: no write."""
    story = Story(replicas=4)
    story.calm(running=44)
    story.ready = 5
    story.pass_time(600)
    assert story.changes() == []


def test_replicas_that_another_scaler_sets_are_left_and_reported():
    story = overloaded(Story(tier(seqs=(4, 16)), replicas=2))
    story.pool["external_scaler"] = "HorizontalPodAutoscaler"
    decision = story.pass_time(120)
    assert story.changes() == []
    assert decision.reason is Reason.HOLD_EXTERNAL_SCALER
    assert decision.limited is not None
    assert "'HorizontalPodAutoscaler'" in decision.limited.message


def test_another_scaler_is_reported_in_calm_too_and_its_bounds_are_its_own():
    story = Story(tier(replicas=(1, 2)), replicas=5)
    story.pool["external_scaler"] = "HorizontalPodAutoscaler"
    decision = story.calm(running=4).pass_time(900)
    assert story.levers.replicas == 5
    assert decision.limited is not None
    assert decision.limited.reason is Reason.HOLD_EXTERNAL_SCALER


def test_another_scaler_does_not_keep_the_cap_from_moving():
    story = overloaded(Story(replicas=2))
    story.pool["external_scaler"] = "HorizontalPodAutoscaler"
    story.burns(ttft=50.0, p99=0.05)
    assert story.tick().changed == (Lever.MAX_NUM_SEQS,)


SCHEDULER = "scheduler: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu"
GATE = "pod gold-pool-abc-1 waits at its scheduling gate kueue.x-k8s.io/admission: whoever set it opens it"
QUOTA = "Pods are refused: exceeded quota: gpus: raise the quota in namespace llm"


def stuck() -> Story:
    """Four wanted, two find no GPU, and the load stays."""
    story = Story(tier(seqs=(4, 16), window=60), replicas=4)
    story.ready = 2
    story.pool.update(unschedulable=2, unschedulable_message=SCHEDULER)
    return overloaded(story)


def test_pods_without_a_node_stop_growth_and_say_what_the_scheduler_said():
    decision = stuck().tick()
    assert decision.changed == ()
    assert decision.reason is Reason.HOLD_UNSCHEDULABLE
    assert decision.limited is not None
    assert "Insufficient nvidia.com/gpu" in decision.limited.message


@pytest.mark.parametrize("kept_by", [SCHEDULER, GATE, QUOTA])
def test_only_the_schedulers_words_are_said_to_be_the_schedulers(kept_by):
    """Whoever keeps the pods from a node is named as it names itself: in the hold, and when they are given back."""
    story = stuck()
    story.pool.update(unschedulable_message=kept_by)
    hold = story.tick()
    assert hold.message == f"2 replicas have no node, no more are asked for ({kept_by})"
    story.pass_time(905)
    released = next(d for d in story.decisions if d.changed)
    assert released.message == f"remove 2 replicas 4 → 2: 2 replicas got no node for 15 min ({kept_by})"
    assert ("scheduler:" in hold.message + released.message) == (kept_by is SCHEDULER)


def test_pods_that_no_node_takes_are_given_back_after_a_quarter_of_an_hour_and_not_asked_for_again_at_once():
    story = stuck()
    story.pass_time(890)
    assert story.levers.replicas == 4
    story.pass_time(15)
    assert story.levers.replicas == 2
    assert next(d for d in story.decisions if d.changed).reason is Reason.RELEASE_UNSCHEDULABLE
    story.pool.update(unschedulable=0, unschedulable_message="")
    decision = story.queue(40).pass_time(560)
    assert story.levers.replicas == 2
    assert decision.reason is Reason.HOLD_UNSCHEDULABLE
    story.pass_time(60)
    assert story.levers.replicas == 4


def test_pending_pods_go_first_when_the_load_ends():
    story = stuck()
    story.tick()
    story.calm(running=20).pass_time(90)
    assert story.levers.replicas == 2
    assert next(d for d in story.decisions if d.changed).reason is Reason.RELEASE_UNSCHEDULABLE


def test_a_stuck_pool_without_traffic_returns_to_its_minimum():
    story = stuck()
    story.tick()
    story.idle().pass_time(90)
    assert story.levers.replicas == 1


def test_a_resize_under_way_holds_the_next_one():
    story = overloaded(Story())
    story.pool["resizing"] = True
    assert story.tick().reason is Reason.HOLD_RESIZING


def test_a_load_that_wavers_around_a_threshold_does_not_change_the_words():
    story = Story(replicas=2)
    for step in range(100):
        story.calm(running=10.8 if step % 3 else 11.6).tick()
    assert len({(d.reason, d.message) for d in story.decisions}) == 1


def test_a_steady_pool_says_the_same_words_at_every_tick():
    story = Story(replicas=2)
    for running in (22, 24, 23, 25, 26):
        story.calm(running=running).tick()
    assert len({d.message for d in story.decisions}) == 1
    assert story.decisions[-1].reason is Reason.STEADY
