"""Whatever is asked of it, the scheduler keeps vLLM's promises."""

from itertools import accumulate

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from e2e.engine.scheduler import Request

story = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    """Up to a dozen requests of at most 120 + 30 tokens, so that each fits into 10 blocks of 16 on its own."""
    gaps = draw(st.lists(st.floats(0, 0.05), min_size=1, max_size=12))
    lengths = [(draw(st.integers(1, 120)), draw(st.integers(1, 30))) for _ in gaps]
    return [
        Request(str(number), prompt, output, arrival)
        for number, (arrival, (prompt, output)) in enumerate(zip(accumulate(gaps), lengths, strict=True))
    ]


sizes = st.fixed_dictionaries({"cap": st.integers(1, 6), "budget": st.integers(6, 64), "blocks": st.integers(10, 40)})


@story
@given(requests(), sizes)
def test_the_running_batch_never_exceeds_the_cap(virtual_engine, asked, size):
    engine = virtual_engine(**size)
    engine.run(asked)
    assert max(engine.running_after_schedule) <= size["cap"]


@story
@given(requests(), sizes)
def test_a_step_never_exceeds_the_token_budget(virtual_engine, asked, size):
    engine = virtual_engine(**size)
    engine.run(asked)
    assert max(step.output.total_num_scheduled_tokens for step in engine.steps) <= size["budget"]


@story
@given(requests(), sizes)
def test_requests_start_in_the_order_of_their_arrival(virtual_engine, asked, size):
    engine = virtual_engine(**size)
    engine.run(asked)
    started = [request for step in engine.steps for request in step.output.newly_running]
    first_starts = list(dict.fromkeys(request.request_id for request in started))
    assert first_starts == [request.request_id for request in asked]


@story
@given(requests(), sizes)
def test_every_request_gets_exactly_the_tokens_it_asked_for(virtual_engine, asked, size):
    engine = virtual_engine(**size)
    engine.run(asked)
    assert [(r.num_output_tokens, r.finish_reason) for r in asked] == [(r.max_tokens, "length") for r in asked]


@story
@given(requests(), sizes)
def test_all_memory_is_free_again_at_the_end(virtual_engine, asked, size):
    engine = virtual_engine(**size)
    engine.run(asked)
    assert engine.scheduler.kv_cache.free_blocks == size["blocks"]


@story
@given(requests(), sizes)
def test_computed_tokens_are_the_needed_ones_plus_what_preemption_threw_away(virtual_engine, asked, size):
    thrown_away = []
    engine = virtual_engine(**size)
    preempt = engine.scheduler._preempt

    def noting(victim: Request) -> None:
        thrown_away.append(victim.num_computed_tokens)
        preempt(victim)

    engine.scheduler._preempt = noting
    engine.run(asked)
    computed = sum(step.output.total_num_scheduled_tokens for step in engine.steps)
    needed = sum(request.num_prompt_tokens + request.max_tokens - 1 for request in asked)
    assert computed == needed + sum(thrown_away)


@story
@given(requests(), sizes, st.randoms(use_true_random=False))
def test_caps_changed_between_any_two_steps_hold_at_once_and_starve_nobody(virtual_engine, asked, size, dice):
    def change(engine) -> None:
        engine.scheduler.max_num_active_reqs = dice.randint(1, size["cap"])
        engine.scheduler.max_num_scheduled_tokens = dice.randint(1, size["budget"])
        limits.append(
            (
                max(engine.scheduler.max_num_active_reqs, len(engine.scheduler.running)),
                engine.scheduler.max_num_scheduled_tokens,
            )
        )

    limits: list[tuple[int, int]] = []
    engine = virtual_engine(**size, before_step=change)
    engine.run(asked)
    for (cap, budget), running, step in zip(limits, engine.running_after_schedule, engine.steps, strict=True):
        assert running <= cap
        assert step.output.total_num_scheduled_tokens <= budget
    assert all(request.finish_reason == "length" for request in asked)


@story
@given(requests(), sizes)
def test_littles_law_holds(virtual_engine, asked, size):
    engine = virtual_engine(**size)
    engine.run(asked)
    sojourns = [request.last_token_time - request.arrival_time for request in asked]
    assert engine.in_system_seconds == pytest.approx(sum(sojourns), rel=1e-6)


def test_memory_pressure_preempts_the_youngest_running_request(virtual_engine):
    old, young = Request("old", 64, 60, 0.0), Request("young", 64, 60, 0.0)
    engine = virtual_engine(cap=2, budget=256, blocks=10)
    engine.run([old, young])
    assert (old.num_preemptions, young.num_preemptions) == (0, 1)
    assert old.last_token_time < young.last_token_time


def test_decodes_keep_running_beside_a_long_prompt(virtual_engine):
    stream, prompt = Request("stream", 4, 30, 0.0), Request("prompt", 400, 1, 0.01)
    engine = virtual_engine(cap=2, budget=64)
    engine.run([stream, prompt])
    chunks = [dict(map(reversed_pair, step.output.scheduled)) for step in engine.steps if step.prefill_tokens > 1]
    beside = [chunk for chunk in chunks if "prompt" in chunk]
    assert all(chunk["stream"] == 1 for chunk in beside)
    assert [chunk["prompt"] for chunk in beside] == [63, 63, 63, 63, 63, 63, 22]


def reversed_pair(pair: tuple[Request, int]) -> tuple[str, int]:
    return pair[0].request_id, pair[1]


def test_an_aborted_request_leaves_at_once_and_frees_its_memory(virtual_engine):
    engine = virtual_engine()
    gone, waiting = Request("gone", 10, 10, 0.0), Request("waiting", 10, 10, 0.0)
    engine.core.add(gone)
    engine.core.add(waiting)
    step = engine.core.begin_step(0.0)
    engine.core.abort(gone)
    engine.core.finish_step(step, 1.0)
    assert gone.num_output_tokens == 0
    assert engine.scheduler.running == [waiting]
    assert engine.core.queued_prompt_tokens == 0


def test_an_engine_before_0_31_is_capped_by_its_running_limit(virtual_engine):
    engine = virtual_engine(cap=4)
    del engine.scheduler.max_num_active_reqs

    def lower(engine) -> None:
        engine.scheduler.max_num_running_reqs = max(2, len(engine.scheduler.running))

    engine.before_step = lower
    engine.run([Request(str(n), 8, 5, 0.0) for n in range(6)])
    assert max(engine.running_after_schedule) == 2


def test_a_step_that_begins_late_schedules_no_request_before_its_arrival(virtual_engine):
    """The histogram's sum would fall, and Prometheus would take that for a restart."""
    engine = virtual_engine(cap=1, budget=64, blocks=10)
    late = Request("late", 10, 5, arrival_time=1.0)
    engine.core.add(late)
    engine.core.begin_step(0.9)
    assert late.scheduled_time == 1.0
