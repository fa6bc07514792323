"""The latency model: monotone in load, free of the engine's absolute speed, and equal to its worked numbers."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierkeeper.engine.latency import (
    LLAMA_8B_2XA100,
    Lengths,
    Profile,
    decode_step_seconds,
    prefill_share,
    saturated_tpot_seconds,
    tpot_growth,
)

BATCHES = st.floats(min_value=0.1, max_value=1024)
LENGTHS = st.builds(
    Lengths,
    prompt_tokens=st.floats(min_value=1, max_value=100_000),
    output_tokens=st.floats(min_value=1, max_value=10_000),
)


def slower(profile: Profile, factor: float) -> Profile:
    return dataclasses.replace(
        profile,
        base_seconds=profile.base_seconds * factor,
        per_sequence_seconds=profile.per_sequence_seconds * factor,
        per_context_token_seconds=profile.per_context_token_seconds * factor,
        per_prefill_token_seconds=profile.per_prefill_token_seconds * factor,
    )


def test_the_worked_numbers_of_the_docstrings_hold():
    lengths = Lengths()
    assert saturated_tpot_seconds(LLAMA_8B_2XA100, batch=24, lengths=lengths) == pytest.approx(0.0197, abs=1e-4)
    assert saturated_tpot_seconds(LLAMA_8B_2XA100, batch=64, lengths=lengths) == pytest.approx(0.0383, abs=1e-4)
    share = prefill_share(LLAMA_8B_2XA100, batch=24, lengths=lengths, tpot_seconds=0.020, prompt_tokens_per_second=4331)
    assert share == pytest.approx(0.32, abs=0.005)


def test_a_lone_sequence_costs_little_more_than_the_base():
    step = decode_step_seconds(LLAMA_8B_2XA100, batch=1, lengths=Lengths(prompt_tokens=1000, output_tokens=1))
    assert step == pytest.approx(0.0086, abs=1e-4)


@given(small=BATCHES, more=BATCHES, lengths=LENGTHS)
def test_a_larger_batch_never_makes_tokens_faster_nor_slower_than_in_proportion(small, more, lengths):
    growth = tpot_growth(LLAMA_8B_2XA100, batch_from=small, batch_to=small + more, lengths=lengths)
    assert 1.0 <= growth <= (small + more) / small * (1 + 1e-9)


@given(a=BATCHES, b=BATCHES, lengths=LENGTHS, factor=st.floats(min_value=0.05, max_value=50))
def test_the_prediction_does_not_depend_on_how_fast_the_engine_is(a, b, lengths, factor):
    fast = tpot_growth(LLAMA_8B_2XA100, batch_from=a, batch_to=b, lengths=lengths)
    assert tpot_growth(slower(LLAMA_8B_2XA100, factor), batch_from=a, batch_to=b, lengths=lengths) == pytest.approx(
        fast
    )


@given(batch=BATCHES, lengths=LENGTHS, tpot=st.floats(0.001, 1), rate=st.floats(0, 100_000))
def test_the_prefill_share_is_a_share_and_grows_with_the_prompts(batch, lengths, tpot, rate):
    share = prefill_share(
        LLAMA_8B_2XA100, batch=batch, lengths=lengths, tpot_seconds=tpot, prompt_tokens_per_second=rate
    )
    longer = prefill_share(
        LLAMA_8B_2XA100, batch=batch, lengths=lengths, tpot_seconds=tpot, prompt_tokens_per_second=rate * 2
    )
    assert 0.0 <= share <= longer < 1.0
