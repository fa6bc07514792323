"""The queueing model repeats its published figures, its filter learns, and its law divides."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.laws import Seen, Story
from tierkeeper.sim.peers.figures import Means
from tierkeeper.sim.peers.queueing import Parameters, Queue, Request
from tierkeeper.sim.peers.tuner import DEFAULT, Observation, Tuner, guess
from tierkeeper.sim.peers.wva import WvaLaw, WvaSettings, inferred_targets

#: 12 ms a step, 50 us a token, 0.5 us a token of cache; 128 + 512 tokens: the example of llm-inferno/queue-analysis.
EXAMPLE = Queue(Parameters(0.012, 50e-6, 0.5e-6), Request(128, 512), max_batch=48, max_queue=128)


def test_the_published_example_at_three_requests_a_second():
    found = EXAMPLE.analyze(3.0)
    assert EXAMPLE.highest == pytest.approx(3.8208232)
    assert found.response == pytest.approx(10.568446, rel=1e-5)
    assert found.wait == pytest.approx(0.02827539, rel=1e-4)
    assert found.in_service == pytest.approx(31.620514, rel=1e-5)
    assert found.ttft == pytest.approx(0.07531746, rel=1e-5)
    assert found.itl == pytest.approx(0.020534498, rel=1e-5)


def test_the_published_example_sized_for_sixty_and_twenty_milliseconds():
    assert EXAMPLE.size(ttft=0.060, itl=None) == pytest.approx(2.910594, rel=1e-5)
    assert EXAMPLE.size(ttft=None, itl=0.020) == pytest.approx(2.8741095, rel=1e-5)
    assert EXAMPLE.size(ttft=0.060, itl=0.020) == pytest.approx(2.8741095, rel=1e-5)


@pytest.mark.parametrize(("batch", "rate"), [(8, 1.9), (16, 3.5), (32, 5.5), (64, 7.6), (128, 9.4), (256, 10.1)])
def test_the_rates_that_its_own_code_gave_by_batch_size(batch, rate):
    queue = Queue(Parameters(0.008, 50e-6, 0.05e-6), Request(1000, 300), max_batch=batch, max_queue=100)
    assert queue.size(ttft=0.5, itl=0.05) == pytest.approx(rate, abs=0.06)


def test_a_target_below_a_lone_request_has_no_rate():
    assert EXAMPLE.size(ttft=0.001, itl=0.020) is None


def test_a_rate_that_the_queue_cannot_carry_is_refused():
    with pytest.raises(ValueError, match=r"rate \(4/s\) must be above 0 and at most 3\.82082/s"):
        EXAMPLE.analyze(4.0)


@given(rate=st.floats(0.01, 3.8), more=st.floats(1e-3, 0.5))
def test_latency_never_falls_with_load(rate, more):
    low, high = EXAMPLE.analyze(rate), EXAMPLE.analyze(min(rate + more, EXAMPLE.highest))
    assert high.ttft >= low.ttft - 1e-12
    assert high.itl >= low.itl - 1e-12


def measured(queue: Queue, rate: float) -> Observation:
    found = queue.analyze(rate)
    return Observation(rate=rate, request=queue.request, ttft=found.ttft - found.itl, itl=found.itl)


def test_a_light_load_is_guessed_by_its_published_steps():
    seen = Observation(rate=0.1, request=Request(100, 200), ttft=0.0145, itl=0.0112)
    found = guess(seen)
    # alpha = 0.9 * 11.2 ms; beta + gamma = (14.5 - 10.08) / 100 ms; gamma = (1.12 - 0.0442) / 199.5 ms.
    assert found.alpha == pytest.approx(0.01008)
    assert found.beta + found.gamma == pytest.approx(44.2e-6)
    assert found.gamma == pytest.approx(5.3925e-6, rel=1e-4)


def test_a_guess_that_is_not_positive_falls_back_to_the_default():
    assert guess(Observation(rate=1, request=Request(100, 200), ttft=0.001, itl=0.02)) == DEFAULT


def test_the_filter_learns_what_the_latencies_say():
    tuner = Tuner()
    for cycle in range(120):
        tuner.update(measured(EXAMPLE, 0.02 + 0.023 * cycle), max_batch=48)
    learned = tuner.parameters
    assert learned is not None
    again = Queue(learned, EXAMPLE.request, max_batch=48, max_queue=128)
    assert again.analyze(2.5).itl == pytest.approx(EXAMPLE.analyze(2.5).itl, rel=0.03)
    assert again.size(ttft=0.060, itl=0.020) == pytest.approx(2.874, rel=0.05)


def test_a_guess_that_cannot_explain_the_load_is_made_again():
    tuner = Tuner()
    assert not tuner.update(measured(EXAMPLE, 2.0), max_batch=48)
    assert tuner.parameters is None
    tuner.update(measured(EXAMPLE, 0.02), max_batch=48)
    assert tuner.parameters is not None


def test_an_outlier_is_refused_and_leaves_the_parameters_alone():
    tuner = Tuner(EXAMPLE.parameters)
    for _ in range(20):
        tuner.update(measured(EXAMPLE, 1.5), max_batch=48)
    before, seen = tuner.parameters, measured(EXAMPLE, 1.5)
    assert not tuner.update(Observation(seen.rate, seen.request, seen.ttft * 5, seen.itl), max_batch=48)
    assert tuner.parameters == before


def test_targets_that_the_tier_does_not_promise_come_from_three_times_alpha():
    ttft, itl = inferred_targets(Parameters(0.010, 50e-6, 1e-6), Request(1000, 199), 3.0)
    assert ttft == pytest.approx(0.030 + 51e-6 * 1000)
    assert itl == pytest.approx(0.030 + 50e-6 + 1e-6 * 1100)


def busy(rate: float, *, ready: int) -> Means:
    found = EXAMPLE.analyze(rate / ready)
    return Means(rate, rate, EXAMPLE.request.prompt, EXAMPLE.request.output, found.ttft - found.itl, found.itl)


def story(**settings: float) -> Story:
    seen = Seen(replicas=2, ready=2, max_num_seqs=48, ttft_target_seconds=0.060, tpot_target_seconds=0.020)
    return Story(WvaLaw(WvaSettings(parameters=EXAMPLE.parameters, **settings)), seen=seen)


def test_replicas_are_the_rate_over_what_one_carries():
    wva = story()
    assert {wva.tick(last_minute=busy(4.0, ready=2), ready=2) for _ in range(40)} == {2}
    # 7 / 2.87 = 2.4: three, once the last wish for two is 120 s old.
    assert [wva.tick(last_minute=busy(6.5, ready=3), ready=2) for _ in range(8)] == [2] * 7 + [3]


def test_it_does_not_learn_while_a_new_replica_settles():
    law = WvaLaw(WvaSettings(parameters=Parameters(0.0125, 50e-6, 0.5e-6)))
    wva = dataclasses.replace(story(), law=law)
    wva.tick(last_minute=busy(4.0, ready=2), ready=2)
    before = law.tuner.parameters
    for _ in range(8):
        wva.tick(last_minute=busy(5.0, ready=3), ready=3)
    assert law.tuner.parameters == before
    wva.tick(last_minute=busy(5.0, ready=3), ready=3)
    assert law.tuner.parameters != before


def test_without_traffic_it_holds():
    assert set(story().until(900, last_minute=Means())) == {2}


def test_a_tighter_share_of_the_targets_asks_for_more():
    tight, plain = story(target_share=0.75), story()
    for wva in (tight, plain):
        for _ in range(20):
            wva.tick(last_minute=busy(5.0, ready=2), ready=2)
    assert plain.seen.replicas == 2
    assert tight.seen.replicas > 2
