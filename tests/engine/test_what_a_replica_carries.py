"""Capacity: the worked numbers hold, more of anything moves it in one direction, and speed is what is measured."""

import dataclasses
import math
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tierkeeper.engine.capacity import (
    Limits,
    batch_within,
    capacity,
    long_prompt_seconds,
    reading_speed,
    speed,
    tail,
    token_budget,
    work_seconds,
)
from tierkeeper.engine.latency import LLAMA_8B_2XA100 as PROFILE
from tierkeeper.engine.latency import Lengths

LENGTHS = st.builds(Lengths, prompt_tokens=st.floats(1, 100_000), output_tokens=st.floats(1, 10_000))
SPEEDS = st.floats(0.1, 10.0)
LIMITS = st.builds(
    Limits,
    max_num_seqs=st.floats(1, 512),
    max_num_batched_tokens=st.none() | st.floats(16, 16_384),
    tpot_seconds=st.none() | st.floats(0.001, 1.0),
    kv_sequences=st.none() | st.floats(1, 1000),
)


def test_the_worked_numbers_of_the_docstrings_hold():
    lengths = Lengths()
    tpot = capacity(PROFILE, speed=1.0, lengths=lengths, limits=Limits(256, tpot_seconds=0.04))
    assert (tpot.batch, tpot.requests_per_second) == (pytest.approx(67.7, abs=0.1), pytest.approx(8.0, abs=0.05))
    capped = capacity(PROFILE, speed=1.0, lengths=lengths, limits=Limits(24))
    assert capped.requests_per_second == pytest.approx(5.8, abs=0.05)
    tokens = token_budget(PROFILE, speed=1.0, lengths=lengths, batch=24, tpot_seconds=0.04)
    assert tokens == pytest.approx(483, abs=1)
    reading = long_prompt_seconds(PROFILE, speed=1.0, lengths=lengths, batch=24, tokens=483)
    assert reading == pytest.approx(0.40, abs=0.005)
    beyond = tail(PROFILE, speed=1.0, lengths=lengths, batch=67, ttft_seconds=1.5)
    shares = [beyond.usable_share(n) for n in (1, 4, 8)]
    assert shares == [pytest.approx(s, abs=0.01) for s in (0.57, 0.78, 0.85)]
    assert work_seconds(PROFILE, lengths) == pytest.approx(0.154, abs=0.001)
    read = reading_speed(PROFILE, prefill_seconds=0.096, prompt_tokens=1155, step_seconds=0.018, prompt_rate=6000)
    assert read == pytest.approx(0.84, abs=0.005)


@given(lengths=LENGTHS, slowness=SPEEDS, limits=LIMITS, batch=st.floats(1, 200))
def test_the_speed_of_a_step_that_the_model_made_is_found_again(lengths, slowness, limits, batch):
    one = capacity(PROFILE, speed=slowness, lengths=lengths, limits=limits)
    found = speed(
        PROFILE,
        batch=one.batch,
        lengths=lengths,
        step_seconds=one.step_seconds,
        prompt_rate=one.requests_per_second * lengths.prompt_tokens,
    )
    assert found == pytest.approx(slowness)


@given(
    slowness=SPEEDS,
    dearer=st.floats(0.5, 4.0),
    prompt=st.floats(1, 100_000),
    busy=st.floats(0.0, 0.9),
    chunk=st.floats(0.1, 100.0),
)
def test_the_speed_of_reading_is_found_in_an_engine_that_schedules_ahead_and_never_overstated(
    slowness, dearer, prompt, busy, chunk
):
    """``busy``: share of the time that goes into reading; ``chunk``: room for prompts in a step, in prompts."""
    read = slowness * dearer * PROFILE.per_prefill_token_seconds
    decode = slowness * PROFILE.base_seconds
    step, rate, room = decode / (1.0 - busy), busy / read, chunk * prompt
    steps = 1.0 / (1.0 - math.exp(-chunk))
    in_them = min(prompt + steps * rate * step, steps * room)
    told = partial(reading_speed, PROFILE, prompt_tokens=prompt, step_seconds=step, prompt_rate=rate, chunk_tokens=room)
    takes = steps * decode + read * in_them
    ahead, at_once = told(prefill_seconds=takes + step), told(prefill_seconds=takes)
    assert ahead is None or ahead == pytest.approx(slowness * dearer, rel=1e-6)
    assert at_once is None or at_once <= slowness * dearer * (1 + 1e-9)
    if chunk > 10 and read * prompt > 1.1 * step and rate * step < 9 * prompt:
        assert ahead is not None


@example(prefill=0.05, prompt=1155.0, rate=0.0, chunk=1e4)
@given(prefill=st.floats(0, 10), prompt=st.floats(0, 1e5), rate=st.floats(0, 1e5), chunk=st.floats(-64, 1e4))
def test_reading_is_told_only_where_it_takes_most_of_the_time(prefill, prompt, rate, chunk):
    step = 0.02
    found = reading_speed(
        PROFILE, prefill_seconds=prefill, prompt_tokens=prompt, step_seconds=step, prompt_rate=rate, chunk_tokens=chunk
    )
    if prefill < 3 * step or prompt < 1 or chunk < 1:
        assert found is None
    assert found is None or 0.0 < found < math.inf


@given(lengths=LENGTHS, slowness=SPEEDS, limits=LIMITS, more=st.floats(1.0, 4.0))
def test_a_larger_cap_never_carries_less_and_a_slower_engine_never_more(lengths, slowness, limits, more):
    one = capacity(PROFILE, speed=slowness, lengths=lengths, limits=limits)
    larger = dataclasses.replace(limits, max_num_seqs=limits.max_num_seqs * more)
    assert capacity(PROFILE, speed=slowness, lengths=lengths, limits=larger).requests_per_second >= (
        one.requests_per_second * (1 - 1e-9)
    )
    slower = capacity(PROFILE, speed=slowness * more, lengths=lengths, limits=limits)
    assert slower.requests_per_second <= one.requests_per_second * (1 + 1e-9)


@given(lengths=LENGTHS, slowness=SPEEDS, tpot=st.floats(0.001, 1.0))
def test_a_batch_within_the_target_meets_it(lengths, slowness, tpot):
    batch = batch_within(PROFILE, speed=slowness, lengths=lengths, tpot_seconds=tpot)
    one = capacity(PROFILE, speed=slowness, lengths=lengths, limits=Limits(1e9, tpot_seconds=tpot))
    assert batch >= 0.0
    if batch >= 1.0:
        assert one.step_seconds == pytest.approx(tpot)


@given(lengths=LENGTHS, slowness=SPEEDS, batch=st.floats(1, 256), tpot=st.floats(0.01, 1.0))
def test_no_step_at_the_token_budget_is_longer_than_tpot(lengths, slowness, batch, tpot):
    tokens = token_budget(PROFILE, speed=slowness, lengths=lengths, batch=batch, tpot_seconds=tpot)
    slope = PROFILE.per_sequence_seconds + PROFILE.per_context_token_seconds * lengths.context_tokens
    decode = PROFILE.base_seconds + batch * slope
    step = slowness * (decode + PROFILE.per_prefill_token_seconds * (tokens - batch))
    assert step <= max(tpot, slowness * (decode + PROFILE.per_prefill_token_seconds)) * (1 + 1e-9)


@given(lengths=LENGTHS, slowness=SPEEDS, batch=st.floats(4, 256), usable=st.floats(4, 500))
def test_as_many_replicas_as_are_asked_for_can_be_used_so_far(lengths, slowness, batch, usable):
    pool = tail(PROFILE, speed=slowness, lengths=lengths, batch=batch, ttft_seconds=None)
    replicas = pool.replicas(usable, least=0.01)
    assert replicas * pool.usable_share(replicas) == pytest.approx(usable, rel=0.001)
    assert pool.replicas(usable, least=2 * replicas) == 2 * replicas


@given(lengths=LENGTHS, slowness=SPEEDS, batch=st.floats(1, 256), few=st.floats(1, 50), more=st.floats(0, 50))
def test_a_larger_pool_can_use_a_larger_share(lengths, slowness, batch, few, more):
    share = tail(PROFILE, speed=slowness, lengths=lengths, batch=batch, ttft_seconds=1.5).usable_share
    assert 0.0 < share(few) <= share(few + more) < 1.0
