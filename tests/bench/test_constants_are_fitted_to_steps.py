"""From measured times to the constants of a step: what was planted is found again."""

from __future__ import annotations

import dataclasses
import random

import pytest

from bench.policy.calibration import Answer, decoding, lone_prompt, mixed
from bench.policy.fit import Sample, fit
from tierkeeper.engine.latency import Profile

PLANTED = Profile(
    name="planted",
    base_seconds=0.020,
    per_sequence_seconds=0.0008,
    per_context_token_seconds=1.5e-6,
    per_prefill_token_seconds=0.002,
)
FRONT = 0.004
BUDGET = 256


def step(*, contexts: list[int], prefill: int = 0) -> float:
    batch = PLANTED.per_sequence_seconds * len(contexts) + PLANTED.per_context_token_seconds * sum(contexts)
    return PLANTED.base_seconds + batch + PLANTED.per_prefill_token_seconds * prefill


def streams(count: int, *, prompt: int, output: int, began: float = 100.0) -> list[Answer]:
    """Streams whose prompts were all computed at ``began``: from there each step gives each of them a token."""
    now, tokens = began, [began]
    for written in range(1, output):
        now += step(contexts=[prompt + written] * count)
        tokens.append(now)
    return [Answer(prompt, sent=began - 1, tokens=list(tokens)) for _ in range(count)]


def lone(prompt: int) -> Answer:
    """A prompt alone, in chunks: the first token ends the last one."""
    chunks = [BUDGET] * (prompt // BUDGET) + ([prompt % BUDGET] if prompt % BUDGET else [])
    took = sum(step(contexts=[], prefill=chunk) for chunk in chunks[:-1]) + step(contexts=[prompt], prefill=chunks[-1])
    return Answer(prompt, sent=0.0, tokens=[FRONT + took])


def joined(count: int, *, prompt: int, arriving: int) -> tuple[list[Answer], Answer]:
    """Streams beside which a prompt is computed from their tenth token on."""
    now, tokens, left, first = 50.0, [50.0], arriving, 0.0
    for written in range(1, 40):
        chunk = min(left, BUDGET - count) if written >= 10 else 0
        left -= chunk
        ends = [arriving] if chunk and not left else []
        now += step(contexts=[prompt + written] * count + ends, prefill=chunk)
        first = now if ends else first
        tokens.append(now)
    running = [Answer(prompt, sent=49.0, tokens=list(tokens)) for _ in range(count)]
    return running, Answer(arriving, sent=50.1, tokens=[first + 0.0005])


def experiments() -> list[Sample]:
    found = [lone_prompt(lone(prompt), budget=BUDGET) for prompt in (16, 64, 200, 256, 500, 1000)]
    for count in (1, 4, 16):
        for prompt in (64, 512):
            found += decoding(streams(count, prompt=prompt, output=40))
        one = mixed(*joined(count, prompt=64, arriving=600), budget=BUDGET)
        assert one is not None
        found.append(one)
    return found


def test_planted_constants_are_found_again() -> None:
    found = fit(experiments(), name="planted")
    assert found.front_seconds == pytest.approx(FRONT, rel=0.02)
    for field in dataclasses.fields(Profile)[1:]:
        assert getattr(found.profile, field.name) == pytest.approx(getattr(PLANTED, field.name), rel=0.02)
    assert found.largest_error < 0.01


def test_five_percent_of_noise_moves_the_large_constants_little() -> None:
    noise = random.Random(3)
    seen = [dataclasses.replace(one, seconds=one.seconds * noise.uniform(0.95, 1.05)) for one in experiments()]
    found = fit(seen, name="noisy")
    assert found.profile.base_seconds == pytest.approx(PLANTED.base_seconds, rel=0.05)
    assert found.profile.per_prefill_token_seconds == pytest.approx(PLANTED.per_prefill_token_seconds, rel=0.05)
    assert 0.01 < found.mean_error < 0.05


def test_the_steps_of_a_prompt_beside_streams_are_those_up_to_its_first_token() -> None:
    running, arriving = joined(4, prompt=64, arriving=600)
    seen = mixed(running, arriving, budget=BUDGET)
    assert seen is not None
    assert (seen.steps, seen.sequences, seen.prefill) == (3, 13, 600)  # 252 + 252 + 96 tokens; its own one is the 13th
    assert seen.seconds == pytest.approx(running[0].tokens[12] - running[0].tokens[9])


def test_a_prompt_beside_streams_that_had_ended_tells_nothing() -> None:
    running, arriving = joined(4, prompt=64, arriving=600)
    running[2].tokens = running[2].tokens[:11]
    assert mixed(running, arriving, budget=BUDGET) is None


def test_what_would_be_negative_is_held_at_zero() -> None:
    """Steps that get shorter with context: the others explain what they can."""
    seen = [
        Sample(seconds=0.020 + 0.001 * batch - 2e-7 * context, sequences=batch, context=context)
        for batch in (1, 4, 16)
        for context in (100, 1000, 4000)
    ]
    found = fit(seen, name="odd").profile
    assert found.per_context_token_seconds == 0.0
    assert found.base_seconds == pytest.approx(0.020, rel=0.1)


def test_samples_that_say_all_the_same_are_refused() -> None:
    with pytest.raises(ValueError, match="vary batch and lengths"):
        fit([Sample(seconds=0.02, sequences=4, context=400)] * 5, name="same")
