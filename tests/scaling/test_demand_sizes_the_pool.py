"""A pool that has shown its speed is sized by what arrives: before it hurts, by several at once, and back again."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scaling.story import CHAT, PROFILE, Story, half_below, sized_from, tier
from tierkeeper.engine.latency import Lengths
from tierkeeper.scaling.demand import Demand, Minute, Minutes
from tierkeeper.scaling.knowledge import Knowledge
from tierkeeper.scaling.measured import Mean, Measured
from tierkeeper.scaling.memory import Memory
from tierkeeper.scaling.model import Lever, Levers, Reason
from tierkeeper.slo.model import Quantile, SignalState, Sli
from tierkeeper.tier import Bounds

CHAT_TIER = {"ttft": 1.5, "tpot": 0.04, "seqs": (8, 256), "start": 56, "replicas": (1, 32)}


def served(rate: float, *, replicas: int, minutes: float = 10.0, **spec) -> Story:
    """A pool that has carried ``rate`` requests/s cleanly for a while."""
    story = Story(tier(**{**CHAT_TIER, **spec}), replicas=replicas)
    story.serves(rate).pass_time(minutes * 60)
    return story


def grown(story: Story) -> list[int]:
    return [d.levers.replicas for d in story.decisions if Lever.REPLICAS in d.changed]


def test_a_load_that_fits_moves_nothing():
    assert grown(served(17.0, replicas=4, minutes=60)) == []


def test_more_demand_adds_replicas_before_anything_burns():
    story = served(17.0, replicas=4)
    story.serves(26.0).pass_time(60)
    assert story.levers.replicas > 4
    first = next(d for d in story.decisions if d.changed)
    assert first.reason is Reason.DEMAND_ADD_REPLICAS
    assert "requests/s arrive" in first.message
    assert first.inputs["neededReplicas"] > 4


def test_a_step_is_answered_by_several_at_once_and_by_no_more_while_they_start():
    story = served(17.0, replicas=4)
    story.serves(30.0).pass_time(90)
    asked = story.levers.replicas
    assert 6 <= asked <= 8
    changes = len(grown(story))
    story.pass_time(60)
    assert story.levers.replicas == asked
    assert len(grown(story)) == changes


def test_while_they_start_more_come_if_demand_exceeds_them_too():
    story = served(17.0, replicas=4)
    story.serves(28.0).pass_time(90)
    asked = story.levers.replicas
    for k in range(18):  # of 50 a second the 4 pods serve 30, and 100 more wait at each look
        story.serves(50.0, waiting=100.0 * k).tick()
    assert story.levers.replicas > asked > 4
    assert story.ready == 4


def test_while_they_start_no_more_come_than_the_spec_allows():
    story = Story(tier(**{**CHAT_TIER, "replicas": (1, 7)}), replicas=4)
    story.serves(17.0).pass_time(600)
    story.serves(28.0).pass_time(90)
    asked = story.levers.replicas
    for k in range(18):
        story.serves(50.0, waiting=100.0 * k).tick()
    assert 4 < asked < 7
    assert max(d.levers.replicas for d in story.decisions) == 7


def test_less_demand_removes_several_at_once_after_the_window():
    story = served(36.0, replicas=8)
    before = story.levers.replicas
    story.serves(10.0).pass_time(280)
    assert story.levers.replicas >= before - 1
    story.pass_time(240)
    assert story.levers.replicas <= before - 3
    shrinks = [d for d in story.decisions if d.reason is Reason.SCALE_DOWN and d.changed]
    assert len(shrinks) < before - story.levers.replicas


def just_shrunk() -> Story:
    story = served(24.0, replicas=8)
    story.serves(14.0)
    for _ in range(100):
        if story.tick().levers.replicas == 3:
            break
    story.pass_time(30)
    assert story.levers.replicas == 3
    return story


def bunch(story: Story) -> Story:
    """For two looks eight requests a second more are present than the minute knows of: 14/s look like 22."""
    quiet = story.traffic
    story.traffic = dataclasses.replace(quiet, running=quiet.running + 120)
    story.tick()
    story.tick()
    story.traffic = quiet
    return story


def test_a_pool_that_has_just_shrunk_is_not_grown_by_what_a_scrape_alone_shows():
    story = bunch(just_shrunk())
    assert max(d.inputs["neededReplicas"] for d in story.decisions[-2:]) > 3.3
    assert story.levers.replicas == 3
    later = just_shrunk()
    later.pass_time(400)
    assert bunch(later).levers.replicas > 3


def test_a_load_that_comes_back_right_after_a_shrink_is_answered_once_the_minute_shows_it():
    story = just_shrunk()
    story.serves(24.0).pass_time(15)
    assert story.levers.replicas > 3
    assert story.decisions[-3].reason is Reason.DEMAND_ADD_REPLICAS


def test_an_engine_twice_as_slow_gets_twice_the_replicas():
    fast = served(17.0, replicas=4)
    slow = Story(tier(**{**CHAT_TIER, "tpot": 0.08}), replicas=8)
    slow.serves(17.0, slowness=2.0).pass_time(600)
    ratio = slow.decisions[-1].inputs["neededReplicas"] / fast.decisions[-1].inputs["neededReplicas"]
    assert ratio == pytest.approx(2.0, rel=0.15)


@pytest.mark.parametrize("off", [0.7, 1.3])
def test_a_profile_that_is_a_third_off_changes_little(off):
    profile = dataclasses.replace(
        PROFILE,
        base_seconds=PROFILE.base_seconds * off,
        per_sequence_seconds=PROFILE.per_sequence_seconds * off,
        per_context_token_seconds=PROFILE.per_context_token_seconds * off,
        per_prefill_token_seconds=PROFILE.per_prefill_token_seconds * off,
    )
    right, wrong = served(17.0, replicas=4), Story(tier(**CHAT_TIER), replicas=4)
    wrong.profile = profile
    wrong.serves(17.0).pass_time(600)
    assert wrong.decisions[-1].inputs["neededReplicas"] == pytest.approx(
        right.decisions[-1].inputs["neededReplicas"], rel=0.02
    )


def test_a_pool_that_starts_anew_is_not_grown_on_the_model_alone():
    """24 requests/s on 4 are more than the fresh belief allows, but they are served, and nothing burns."""
    story = Story(tier(**CHAT_TIER), replicas=4)
    story.serves(23.0).pass_time(170)
    assert grown(story) == []


def test_a_restarted_operator_never_shrinks_before_a_window_and_knows_nothing_of_yesterday():
    story = served(10.0, replicas=3, minutes=30)
    assert story.memory.knowledge.belief.minutes > 10
    story.memory = Memory.fresh(story.now)
    assert story.memory.knowledge == Knowledge()
    before = story.levers.replicas
    story.pass_time(280)
    assert story.levers.replicas == before


def _with(spec, **parts):
    return dataclasses.replace(
        spec, **{name: dataclasses.replace(getattr(spec, name), **to) for name, to in parts.items()}
    )


@pytest.mark.parametrize(
    "other",
    [
        {"engine": {"image": "other"}},
        {"model": {"id": "example/larger"}},
        {"resources": {"gpus_per_replica": 4}},
        {"pod": {"node_selector": {"gpu": "h100"}}},
    ],
)
def test_another_engine_model_or_gpu_has_to_show_its_speed_anew(other):
    story = served(17.0, replicas=4)
    story.spec = _with(story.spec, **other)
    story.tick()
    assert story.memory.knowledge.engine.speed is None


def test_another_objective_or_other_bounds_leave_what_was_measured():
    story = served(17.0, replicas=4)
    story.spec = _with(story.spec, objective={"ttft_seconds": 2.0}, scaling={"replicas": Bounds(2, 30)})
    story.tick()
    assert story.memory.knowledge.engine.speed is not None


def test_a_plan_keeps_within_a_token_budget_that_is_smaller_than_its_cap():
    story = served(17.0, replicas=4, tokens=(32, 48))
    plan = sized_from(story, story.memory.knowledge, current=Levers(4, 56, 48))
    assert plan.levers.max_num_batched_tokens == 48 < plan.levers.max_num_seqs


def test_outputs_of_one_token_have_no_tpot_to_be_sized_for():
    """Else the cap would be cut to the few sequences that leave a step time to read their prompts beside."""
    plans = []
    for tpot in (0.04, None):
        story = Story(tier(replicas=(1, 40), tpot=tpot, start=56), replicas=6)
        story.serves(60.0, lengths=Lengths(prompt_tokens=1155.0, output_tokens=1.0)).pass_time(300)
        plans.append(sized_from(story, story.memory.knowledge, current=Levers(6, 56)))
    assert plans[0].levers.max_num_seqs == 56
    assert (plans[0].grow_to, plans[0].shrink_to) == (plans[1].grow_to, plans[1].shrink_to)


@pytest.mark.parametrize(("ratio", "missing"), [(0.8, 1.0), (0.9, 0.55), (0.5, 0.6)])
def test_where_more_than_half_misses_the_budget_is_no_excuse(ratio, missing):
    """6x of a budget of a fifth would be 120 %, which nothing reaches: half is asked for at most."""
    story = served(17.0, replicas=4)
    story.spec = _with(story.spec, objective={"ratio": ratio})
    story.serves(17.0, misses=missing / 0.01).pass_time(120)
    assert grown(story)


@pytest.mark.parametrize("wrong", [8, 256])
def test_a_wrong_cap_is_right_within_three_minutes(wrong):
    """56 sequences fit 85 % of a 40 ms step."""
    story = Story(tier(**{**CHAT_TIER, "start": wrong}), replicas=5)
    story.serves(20.0, waiting=60.0 if wrong == 8 else 0.0, misses=60.0 if wrong == 8 else 0.0)
    for _ in range(36):
        story.tick()
        story.serves(20.0)
    assert 40 <= story.levers.max_num_seqs <= 70


def test_prompts_four_times_as_long_get_cap_tokens_and_replicas_within_three_minutes():
    story = Story(tier(**{**CHAT_TIER, "ttft": 3.0, "tokens": (256, 8192)}), replicas=8)
    story.serves(20.0).pass_time(600)
    before = story.levers
    long = Lengths(prompt_tokens=4 * CHAT.prompt_tokens, output_tokens=CHAT.output_tokens)
    story.serves(20.0, lengths=long).burns(p99=0.036).pass_time(180)
    assert story.levers.max_num_seqs < before.max_num_seqs
    assert story.levers.max_num_batched_tokens is not None
    assert story.levers.max_num_batched_tokens < 1024
    assert story.levers.replicas > before.replicas


def test_a_mix_that_shifts_is_followed_though_pods_come_and_go_meanwhile():
    story = served(17.0, replicas=8)
    for _ in range(12):
        story.ready = 9 - story.ready % 2
        story.serves(17.0, lengths=Lengths(prompt_tokens=4000.0, output_tokens=211.0)).tick()
    assert story.memory.knowledge.lengths.prompt_tokens > 2500.0


def test_a_quiet_pool_keeps_the_limits_it_has():
    """56 sequences would be right, but 24 carry this load on the one replica that stays anyway."""
    story = Story(tier(**{**CHAT_TIER, "start": 24, "tokens": (256, 8192)}), replicas=1)
    before = story.levers
    story.serves(2.0).pass_time(3600)
    assert story.levers == before


def test_limits_are_tuned_once_they_spare_a_replica():
    """18 requests/s need six replicas of 16 sequences and four of 56."""
    story = Story(tier(**{**CHAT_TIER, "start": 16}), replicas=6)
    story.serves(18.0).pass_time(300)
    assert story.levers.max_num_seqs > 40
    assert Reason.TUNE_LIMITS in {d.reason for d in story.decisions if d.changed}


@pytest.mark.parametrize(("least", "lowered"), [(256, True), (512, False)])
def test_the_token_budget_is_lowered_only_where_a_full_step_then_meets_tpot(least, lowered):
    """Beside 56 sequences 448 tokens fill 40 ms; a budget of 512 would make each step of a backlog late."""
    story = Story(tier(**{**CHAT_TIER, "tokens": (least, 8192)}), replicas=4)
    story.serves(20.0).burns(p99=0.036).pass_time(300)
    assert (story.levers.max_num_batched_tokens < 448) is lowered
    assert lowered or story.levers.max_num_batched_tokens == 8192


def test_the_token_budget_stays_while_tpot_has_room():
    story = Story(tier(**{**CHAT_TIER, "tokens": (256, 8192)}), replicas=4)
    story.serves(20.0).pass_time(1200)
    assert story.levers.max_num_batched_tokens == 8192


def test_an_overloaded_pool_gets_replicas_and_no_batch_below_the_right_one():
    story = served(20.0, replicas=4)
    for _ in range(60):
        story.serves(60.0).burns(tpot=20.0, p99=0.05).tick()
    assert story.levers.max_num_seqs >= 45
    assert story.levers.replicas >= 6


def test_a_queue_that_burns_the_budget_six_times_over_is_answered_before_it_has_stood_long():
    story = served(17.0, replicas=4)
    assert story.queue(8.0, floor=8.0).burns(ttft=20.0).tick().reason is Reason.QUEUE_BOUND_RAISE_CAP
    patient = served(17.0, replicas=4)
    assert not patient.queue(8.0, floor=8.0).burns(ttft=2.0).tick().changed


def test_an_overload_and_its_backlog_teach_nothing_of_what_the_pool_carries():
    """Three minutes of twice the load, then half of it while the queue drains: all of it late, none of it news."""
    story = Story(tier(**{**CHAT_TIER, "replicas": (1, 4), "seqs": (56, 56)}), replicas=4)
    story.serves(17.0).pass_time(600)
    known = story.memory.knowledge.belief
    for k in range(36):
        story.serves(60.0, waiting=150.0 * k, misses=100.0).tick()
    for k in range(36):
        story.serves(10.0, waiting=150.0 * (36 - k), misses=100.0).tick()
    assert story.memory.knowledge.belief == known
    story.serves(17.0, misses=4.0).pass_time(600)
    assert story.memory.knowledge.belief.minutes > known.minutes + 5


def test_a_minute_without_requests_teaches_nothing_of_the_five_before_it():
    """All of five minutes missed their target, and nothing came in the last one: its window is not there."""
    story = served(17.0, replicas=4)
    known = story.memory.knowledge.belief
    story.burns(ttft=100.0)
    story.slos = {
        sli: dataclasses.replace(one, windows=tuple(w for w in one.windows if w.seconds > 60))
        for sli, one in story.slos.items()
    }
    story.pass_time(120)
    assert story.memory.knowledge.belief == known


def test_missing_data_holds_whatever_was_learned():
    story = served(10.0, replicas=6, minutes=4)
    before = story.levers
    story.blind(SignalState.NO_DATA, "NoSeries").pass_time(1800)
    assert story.levers == before


def test_a_share_that_misses_at_any_load_is_said_and_buys_no_replicas():
    story = Story(tier(**CHAT_TIER), replicas=4)
    for rate in (16.0, 8.0, 4.0):
        story.serves(rate, misses=4.0).pass_time(2400)
    decision = story.serves(16.0, misses=8.0).pass_time(600)
    assert story.memory.knowledge.belief.floor >= 1.0
    assert decision.limited is not None
    assert decision.limited.reason is Reason.INFEASIBLE
    settled = story.levers.replicas
    story.pass_time(1200)
    assert story.levers.replicas <= settled


def hopeless(sli: Sli, *, rate: float) -> Story:
    """A target of a tenth of what a lone request takes: every request misses it, and so does the median."""
    target = {"ttft": 0.008} if sli is Sli.TTFT else {"tpot": 0.001}
    story = Story(tier(**{**CHAT_TIER, **target}), replicas=1)
    story.serves(rate).burns(**{str(sli).lower(): 100.0})
    story.slos[sli] = dataclasses.replace(story.slos[sli], histogram=half_below(0.1), p99=Quantile(0.2))
    return story


@pytest.mark.parametrize("sli", list(Sli))
@pytest.mark.parametrize("rate", [0.2, 2.0])
def test_a_target_that_no_request_could_meet_even_alone_takes_no_gpus(sli, rate):
    story = hopeless(sli, rate=rate)
    story.pass_time(3600)
    assert story.levers.replicas <= 2  # one may come while the engine's speed is not known yet
    limited = story.decisions[-1].limited
    assert limited is not None
    assert limited.reason is Reason.INFEASIBLE
    assert f"spec.slo.{str(sli).lower()}Milliseconds" in limited.message


def test_beside_a_target_that_nobody_could_meet_the_load_still_gets_its_replicas():
    story = hopeless(Sli.TPOT, rate=2.0)
    story.pass_time(600)
    calls = story.slos
    story.serves(30.0, waiting=300.0)
    story.slos = calls
    story.pass_time(600)
    assert story.levers.replicas >= 3


def sized(rate: float, *, replicas: int = 4, flat: bool = False, lead_seconds: float = 150.0):
    """One plan from what is known, without a story around it."""
    story = Story(tier(**CHAT_TIER), replicas=replicas)
    story.serves(rate)
    seen = Minutes(Minute(60.0 * k, rate, rate) for k in range(15 if flat else 0))
    known = Knowledge(engine=Measured(slowness=Mean(100.0, 100.0)), demand=Demand(rate, 0.0, 15), minutes=seen)
    return sized_from(story, known, current=Levers(replicas, 56), lead_seconds=lead_seconds)


@settings(max_examples=100)
@given(rate=st.floats(0.0, 500.0), more=st.floats(0.0, 500.0))
def test_more_demand_never_needs_fewer_replicas(rate, more):
    assert sized(rate + more).need >= sized(rate).need * (1 - 1e-6)


@settings(max_examples=100)
@given(rate=st.floats(0.1, 150.0), flat=st.booleans())
def test_the_planned_size_is_a_fixed_point(rate, flat):
    """Where no queue is left to work off."""
    first = sized(rate, replicas=64, flat=flat).grow_to
    again = sized(rate, replicas=first, flat=flat)
    assert again.grow_to <= first <= again.shrink_to


@settings(max_examples=100)
@given(rate=st.floats(0.1, 150.0))
def test_a_load_that_does_not_rise_may_be_short_of_a_part_of_a_replica(rate):
    """A tenth of each of the first two, three tenths of a larger pool; while it rises, of one tenth. What starts in ten
    minutes is missed for so long: 0.1 + 0.2 * 150 / 630."""
    flat, rising = sized(rate, replicas=64, flat=True), sized(rate, replicas=64)
    late = sized(rate, replicas=64, flat=True, lead_seconds=630.0)
    assert late.need - late.grow_to <= 0.148
    assert flat.need == rising.need
    assert flat.need - flat.grow_to <= min(0.3, 0.1 * flat.grow_to) + 1e-9
    assert rising.need - rising.grow_to <= 0.1 + 1e-9
    assert flat.grow_to <= rising.grow_to <= flat.grow_to + 1


def test_prompts_four_times_as_long_are_known_a_minute_after_the_rates_show_them():
    story = Story(tier(replicas=(1, 24)), replicas=16)
    story.serves(20.0).pass_time(300)
    longer = dataclasses.replace(CHAT, prompt_tokens=4 * CHAT.prompt_tokens)
    story.serves(20.0, lengths=longer).pass_time(60)
    assert story.memory.knowledge.lengths.prompt_tokens > 0.9 * longer.prompt_tokens
