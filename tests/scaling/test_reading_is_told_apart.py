"""Reading prompts is measured apart from decoding: a profile that has it too cheap makes no batch too large."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scaling.story import CHAT, PROFILE, Story, tier
from tierkeeper.engine.latency import Lengths, Profile
from tierkeeper.scaling.demand import Look, look
from tierkeeper.scaling.measured import MOST_DEAR, Mean, Measured, measure
from tierkeeper.slo.model import SignalState, Traffic


def too_cheap() -> Profile:
    """The profile, but it has reading 30 % cheaper than it is."""
    return dataclasses.replace(PROFILE, per_prefill_token_seconds=0.7 * PROFILE.per_prefill_token_seconds)


def served(rate: float, *, profile: Profile = PROFILE, reading: float | None = 1.0, ahead: bool = True) -> Story:
    """Four replicas that have carried ``rate`` requests/s for ten minutes."""
    story = Story(tier(ttft=1.5, tpot=0.04, seqs=(8, 256), start=56, tokens=(256, 8192), replicas=(1, 32)), replicas=4)
    story.profile = profile
    story.serves(rate, reading=reading, ahead=ahead).pass_time(600)
    return story


def dearness(story: Story) -> float:
    """How dear the law takes reading to be beside decoding, against the true profile."""
    shaped = story.memory.knowledge.engine.shaped(story.profile)
    return shaped.per_prefill_token_seconds / PROFILE.per_prefill_token_seconds


@pytest.mark.parametrize("ahead", [True, False])
def test_a_right_profile_stays_as_it_is(ahead):
    story = served(17.0, ahead=ahead)
    assert dearness(story) == pytest.approx(1.0, rel=0.01)
    assert story.memory.knowledge.engine.speed == pytest.approx(1.0, rel=0.01)


def test_a_profile_that_has_reading_too_cheap_is_put_right():
    right, wrong = served(17.0), served(17.0, profile=too_cheap())
    assert dearness(wrong) == pytest.approx(1.0, rel=0.03)
    assert wrong.memory.knowledge.engine.speed == pytest.approx(1.0, rel=0.03)
    for story in (right, wrong):
        story.serves(30.0, reading=1.0, ahead=True).pass_time(120)
    assert wrong.levers.replicas == right.levers.replicas > 4
    assert wrong.decisions[-1].inputs["neededReplicas"] == pytest.approx(
        right.decisions[-1].inputs["neededReplicas"], rel=0.03
    )


def test_where_a_step_ahead_could_explain_a_part_only_the_rest_is_put_right():
    assert 0.72 < dearness(served(17.0, profile=too_cheap(), ahead=False)) < 0.9


def test_an_engine_that_shows_no_prefill_time_is_taken_at_the_profile_s_word():
    assert dearness(served(17.0, profile=too_cheap(), reading=None)) == pytest.approx(0.7)


def test_reading_cheaper_than_the_profile_s_is_left_to_clean_minutes():
    assert dearness(served(17.0, reading=0.5)) == 1.0


def test_missing_data_holds_what_reading_has_shown():
    story = served(17.0, profile=too_cheap())
    shown = story.memory.knowledge.engine
    story.blind(SignalState.NO_DATA, "NoSeries").pass_time(300)
    assert story.memory.knowledge.engine == shown


@pytest.mark.parametrize("queued", [0.0, 5.0])
def test_prompts_that_have_waited_are_read_many_at_once_and_tell_nothing(queued):
    story = Story(tier(replicas=(1, 32)), replicas=4)
    story.serves(17.0, reading=1.0, queued=queued).pass_time(600)
    assert (story.memory.knowledge.engine.reading == Mean()) is (queued > 1.0)


def test_prompts_too_short_to_tell_are_not_read_from():
    story = Story(tier(replicas=(1, 32)), replicas=4)
    story.serves(8.0, lengths=Lengths(prompt_tokens=60, output_tokens=200), reading=1.0).pass_time(600)
    assert story.memory.knowledge.engine.reading == Mean()


LOOKS = st.builds(
    Traffic,
    running=st.floats(0, 1e4),
    requests_per_second=st.floats(0, 1e3),
    finished_per_second=st.floats(0, 1e3),
    prompt_tokens_per_second=st.floats(0, 1e7),
    generation_tokens_per_second=st.floats(0, 1e6),
    mean_prefill_seconds=st.none() | st.floats(0, 1e3),
    mean_queue_seconds=st.none() | st.floats(0, 1.0),
    mean_prompt_tokens=st.none() | st.floats(0, 1e6),
    observed_pods=st.integers(0, 100),
)


@given(shown=st.lists(LOOKS, max_size=8), tokens=st.none() | st.integers(1, 16_384))
def test_whatever_is_shown_the_shape_stays_within_bounds(shown, tokens):
    known = Measured()
    for traffic in shown:
        known = measure(
            known,
            traffic=traffic,
            looks=look_at(traffic),
            lengths=CHAT,
            elapsed=15.0,
            profile=PROFILE,
            token_budget=tokens,
        )
    shaped = known.shaped(PROFILE)
    assert 1.0 <= shaped.per_prefill_token_seconds / PROFILE.per_prefill_token_seconds <= MOST_DEAR * (1 + 1e-9)
    assert dataclasses.replace(shaped, per_prefill_token_seconds=PROFILE.per_prefill_token_seconds) == PROFILE
    assert known.speed is None or 0.0 < known.speed < 100.0


def look_at(traffic: Traffic) -> tuple[Look, ...]:
    return look((), now=0.0, traffic=traffic)
