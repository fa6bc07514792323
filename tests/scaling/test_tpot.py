"""TPOT burns, or the KV cache overflows: a smaller token budget or batch at once, replicas to pay for it."""

import dataclasses

import pytest

from tests.scaling.story import Story, tier
from tierkeeper.scaling.model import Lever, Reason
from tierkeeper.slo.model import Sli


def burning(*, running: float = 30.0, prompts: float = 0.0, ttft: float = 0.0, p99: float = 0.12, **spec) -> Story:
    story = Story(tier(**spec), replicas=2)
    story.tick()
    story.queue(0, running=running, prompt_tokens_per_second=prompts, mean_queue_seconds=0.0)
    return story.burns(tpot=9.0, ttft=ttft, p99=p99, p50=0.06)


def test_a_batch_too_large_is_cut_at_once_and_replicas_pay():
    decision = burning().tick()
    assert decision.levers.max_num_seqs == 11
    assert decision.levers.replicas == 4
    assert decision.changed == (Lever.REPLICAS, Lever.MAX_NUM_SEQS)
    assert decision.reason is Reason.TPOT_LOWER_CAP
    assert decision.message == (
        "lower max-num-seqs 16 → 11 and add 2 replicas 2 → 4: TPOT burns 9.0x its budget over 1 min and 9.0x over "
        "5 min, each replica runs 15 requests"
    )


def test_twice_the_target_cuts_the_batch_by_half():
    assert burning(p99=0.2).tick().levers.max_num_seqs == 7


def test_an_open_top_bucket_is_not_used_to_size_the_cut():
    story = burning()
    story.burns(tpot=9.0, p99=0.3, p99_open=True)
    assert story.tick().levers.max_num_seqs == 11


def test_a_cut_is_measured_from_the_batch_that_runs():
    """A cap of 64 over 10 running requests would not notice a cut to 48."""
    story = burning(running=20, seqs=(4, 64), start=64)
    assert story.tick().levers.max_num_seqs == 7


def test_a_load_that_has_gone_is_not_cut_for_what_it_did():
    """The windows still show the overload: 20 requests ran in each replica a minute long, 1,000 tokens/s of 60 ms each
    in 3. By the 4 that are left the cap would be 2."""
    story = Story(tier(seqs=(2, 256), start=64), replicas=3)
    story.tick()
    story.queue(0, running=12.0, mean_queue_seconds=0.0, generation_tokens_per_second=1000.0)
    story.burns(tpot=9.0, p99=0.2, p50=0.06)
    assert story.tick().levers.max_num_seqs == 10


def test_an_operator_that_just_started_does_not_cut_a_cap_that_stands_open_for_a_backlog():
    """Whoever waits is late whatever the cap is: to cut it by half would lengthen the queue for all behind."""
    story = Story(tier(seqs=(8, 256), start=64), replicas=2)
    story.queue(100.0, generation_tokens_per_second=900.0)
    story.burns(tpot=9.0, ttft=9.0, p99=0.2, p50=0.06)
    decision = story.tick()
    assert Lever.MAX_NUM_SEQS not in decision.changed
    assert decision.levers.replicas > 2
    assert decision.reason is Reason.QUEUE_BOUND_ADD_REPLICAS


def test_a_queue_that_breaks_no_promise_does_not_keep_a_batch_too_large():
    story = Story(tier(seqs=(8, 256), start=64, ttft=None), replicas=2)
    story.queue(100.0, generation_tokens_per_second=900.0)
    story.burns(tpot=9.0, p99=0.2, p50=0.06)
    assert story.tick().levers.max_num_seqs == 32


def test_a_cut_never_goes_below_the_minimum():
    story = burning(seqs=(14, 64))
    assert story.tick().levers.max_num_seqs == 14


def test_at_the_smallest_batch_only_replicas_are_left():
    decision = burning(seqs=(16, 64)).tick()
    assert decision.changed == (Lever.REPLICAS,)
    assert decision.reason is Reason.TPOT_ADD_REPLICAS


def test_at_the_most_replicas_the_cap_is_cut_all_the_same():
    decision = burning(replicas=(1, 2)).tick()
    assert decision.changed == (Lever.MAX_NUM_SEQS,)
    assert decision.limited is not None
    assert decision.limited.reason is Reason.AT_MAXIMUM
    assert "raise spec.scaling.replicas.max (2)" in decision.message


def test_the_next_cut_waits_until_the_last_one_can_be_seen():
    story = burning(seqs=(2, 64))
    story.tick()
    story.queue(0, running=22, mean_queue_seconds=0.0)
    story.pass_time(70)
    assert story.levers.max_num_seqs == 11
    story.pass_time(10)
    assert story.levers.max_num_seqs == 8


def test_prompts_beside_the_streams_lower_the_token_budget_where_ttft_has_room():
    story = burning(prompts=4000.0, tokens=(256, 2048))
    decision = story.tick()
    assert decision.levers.max_num_batched_tokens == 1024
    assert decision.changed == (Lever.TOKEN_BUDGET,)
    assert decision.reason is Reason.TPOT_LOWER_TOKEN_BUDGET
    assert "prefill takes" in decision.message


def test_the_token_budget_stops_at_its_floor_then_the_cap_goes():
    story = burning(prompts=4000.0, tokens=(512, 2048))
    story.pass_time(200)
    assert story.levers.max_num_batched_tokens == 512
    assert story.changes()[:3] == [(Lever.TOKEN_BUDGET,), (Lever.TOKEN_BUDGET,), (Lever.REPLICAS, Lever.MAX_NUM_SEQS)]


def test_the_token_budget_never_goes_below_one_token_for_each_sequence():
    story = burning(prompts=4000.0, tokens=(1, 24))
    assert story.tick().levers.max_num_batched_tokens == 16


@pytest.mark.parametrize("ttft_burn", [1.0, 9.0])
def test_without_ttft_room_the_cap_goes_instead_of_the_token_budget(ttft_burn):
    story = burning(prompts=4000.0, tokens=(256, 2048), ttft=ttft_burn)
    assert story.tick().reason is Reason.TPOT_LOWER_CAP


def test_a_token_budget_that_the_spec_does_not_bound_is_left_alone():
    assert burning(prompts=4000.0).tick().reason is Reason.TPOT_LOWER_CAP


def test_a_token_budget_goes_back_after_calm():
    story = burning(prompts=4000.0, tokens=(256, 2048), window=60)
    story.tick()
    story.calm(running=24)
    story.pass_time(55)
    assert story.levers.max_num_batched_tokens == 1024
    story.pass_time(20)
    assert story.levers.max_num_batched_tokens == 2048
    assert Reason.RELAX_TOKEN_BUDGET in {d.reason for d in story.decisions}


def test_a_cap_that_burned_is_not_tried_again_for_half_an_hour():
    story = burning(window=60)
    story.tick()
    story.pods_become_ready().calm(running=30)
    story.pass_time(1700)
    assert story.levers.max_num_seqs == 11
    story.pass_time(200)
    assert story.levers.max_num_seqs == 16


def test_a_queue_behind_a_cap_that_burned_gets_replicas():
    story = burning()
    story.tick()
    story.pods_become_ready().queue(20).burns(ttft=20.0, p99=0.05)
    story.pass_time(120)
    assert story.levers.max_num_seqs == 11
    assert story.levers.replicas > 4


def test_a_lone_stream_that_misses_its_target_is_infeasible():
    story = burning(running=2)
    story.traffic = dataclasses.replace(story.traffic, requests_per_second=0.2)
    decision = story.burns(tpot=90.0, p99=0.12, p50=0.11).tick()
    assert decision.changed == ()
    assert decision.reason is Reason.INFEASIBLE
    assert "spec.slo.tpotMilliseconds" in decision.message


@pytest.mark.parametrize("sli", [Sli.TTFT, Sli.TPOT])
def test_a_few_that_miss_where_some_meet_another_are_no_lone_streams(sli):
    """A pod holds 0.4 requests on average, so a third finds one there: 9 % may be late for its prompt."""
    story = Story(tier(), replicas=5)
    story.tick()
    story.queue(0, running=2.0, mean_queue_seconds=0.0)
    story.burns(**{str(sli).lower(): 9.0}, p99=0.12, p50=0.03)
    decision = story.tick()
    assert decision.reason is not Reason.INFEASIBLE
    assert decision.changed


def test_a_long_prompt_in_sparse_traffic_is_late_alone():
    """Half a request a second decodes for seconds and is read in a tenth of one: a prompt hardly ever meets another,
    and one in ten is too long for its target whatever runs beside it."""
    story = Story(tier(ttft=0.3, tpot=0.04, seqs=(16, 256), start=64, replicas=(1, 24)), replicas=2)
    for _ in range(120):
        story.serves(0.5)
        story.traffic = dataclasses.replace(story.traffic, mean_ttft_seconds=0.08, mean_queue_seconds=0.005)
        story.burns(ttft=10.0, p99=0.03, p50=0.02)
        story.pass_time(30.0)
        story.pods_become_ready()
    assert story.levers.replicas <= 3  # one may come at the first look
    assert story.decisions[-1].reason is Reason.INFEASIBLE


def test_without_live_resize_replicas_come_before_a_restart():
    story = burning()
    story.pool["live_resize"] = False
    assert story.tick().changed == (Lever.REPLICAS,)


def test_preemptions_lower_the_cap():
    story = Story(tier(), replicas=2)
    story.tick()
    story.queue(0, running=30, kv_cache_usage=0.97, preemptions_per_second=1.0)
    decision = story.tick()
    assert decision.levers.max_num_seqs == 11
    assert decision.reason is Reason.KV_PRESSURE_LOWER_CAP
    assert "1.0 preemptions/s with 97% of the KV cache in use" in decision.message


def test_preemptions_at_the_smallest_batch_add_replicas():
    story = Story(tier(seqs=(16, 64)), replicas=2)
    story.queue(0, running=30, kv_cache_usage=0.97, preemptions_per_second=1.0)
    assert story.tick().reason is Reason.KV_PRESSURE_ADD_REPLICAS


def test_a_full_cache_alone_is_efficient():
    story = Story(tier(), replicas=2)
    story.calm(running=30)
    story.queue(0, running=30, kv_cache_usage=0.99, mean_queue_seconds=0.0).pass_time(600)
    assert story.changes() == []


def test_preemptions_beside_an_emptying_cache_are_over():
    story = Story(tier(), replicas=2)
    story.queue(0, running=30, kv_cache_usage=0.5, preemptions_per_second=1.0).pass_time(600)
    assert story.changes() == []


def test_a_preemption_storm_right_after_a_raise_rolls_it_back():
    story = Story(tier(), replicas=2)
    story.tick()
    story.queue(30).burns(ttft=8.1, p99=0.06).tick()
    assert story.levers.max_num_seqs == 24
    story.queue(30, kv_cache_usage=0.99, preemptions_per_second=4.0)
    decision = story.tick()
    assert decision.levers.max_num_seqs == 16
    assert decision.reason is Reason.ROLL_BACK_CAP
    assert story.memory.cap_bound == 16
