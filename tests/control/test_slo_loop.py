"""Every tick: one snapshot for all tiers, a decision for each, and nothing on half a snapshot."""

import asyncio
from dataclasses import dataclass

import pytest

from tests.control.stage import GOLD, POOL, Stage, agreeing, tier
from tierkeeper.ports import Kind, MetricsError, MetricsErrorReason
from tierkeeper.render.promql import queries
from tierkeeper.scaling.model import Reason
from tierkeeper.slo.burn import CONTROL_WINDOWS
from tierkeeper.slo.model import Sample, SignalState
from tierkeeper.slo.readings import POD_SIGNALS
from tierkeeper.slo.signals import (
    FAMILY_LABEL,
    REQUEST_TPOT_FAMILY,
    STAT_LABEL,
    TTFT_FAMILIES,
    MetricLabels,
    Signal,
    SignalKind,
    Stat,
)
from tierkeeper.tier import TierKey

WALL = 1_790_000_000.0


SIGNALS = {query.promql: query.signal for query in queries(MetricLabels(), CONTROL_WINDOWS, [30])}
FAMILIES = {SignalKind.TTFT_BUCKETS: TTFT_FAMILIES[0], SignalKind.TPOT_BUCKETS: REQUEST_TPOT_FAMILY}
GAUGES = {SignalKind.SAMPLE_AGE: 3.0, SignalKind.KV_CACHE_USAGE: 0.1}
MEANS = (
    SignalKind.QUEUE_TIME,
    SignalKind.PREFILL_TIME,
    SignalKind.TTFT_TIME,
    SignalKind.PROMPT_LENGTH,
    SignalKind.OUTPUT_LENGTH,
)
NEVER = (SignalKind.REJECTED, SignalKind.PREEMPTIONS)


@dataclass
class Traffic:
    """A Prometheus that shows the same load for every tier, spread over its Ready pods.

    ``slow`` is the share of requests that miss the TTFT target; all of them keep the TPOT target.
    """

    stage: Stage
    waiting: float = 0.0
    running: float = 1.0
    rate: float = 2.0
    slow: float = 0.0

    def __call__(self, promql):
        signal = SIGNALS[promql]
        pods = [obj["metadata"] for (kind, _, _), obj in self.stage.kube.objects.items() if kind is Kind.POD]
        if signal.kind in POD_SIGNALS:
            return [self._sample(pod, self._gauge(signal.kind), pod=pod["name"]) for pod in pods]
        tiers = {(pod["namespace"], pod["labels"]["tierkeeper.dev/tier"]): pod for pod in pods}
        return [sample for pod in tiers.values() for sample in self._of_tier(pod, signal)]

    def _gauge(self, kind):
        waiting = (SignalKind.WAITING, SignalKind.WAITING_FLOOR)
        return self.waiting if kind in waiting else GAUGES.get(kind, self.running)

    def _of_tier(self, pod, signal):
        if signal.kind in FAMILIES:
            return self._buckets(pod, signal)
        if signal.kind in MEANS:
            return [
                self._sample(pod, value, stat=stat) for stat, value in (("sum", self.rate / 10), ("count", self.rate))
            ]
        return [self._sample(pod, 0.0 if signal.kind in NEVER else self.rate)]

    def _buckets(self, pod, signal):
        total = self.rate * signal.window_seconds
        kept = total * (1 - self.slow) if signal.kind is SignalKind.TTFT_BUCKETS else total
        for le, count in (("0.05", kept), ("0.1", kept), ("1.5", kept), ("2.5", total), ("+Inf", total)):
            for stat, value in ((Stat.SUM, count), (Stat.SERIES, 1.0)):
                yield self._sample(pod, value, le=le, **{STAT_LABEL: stat, FAMILY_LABEL: FAMILIES[signal.kind]})

    def _sample(self, meta, value, **labels):
        own = {"namespace": meta["namespace"], "tier": meta["labels"]["tierkeeper.dev/tier"]}
        return Sample(own | labels, value, WALL + self.stage.clock.now)


async def running_stage(*tiers, **load):
    stage = Stage()
    for obj in tiers or (tier(),):
        stage.kube.put(obj)
        await stage.settle(TierKey("llm", obj["metadata"]["name"]))
    stage.source.answer = Traffic(stage, **load)
    stage.recorder.events.clear()
    return stage


async def ticks(stage, number, *, reconcile=True):
    for _ in range(number):
        await stage.loop.tick()
        if reconcile:
            for key in dict.fromkeys(stage.woken):
                await stage.reconciler.reconcile(key)
            stage.woken.clear()
        stage.clock.advance(15)


def failing(reason):
    def answer(_):
        raise MetricsError(reason, "told to fail")

    return answer


async def test_the_number_of_queries_does_not_depend_on_the_number_of_tiers():
    one = await running_stage(tier())
    two = await running_stage(tier(), tier(name="silver"))
    await ticks(one, 1)
    await ticks(two, 1)
    assert len(one.source.asked) == len(two.source.asked)


async def test_a_calm_tier_is_measured_and_left_alone():
    stage = await running_stage()
    await ticks(stage, 3)
    record = stage.records.find(GOLD)
    assert record.assessment.state is SignalState.OK
    assert record.decision.changed == ()
    assert stage.stands("MetricsAvailable") == "True Ok"
    assert stage.stands("SLOMet") == "True ObjectivesMet"
    assert stage.status()["lastDecision"]["replicas"] == 2


async def test_a_burning_queue_raises_the_cap_and_the_decision_is_the_same_text_everywhere(caplog):
    stage = await running_stage(waiting=40.0, running=16.0, slow=0.5)
    caplog.set_level("INFO")
    await ticks(stage, 6)
    stage.probe.default = agreeing(stage.cap)
    assert stage.cap > 16
    (event,) = [e for e in stage.recorder.events if e.reason == Reason.QUEUE_BOUND_RAISE_CAP.value][:1]
    assert "16 → 24" in event.message
    assert event.message in caplog.text
    names = {"tier_namespace": "llm", "tier": "gold", "reason": Reason.QUEUE_BOUND_RAISE_CAP.value}
    assert stage.metrics.registry.get_sample_value("tierkeeper_decisions_total", names) >= 1


async def test_a_lower_tier_waits_while_a_higher_one_burns():
    wide = {"replicas": {"min": 2, "max": 64}, "maxNumSeqs": {"min": 16, "max": 16}}
    stage = await running_stage(
        tier(priority=10, scaling=wide), tier(name="silver", scaling=wide), waiting=40.0, running=16.0, slow=0.5
    )
    before = stage.get(Kind.DEPLOYMENT, "silver-pool")["spec"]["replicas"]
    await ticks(stage, 8)
    assert stage.replicas > before
    assert stage.get(Kind.DEPLOYMENT, "silver-pool")["spec"]["replicas"] == before
    limited = stage.condition("ScalingLimited", name="silver")
    assert limited["reason"] == Reason.HOLD_PRIORITY.value
    assert "llm/gold" in limited["message"]


async def test_recommend_shows_the_decision_and_acts_on_nothing():
    stage = await running_stage(tier(scaling={"mode": "Recommend"}), waiting=40.0, running=16.0, slow=0.5)
    writes = len(stage.kube.writes)
    await ticks(stage, 6)
    assert stage.cap == 16
    assert stage.status()["maxNumSeqs"] == {"current": 16, "desired": 24, "applied": 16}
    assert stage.status()["lastDecision"]["reason"] == Reason.QUEUE_BOUND_RAISE_CAP.value
    assert {c.verb for c in stage.kube.writes[writes:]} == {"apply_status"}


async def test_prometheus_down_freezes_the_levers_and_says_so_once():
    stage = await running_stage(waiting=40.0, running=16.0, slow=0.5)
    stage.source.answer = failing(MetricsErrorReason.TIMEOUT)
    await ticks(stage, 8)
    assert (stage.cap, stage.replicas) == (16, 2)
    assert stage.stands("MetricsAvailable") == "False Timeout"
    assert stage.stands("Ready") == "True PoolReady"
    assert stage.recorder.reasons == ["Timeout"]


async def test_prometheus_down_does_not_hold_up_a_rollout():
    stage = await running_stage()
    stage.source.answer = failing(MetricsErrorReason.UNREACHABLE)
    await ticks(stage, 2)
    stage.kube.put(tier(engine={"image": "vllm/vllm-openai:v0.33.0"}))
    await stage.settle()
    template = stage.get(Kind.DEPLOYMENT, POOL)["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == "vllm/vllm-openai:v0.33.0"


async def test_one_failed_query_of_many_means_no_decision_for_anyone():
    stage = await running_stage(waiting=40.0, running=16.0, slow=0.5)
    whole = stage.source.answer

    def answer(promql):
        if SIGNALS[promql].kind is SignalKind.PREEMPTIONS:
            raise MetricsError(MetricsErrorReason.AUTH_FAILED, "401")
        return whole(promql)

    stage.source.answer = answer
    await ticks(stage, 6)
    assert stage.cap == 16
    assert stage.stands("MetricsAvailable") == "False AuthFailed"
    read = stage.metrics.registry.get_sample_value
    assert read("tierkeeper_query_errors_total", {"reason": "AuthFailed"}) == 6


async def test_the_long_budget_query_may_fail_without_costing_the_snapshot():
    stage = await running_stage()
    whole = stage.source.answer

    def answer(promql):
        if SIGNALS[promql].window_seconds == 30 * 86400:
            raise MetricsError(MetricsErrorReason.TIMEOUT, "too dear")
        return whole(promql)

    stage.source.answer = answer
    await ticks(stage, 2)
    assert stage.stands("MetricsAvailable") == "True Ok"


async def test_slow_windows_are_asked_less_often_than_fast_ones():
    stage = await running_stage()
    await ticks(stage, 4)
    asked = [SIGNALS[promql] for promql in stage.source.asked]
    assert asked.count(Signal(SignalKind.TTFT_BUCKETS, 60)) == 4
    assert asked.count(Signal(SignalKind.TTFT_BUCKETS, 21600)) == 1


@pytest.mark.parametrize("lost", [1, 2])
async def test_one_or_two_lost_ticks_are_not_told_and_not_written(lost):
    stage = await running_stage()
    await ticks(stage, 4)
    before, writes = stage.status(), len(stage.kube.writes)
    whole, stage.source.answer = stage.source.answer, failing(MetricsErrorReason.TIMEOUT)
    await ticks(stage, lost)
    assert (stage.status(), len(stage.kube.writes)) == (before, writes)
    stage.source.answer = whole
    await ticks(stage, 1)
    assert stage.stands("MetricsAvailable") == "True Ok"
    assert stage.recorder.events == []


async def test_an_outage_is_told_once_it_has_lasted_half_a_minute():
    stage = await running_stage()
    await ticks(stage, 2)
    stage.source.answer = failing(MetricsErrorReason.TIMEOUT)
    await ticks(stage, 2)
    assert stage.stands("MetricsAvailable") == "True Ok"
    await ticks(stage, 1)
    assert stage.stands("MetricsAvailable") == "False Timeout"
    assert stage.status()["lastDecision"]["reason"] == Reason.HOLD_METRICS_UNKNOWN.value


async def test_a_lost_tick_moves_nothing_and_ends_the_clean_window_that_a_shrink_waits_for():
    stage = await running_stage(waiting=40.0, running=16.0, slow=0.5)
    stage.source.answer = failing(MetricsErrorReason.TIMEOUT)
    await ticks(stage, 2)
    assert (stage.cap, stage.replicas) == (16, 2)
    stage.source.answer = Traffic(stage)
    await ticks(stage, 1)
    since = stage.records.find(GOLD).assessment.clean_since
    stage.source.answer = failing(MetricsErrorReason.TIMEOUT)
    await ticks(stage, 1)
    assert stage.records.find(GOLD).assessment.clean_since is None
    stage.source.answer = Traffic(stage)
    await ticks(stage, 1)
    assert stage.records.find(GOLD).assessment.clean_since == since + 30


async def test_a_tier_that_cannot_be_looked_at_or_decided_does_not_cost_the_others_their_tick(monkeypatch):
    silver = TierKey("llm", "silver")
    stage = await running_stage(tier(), tier(name="silver"))
    monkeypatch.setattr(type(stage.store), "children", _broken_for(GOLD, type(stage.store).children))
    await stage.loop.tick()
    assert (stage.records.find(silver).decision is None, stage.records.find(GOLD).decision) == (False, None)
    monkeypatch.undo()
    stage.records.find(silver).decision = None
    stage.records.find(GOLD).memory = "nonsense"
    await stage.loop.tick()
    assert stage.records.find(TierKey("llm", "silver")).decision is not None
    assert stage.records.find(GOLD).decision is None


def _broken_for(key, original):
    def children(self, asked, kind):
        if asked == key:
            raise RuntimeError("broken")
        return original(self, asked, kind)

    return children


async def test_a_steady_tier_is_not_written_and_tells_nothing():
    stage = await running_stage(running=0.0, rate=0.0)
    await ticks(stage, 40)
    writes, events = len(stage.kube.writes), len(stage.recorder.events)
    await ticks(stage, 40)
    assert (len(stage.kube.writes), len(stage.recorder.events)) == (writes, events)


async def test_figures_alone_are_written_at_most_once_a_minute():
    stage = await running_stage()
    await ticks(stage, 4)
    writes = len(stage.kube.writes)
    for step in range(40):  # ten minutes
        stage.source.answer.rate = 2.0 + step / 100
        await ticks(stage, 1)
    assert 8 <= len(stage.kube.writes) - writes <= 11


async def test_no_tiers_no_queries():
    stage = Stage()
    await stage.loop.tick()
    assert stage.source.asked == []


async def test_an_invalid_tier_takes_no_part_and_the_others_do():
    stage = await running_stage()
    stage.kube.put(tier(name="bad", scaling={"replicas": {"min": 5, "max": 2}}))
    await ticks(stage, 1)
    assert stage.records.find(GOLD).decision is not None


async def test_a_decision_not_yet_written_counts_as_set_and_no_other_follows_it():
    stage = await running_stage(waiting=40.0, running=16.0, slow=0.5)
    await ticks(stage, 6, reconcile=False)
    record = stage.records.find(GOLD)
    assert (record.pending.max_num_seqs, stage.cap) == (24, 16)
    await stage.reconciler.reconcile(GOLD)
    assert stage.cap == 24
    assert record.pending is None


async def test_the_loop_beats_for_the_health_page_even_when_a_tick_fails(monkeypatch):
    stage = await running_stage()
    monkeypatch.setattr(stage.loop, "tick", _explode)
    await stage.loop._one_tick()
    read = stage.metrics.registry.get_sample_value
    assert read("tierkeeper_ticks_total", {"result": "error"}) == 1


async def _explode():
    raise RuntimeError("boom")


async def test_a_long_budget_query_that_fails_is_not_asked_again_at_each_tick():
    stage = await running_stage()
    whole = stage.source.answer

    def answer(promql):
        if SIGNALS[promql].window_seconds == 30 * 86400:
            raise MetricsError(MetricsErrorReason.TIMEOUT, "too dear")
        return whole(promql)

    stage.source.answer = answer
    await ticks(stage, 40)  # ten minutes
    asked = [SIGNALS[promql] for promql in stage.source.asked]
    assert asked.count(Signal(SignalKind.TTFT_BUCKETS, 30 * 86400)) <= 6
    stage.source.answer = whole
    await ticks(stage, 12)
    assert stage.records.find(GOLD).assessment.ttft.budget_left is not None


class SlowOverThePeriod:
    """Answers at once, but for the budget period only when told to."""

    def __init__(self, source):
        self.query_at_once, self.answered, self.asked = source.query, asyncio.Event(), 0

    async def query(self, promql):
        if SIGNALS[promql].window_seconds == 30 * 86400:
            self.asked += 1
            await self.answered.wait()
        return await self.query_at_once(promql)


async def test_no_tick_waits_for_the_budget_query_and_none_asks_it_twice():
    stage = await running_stage()
    slow = stage.snapshots.patient = SlowOverThePeriod(stage.source)
    await ticks(stage, 3)
    assert stage.stands("MetricsAvailable") == "True Ok"
    assert stage.stands("BudgetFrozen") == "Unknown NotYetKnown"
    assert slow.asked == len(FAMILIES)
    slow.answered.set()
    await ticks(stage, 5)
    assert stage.stands("BudgetFrozen") == "False BudgetLeft"


async def test_a_failing_snapshot_does_not_ask_the_budget_query_again_at_each_tick():
    stage = await running_stage()
    slow = stage.snapshots.patient = SlowOverThePeriod(stage.source)
    stage.source.answer = failing(MetricsErrorReason.TIMEOUT)
    await ticks(stage, 6)
    assert slow.asked == len(FAMILIES)
    slow.answered.set()
