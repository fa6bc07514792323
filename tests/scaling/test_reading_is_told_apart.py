"""Reading prompts is measured apart from decoding: a profile that has it too cheap makes no batch too large."""

import dataclasses
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scaling.story import CHAT, PROFILE, Story, tier
from tierkeeper.engine.latency import Lengths, Profile, decode_step_seconds, saturated_tpot_seconds
from tierkeeper.scaling.demand import look
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


def test_an_engine_that_is_slower_at_all_it_does_does_not_read_dearer():
    story = Story(tier(tpot=0.04, replicas=(1, 32)), replicas=4)
    story.serves(8.0, slowness=2.0, reading=1.0, ahead=True).pass_time(600)
    assert story.memory.knowledge.engine.speed == pytest.approx(2.0, rel=0.01)
    assert dearness(story) == pytest.approx(1.0, rel=0.01)


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


@pytest.mark.parametrize("prompt", [1155, 3000, 6000])
def test_a_budget_that_nobody_has_set_is_taken_for_the_smallest_and_long_prompts_do_not_look_dear(prompt):
    """An engine of the profile's shape with 2,048 tokens a step, of its own choice, that schedules a step ahead."""
    lengths = Lengths(prompt_tokens=prompt, output_tokens=211)
    traffic = chunked(lengths, batch=20.0, room=2048 - 20.0)
    shaped = seen([traffic] * 60, lengths=lengths).shaped(PROFILE)
    assert shaped.per_prefill_token_seconds == pytest.approx(PROFILE.per_prefill_token_seconds)


def test_an_engine_that_stood_still_for_a_minute_has_not_shown_what_reading_costs():
    usual = chunked(CHAT, batch=20.0, room=8192.0)
    still = dataclasses.replace(usual, mean_prefill_seconds=30.0, mean_queue_seconds=20.0)
    shaped = seen([*[usual] * 80, *[still] * 4, *[usual] * 20]).shaped(PROFILE)
    assert shaped.per_prefill_token_seconds < 1.3 * PROFILE.per_prefill_token_seconds


def chunked(lengths: Lengths, *, batch: float, room: float) -> Traffic:
    """What one replica shows that reads its prompts in steps with ``room`` for them. See ``reading_speed``."""
    read = PROFILE.per_prefill_token_seconds
    step = saturated_tpot_seconds(PROFILE, batch=batch, lengths=lengths)
    rate = batch / (lengths.output_tokens * step)
    steps = 1.0 / (1.0 - math.exp(-room / lengths.prompt_tokens))
    tokens = min(lengths.prompt_tokens * (1.0 + steps * rate * step), steps * room)
    decoding = steps * decode_step_seconds(PROFILE, batch=batch, lengths=lengths)
    prefill = decoding + read * tokens + step
    return Traffic(
        running=batch + rate * prefill,
        requests_per_second=rate,
        finished_per_second=rate,
        prompt_tokens_per_second=rate * lengths.prompt_tokens,
        generation_tokens_per_second=rate * lengths.output_tokens,
        mean_prefill_seconds=prefill,
        mean_queue_seconds=0.0,
        mean_prompt_tokens=lengths.prompt_tokens,
        observed_pods=1,
    )


def seen(shown: Sequence[Traffic], *, lengths: Lengths = CHAT, tokens: int | None = None) -> Measured:
    """What is known after these looks, one each quarter of a minute."""
    known = Measured()
    for traffic in shown:
        known = measure(
            known,
            traffic=traffic,
            looks=look((), now=0.0, traffic=traffic),
            lengths=lengths,
            elapsed=15.0,
            profile=PROFILE,
            token_budget=tokens,
        )
    return known


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
    known = seen(shown, tokens=tokens)
    shaped = known.shaped(PROFILE)
    assert 1.0 <= shaped.per_prefill_token_seconds / PROFILE.per_prefill_token_seconds <= MOST_DEAR * (1 + 1e-9)
    assert dataclasses.replace(shaped, per_prefill_token_seconds=PROFILE.per_prefill_token_seconds) == PROFILE
    assert known.speed is None or 0.0 < known.speed < 100.0
