"""What a plan sends, and when."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.load import LoadPlan, Phase, TargetPlan, Trace
from e2e.load.plan import read_targets
from e2e.load.trace import EXCERPT, TracePoint

EVEN = Trace((TracePoint(0.5, 100, 10), TracePoint(0.5, 200, 20)))


def target(*phases: Phase, name: str = "gold") -> TargetPlan:
    return TargetPlan(name, "http://127.0.0.1:1", "", phases)


def arrivals(trace: Trace, *phases: Phase, seed: int = 1, name: str = "gold"):
    plan = LoadPlan(trace, [target(*phases, name=name)], seed=seed)
    return plan.arrivals(plan.targets[0])


def test_the_excerpt_is_fifteen_minutes_of_recorded_traffic():
    trace = Trace.read(EXCERPT)
    assert len(trace.points) == 4420
    assert trace.mean_rate == pytest.approx(4.92, abs=0.01)
    assert (trace.points[0].prompt_tokens, trace.points[0].output_tokens) == (374, 44)


def test_a_phase_sends_at_its_rate():
    times = [arrival.at_s for arrival in arrivals(EVEN, Phase(10, rate_per_s=4))]
    assert len(times) == 39
    assert [later - earlier for earlier, later in pairwise(times)] == pytest.approx([0.25] * 38)


def test_speed_is_a_multiple_of_the_recorded_rate():
    assert len(arrivals(EVEN, Phase(100, speed=3.0))) == pytest.approx(600, abs=1)


def test_recorded_gaps_keep_their_shape():
    bursty = Trace((TracePoint(1.8, 1, 1), TracePoint(0.2, 1, 1)))
    times = [arrival.at_s for arrival in arrivals(bursty, Phase(20, rate_per_s=10))]
    assert sorted({round(later - earlier, 6) for earlier, later in pairwise(times)}) == [0.02, 0.18]


def test_a_burst_changes_the_rate_and_nothing_else():
    sent = arrivals(EVEN, Phase(100, rate_per_s=1), Phase(100, rate_per_s=4), Phase(100, rate_per_s=0))
    assert sum(a.at_s < 100 for a in sent) == pytest.approx(100, abs=1)
    assert sum(100 <= a.at_s < 200 for a in sent) == pytest.approx(400, abs=1)
    assert sum(a.at_s >= 200 for a in sent) == 0


def test_lengths_are_scaled_then_capped():
    sent = arrivals(EVEN, Phase(10, rate_per_s=2, length_scale=2, max_prompt_tokens=250, max_output_tokens=30))
    assert {(a.prompt_tokens, a.output_tokens) for a in sent} == {(200, 20), (250, 30)}


def test_targets_start_at_different_places_and_a_seed_repeats_itself():
    trace = Trace.read(EXCERPT)
    gold = arrivals(trace, Phase(60, speed=1.0))
    assert gold == arrivals(trace, Phase(60, speed=1.0))
    assert gold != arrivals(trace, Phase(60, speed=1.0), name="platinum")
    assert gold != arrivals(trace, Phase(60, speed=1.0), seed=2)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(1, 50), st.floats(0, 20)), min_size=1, max_size=5), st.integers(0, 99))
def test_arrivals_are_ordered_and_as_many_as_the_phases_promise(phases, seed):
    sent = arrivals(EVEN, *(Phase(seconds, rate_per_s=rate) for seconds, rate in phases), seed=seed)
    times = [arrival.at_s for arrival in sent]
    assert times == sorted(times)
    assert len(sent) == pytest.approx(sum(seconds * rate for seconds, rate in phases), abs=1.001)


@pytest.mark.parametrize(
    "fields", [{}, {"rate_per_s": 1, "speed": 1}, {"rate_per_s": -1}, {"speed": 1, "length_scale": 0}]
)
def test_a_phase_that_contradicts_itself_is_refused(fields):
    with pytest.raises(ValueError, match="phase"):
        Phase(10, **fields)


def test_a_plan_file_that_misspells_a_key_is_refused_with_the_target_and_the_key(tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text('[{"name": "gold", "url": "u", "model": "", "phases": [{"duration_s": 1, "rate": 2}]}]')
    with pytest.raises(ValueError, match=r"target 'gold'.*'rate'"):
        read_targets(plan)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("TIMESTAMP,ContextTokens\n2023-11-16 18:15:46.68,1\n", "no column 'GeneratedTokens'"),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:47.0,1,1\n2023-11-16 18:15:46.0,1,1\n",
            "in the order of their times",
        ),
    ],
)
def test_a_broken_recording_is_refused(tmp_path, text, message):
    recording = tmp_path / "trace.csv"
    recording.write_text(text)
    with pytest.raises(ValueError, match=message):
        Trace.read(recording)
