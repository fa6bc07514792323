"""A target that no number of replicas would keep takes none, and is told from one that is merely tight."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scaling.story import CHAT, PROFILE, Story, half_below, slo, tier
from tierkeeper.engine.capacity import read_seconds
from tierkeeper.engine.latency import Profile, decode_step_seconds, saturated_tpot_seconds
from tierkeeper.scaling.demand import Look
from tierkeeper.scaling.model import Reason
from tierkeeper.scaling.reach import PAIR, Reach, observe
from tierkeeper.slo.model import Sli, Traffic

LONE = decode_step_seconds(PROFILE, batch=1.0, lengths=CHAT)
"""8.6 ms: a request that nobody disturbs."""

SHAPES = [(1.0, 1.0), (0.7, 1.3), (1.3, 0.7), (0.7, 0.7), (1.3, 1.3)]
"""How far what a step costs by itself, and by what is in it, are off in the profile."""


def scaled(profile: Profile, base: float, rest: float) -> Profile:
    return Profile(
        "another",
        base * profile.base_seconds,
        rest * profile.per_sequence_seconds,
        rest * profile.per_context_token_seconds,
        rest * profile.per_prefill_token_seconds,
    )


def keeps(batch: float) -> float:
    """The TPOT target that a saturated batch of this size just keeps: 9.0 ms for one, 9.9 ms for three."""
    return saturated_tpot_seconds(PROFILE, batch=batch, lengths=CHAT)


def promised(tpot: float, *, rate: float = 5.0, seconds: float = 2700.0, shape: tuple[float, float] = (1, 1)) -> Story:
    """A pool under this TPOT target for so long: pods start at once, and every token takes as long as a mean step."""
    story = Story(tier(replicas=(1, 40), seqs=(16, 256), start=32, tpot=tpot, window=300), replicas=2)
    story.profile = scaled(PROFILE, 1 / shape[0], 1 / shape[1])
    while story.now < 10_000.0 + seconds:
        story.serves(rate)
        step = story.traffic.running / story.traffic.generation_tokens_per_second
        late = step > tpot
        story.slos[Sli.TPOT] = slo(Sli.TPOT, threshold=tpot, burn=100.0 if late else 0.0, p50=step, p99=1.2 * step)
        story.pass_time(30.0)
        story.pods_become_ready()
    return story


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tpot", [0.5 * LONE, 0.7 * LONE, 0.95 * LONE])
def test_a_target_shorter_than_a_lone_step_is_infeasible_whatever_the_profile_says(tpot, shape):
    story = promised(tpot, shape=shape)
    decision = story.decisions[-1]
    assert decision.reason is Reason.INFEASIBLE
    assert "raise spec.slo.tpotMilliseconds" in decision.message
    assert story.levers.replicas <= 6


def test_a_target_far_below_a_lone_step_costs_what_the_load_needs_and_no_more():
    alone = promised(0.5 * LONE).levers.replicas
    assert promised(0.9 * LONE).levers.replicas <= alone + 2


@pytest.mark.parametrize("shape", SHAPES)
def test_a_target_that_a_batch_of_three_keeps_is_served_whatever_the_profile_says(shape):
    story = promised(keeps(3.0), shape=shape)
    assert story.decisions[-1].reason is not Reason.INFEASIBLE
    assert story.slos[Sli.TPOT].met
    assert story.levers.replicas <= 16


@pytest.mark.parametrize("batch", [0.5, 1.0])
def test_a_target_that_only_a_lone_sequence_keeps_does_not_take_gpus_without_end(batch):
    assert promised(keeps(batch)).levers.replicas <= 16


def test_it_is_served_again_once_the_target_is_loosened():
    story = promised(0.9 * LONE)
    objective = dataclasses.replace(story.spec.objective, tpot_seconds=0.04)
    story.spec = dataclasses.replace(story.spec, objective=objective)
    story.serves(5.0).pass_time(60.0)
    assert story.decisions[-1].reason is not Reason.INFEASIBLE
    assert story.memory.knowledge.reach.doubted == ()


def test_a_first_token_sooner_than_a_lone_prompt_is_read_takes_no_replicas():
    """80 ms for a mean prompt alone; 45 ms are promised, and who waits for the step under way is no queue."""
    story = Story(tier(replicas=(1, 24), ttft=0.045, tpot=None), replicas=2)
    story.serves(5.0, waiting=0.0)
    story.burns(ttft=60.0)
    story.slos[Sli.TTFT] = dataclasses.replace(story.slos[Sli.TTFT], histogram=half_below(0.07))
    story.traffic = dataclasses.replace(story.traffic, waiting=1.0)
    story.pass_time(3600.0)
    assert story.levers.replicas <= 4
    assert story.decisions[-1].reason is Reason.INFEASIBLE
    assert "raise spec.slo.ttftMilliseconds" in story.decisions[-1].message


@settings(max_examples=200)
@given(
    base=st.floats(0.71, 1.29),
    rest=st.floats(0.71, 1.29),
    slowness=st.floats(0.1, 10.0),
    batch=st.floats(0.1, 200.0),
    reading=st.floats(0.0, 0.9),
)
def test_what_is_least_is_never_more_than_what_the_engine_does(base, rest, slowness, batch, reading):
    """Under any load, and with any profile whose constants are within 30 % of the engine's."""
    engine = scaled(PROFILE, base, rest)
    step = slowness * decode_step_seconds(engine, batch=batch, lengths=CHAT) / (1.0 - reading)
    prompts = reading / (slowness * engine.per_prefill_token_seconds)
    traffic = Traffic(
        running=batch,
        generation_tokens_per_second=batch / step,
        prompt_tokens_per_second=prompts,
        observed_pods=1,
    )
    looks = (Look(0.0, 0.0, batch, 1.0, 1),)
    found = observe(Reach(), traffic=traffic, looks=looks, lengths=CHAT, elapsed=15.0, profile=PROFILE)
    pair = slowness * saturated_tpot_seconds(engine, batch=PAIR, lengths=CHAT)
    assert found.pair_seconds.value(0.0) <= pair * 1.001
    assert found.read_seconds.value(0.0) <= read_seconds(engine, speed=slowness, lengths=CHAT) * 1.001
