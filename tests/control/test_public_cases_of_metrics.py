"""Faults that people met in systems like this one (docs/cases.md), played to the whole loop: what moves and is said."""

import dataclasses
import math

import pytest

from tests.control.stage import GOLD, Stage, agreeing, tier
from tests.control.test_slo_loop import FAMILIES, SIGNALS, Traffic, failing
from tierkeeper.ports import MetricsErrorReason
from tierkeeper.scaling.model import Decision, Lever, Levers, Reason
from tierkeeper.settings import Settings
from tierkeeper.slo.signals import SignalKind

TEN_MINUTES, HALF_AN_HOUR = 40, 120
"""Ticks of 15 s."""


async def pool_of(replicas, *, least=1, **load):
    """A tier in mode Auto whose loop has taken it to so many Ready replicas."""
    stage = Stage()
    stage.kube.put(tier(scaling={"replicas": {"min": least, "max": 6}}))
    await stage.settle()
    record = stage.records.find(GOLD)
    levers = Levers(replicas, 16)
    record.decision = Decision(levers, Reason.QUEUE_BOUND_ADD_REPLICAS, "more", changed=(Lever.REPLICAS,))
    record.pending = levers
    await stage.settle()
    assert stage.replicas == replicas
    stage.source.answer = Traffic(stage, **load)
    await play(stage, 2)
    stage.recorder.events.clear()
    return stage


async def play(stage, ticks):
    """Ticks, each followed by the reconciles it asks for and by the deployment controller; the replicas at each."""
    seen = []
    for _ in range(ticks):
        await stage.loop.tick()
        for key in dict.fromkeys(stage.woken):
            await stage.reconciler.reconcile(key)
        stage.woken.clear()
        stage.probe.default = agreeing(stage.cap)
        stage.kube.run_deployments()
        stage.clock.advance(15)
        seen.append(stage.replicas)
    return seen


def spoiled(stage, kinds, value):
    whole = stage.source.answer

    def answer(promql):
        samples = list(whole(promql))
        if SIGNALS[promql].kind in kinds:
            samples = [dataclasses.replace(sample, value=value) for sample in samples]
        return samples

    return answer


async def test_m01_a_quantile_that_is_no_number_moves_nothing_and_is_told_once():
    stage = await pool_of(3, running=16.0, waiting=40.0)
    before = stage.replicas, stage.cap
    stage.recorder.events.clear()
    stage.source.answer = spoiled(stage, FAMILIES, math.nan)
    await play(stage, 5)
    assert (stage.replicas, stage.cap) == before
    assert stage.stands("MetricsAvailable") == "False NotANumber"
    assert stage.recorder.reasons.count("NotANumber") == 1


async def test_m02_without_any_request_a_quantile_that_is_no_number_is_idle_and_goes_to_the_minimum():
    stage = await pool_of(4, running=14.0)
    stage.source.answer.running = stage.source.answer.rate = 0.0
    stage.source.answer = spoiled(stage, FAMILIES, math.nan)
    seen = await play(stage, HALF_AN_HOUR)
    assert seen[18] == 4  # 285 s: the window of 300 s is not over
    assert seen[-1] == 1
    assert stage.status()["lastDecision"]["reason"] == Reason.IDLE.value
    assert stage.stands("MetricsAvailable") == "True NoTraffic"


@pytest.mark.parametrize(("value", "named"), [(math.inf, "+Inf"), (-math.inf, "-Inf")])
async def test_m03_an_infinite_answer_holds_and_is_named(value, named):
    stage = await pool_of(3)
    stage.source.answer = spoiled(stage, {SignalKind.RUNNING}, value)
    assert set(await play(stage, 5)) == {3}
    assert stage.stands("MetricsAvailable") == "False NotFinite"
    assert named in stage.condition("MetricsAvailable")["message"]


async def test_m05_empty_answers_are_not_zero():
    stage = await pool_of(4)
    stage.clock.advance(60)
    stage.source.answer = lambda _: []
    assert set(await play(stage, TEN_MINUTES)) == {4}
    assert stage.stands("MetricsAvailable") == "False NoSeries"
    assert stage.recorder.reasons == ["NoSeries"]


async def test_m06_a_new_tier_waits_for_its_first_samples_without_an_error_or_an_event():
    stage = Stage()
    stage.kube.put(tier())
    await stage.reconciler.reconcile(GOLD)
    stage.kube.run_deployments(ready=False)
    for _ in range(TEN_MINUTES):
        await stage.loop.tick()
        await stage.reconciler.reconcile(GOLD)
        stage.clock.advance(15)
    assert stage.stands("MetricsAvailable") == "Unknown WaitingForSamples"
    assert stage.recorder.events == []


async def test_m06_ready_is_not_pulled_down_by_answers_that_stay_empty():
    stage = Stage()
    stage.kube.put(tier())
    await stage.settle()
    await play(stage, TEN_MINUTES)
    assert stage.stands("Ready") == "True PoolReady"
    assert stage.recorder.reasons.count("NoSeries") == 1


async def test_t01_after_an_outage_and_an_empty_database_a_full_window_passes_before_a_shrink():
    stage = await pool_of(6, running=8.0)
    whole = stage.source.answer
    stage.source.answer = failing(MetricsErrorReason.SERVER_ERROR)
    assert set(await play(stage, TEN_MINUTES)) == {6}
    stage.source.answer = lambda _: []
    assert set(await play(stage, 20)) == {6}
    whole.running, whole.rate = 0.0, 0.0
    stage.source.answer = whole
    seen = await play(stage, 30)
    assert set(seen[:20]) == {6}  # 300 s of good samples, and not a second less
    assert seen[-1] == 1


async def test_t03_a_query_that_is_refused_for_half_an_hour_swings_nothing():
    stage = await pool_of(3, running=8.0)
    stage.source.answer = failing(MetricsErrorReason.BAD_QUERY)
    assert set(await play(stage, HALF_AN_HOUR)) == {3}
    assert stage.stands("MetricsAvailable") == "False BadQuery"
    assert stage.recorder.reasons == ["BadQuery"]


def test_m07_a_scrape_interval_that_leaves_a_window_without_two_samples_is_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r"scrape_interval_seconds \(60\) must be at most 15: .*scrape the pools more"):
        Settings(scrape_interval_seconds=60)
