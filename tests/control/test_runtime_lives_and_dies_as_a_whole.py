"""Watch events wake tiers, a full list heals what they missed, and a dead part ends everything."""

import asyncio

import pytest

from tests.control.stage import GOLD, POOL, Stage, tier
from tests.control.test_slo_loop import Traffic
from tierkeeper.control.queue import KeyedQueue
from tierkeeper.control.runtime import MissingCrdError, Runtime
from tierkeeper.ports import ApiError, Kind
from tierkeeper.slo.model import SignalState
from tierkeeper.tier import TierKey

pytestmark = pytest.mark.looptime


def runtime_of(stage, **more):
    ended = []
    runtime = Runtime(
        api=stage.kube,
        store=stage.store,
        records=stage.records,
        queue=KeyedQueue[TierKey](random=lambda: 0.0),
        reconciler=stage.reconciler,
        loop=stage.loop,
        health=stage.health,
        metrics=stage.metrics,
        **{
            "namespaces": (),
            "workers": 2,
            "resync_seconds": 600.0,
            "random": lambda: 0.5,
            "end": lambda: ended.append(1),
        }
        | more,
    )
    return runtime, ended


def looks(stage):
    return [c for c in stage.kube.calls if c.verb == "get" and c.kind is Kind.SERVICE_TIER]


async def test_an_edited_tier_is_looked_at_and_our_own_status_write_is_not():
    stage = Stage()
    runtime, _ = runtime_of(stage)
    obj = stage.kube.put(tier())
    runtime.seen(Kind.SERVICE_TIER, obj | {"metadata": obj["metadata"] | {"generation": 2}}, deleted=False)
    assert runtime.queue.depth == 1
    stage = Stage()
    runtime, _ = runtime_of(stage)
    obj = stage.kube.put(tier())
    runtime.seen(Kind.SERVICE_TIER, obj | {"status": {"observedGeneration": 1}}, deleted=False)
    assert runtime.queue.depth == 0


async def test_a_burst_of_child_events_is_one_look():
    stage = Stage()
    obj = stage.kube.put(tier())
    await stage.settle()
    runtime, _ = runtime_of(stage)
    runtime.seen(Kind.SERVICE_TIER, obj, deleted=False)
    before = len(looks(stage))
    runtime._spawn("worker 0", runtime.queue.worker(runtime.reconciler.reconcile))
    for _ in range(50):
        runtime.seen(Kind.DEPLOYMENT, stage.get(Kind.DEPLOYMENT, POOL), deleted=False)
    await asyncio.sleep(5)
    assert len(looks(stage)) - before == 1
    await runtime.stop()


async def test_a_child_without_a_tier_wakes_nobody():
    stage = Stage()
    runtime, _ = runtime_of(stage)
    runtime.seen(Kind.POD, {"metadata": {"name": "p", "namespace": "llm", "labels": {}}}, deleted=False)
    await asyncio.sleep(1)
    assert runtime.queue.depth == 0


async def test_a_resync_finds_what_the_watch_has_missed():
    stage = Stage()
    runtime, _ = runtime_of(stage)
    stage.kube.put(tier())
    stage.store.drop(Kind.SERVICE_TIER, tier())
    runtime.start()
    await asyncio.sleep(700)
    assert stage.get(Kind.DEPLOYMENT, POOL) is not None
    assert stage.health.populated
    await runtime.stop()


async def test_a_tier_that_went_while_the_watch_was_broken_is_forgotten_at_the_next_resync():
    stage = Stage()
    stage.kube.put(tier())
    await stage.settle()
    runtime, _ = runtime_of(stage)
    stage.kube.on_change = lambda _kind, _obj, _deleted: None
    stage.kube.delete(Kind.SERVICE_TIER, "llm", "gold")
    runtime._spawn("worker 0", runtime.queue.worker(runtime.reconciler.reconcile))
    await runtime.resync()
    await asyncio.sleep(1)
    assert stage.store.tiers() == []
    assert stage.records.find(GOLD) is None
    await runtime.stop()


async def test_an_api_server_that_is_away_at_the_start_is_waited_for():
    stage = Stage()
    stage.store.complete = False
    runtime, ended = runtime_of(stage)
    stage.kube.fail = lambda _: ApiError(status=503, reason="Down", message="down")
    runtime.start()
    await asyncio.sleep(20)
    assert not stage.health.ready
    stage.kube.fail = lambda _: None
    await asyncio.sleep(5)
    assert stage.health.populated
    assert ended == []
    await runtime.stop()


async def test_a_cluster_without_the_crd_ends_the_operator_with_the_remedy():
    stage = Stage()
    stage.store.complete = False
    runtime, ended = runtime_of(stage)
    stage.kube.fail = lambda _: ApiError(status=404, reason="NotFound", message="no")
    runtime.start()
    await asyncio.sleep(1)
    assert ended == [1]
    assert isinstance(runtime.failure, MissingCrdError)
    await runtime.stop()


async def test_stopping_lets_a_reconcile_end_and_takes_no_new_one(monkeypatch):
    stage = Stage()
    runtime, ended = runtime_of(stage)
    done = []

    async def slow(key):
        await asyncio.sleep(3)
        done.append(key)

    monkeypatch.setattr(stage.reconciler, "reconcile", slow)
    runtime._spawn("worker 0", runtime.queue.worker(runtime.reconciler.reconcile))
    for key in (GOLD, TierKey("llm", "silver")):
        runtime.queue.add(key)
    await asyncio.sleep(1)
    await runtime.stop()
    assert (done, ended, runtime.failure) == ([GOLD], [1], None)


class LoopClock:
    """The time of the event loop, in which waiting is what takes time."""

    def monotonic(self):
        return asyncio.get_running_loop().time()

    def wall(self):
        return 1_790_000_000.0 + self.monotonic()

    now = property(monotonic)


async def test_l15_two_hundred_tiers_are_all_served_and_judged_and_the_loop_keeps_its_time(monkeypatch):
    """By four workers, over an API server that takes 10 ms a call and a Prometheus that takes 50 ms a query."""
    stage = Stage(clock=LoopClock())
    keys = [TierKey("llm", f"t{number}") for number in range(200)]
    for key in keys:
        stage.kube.put(tier(name=key.name, scaling={"replicas": {"min": 1, "max": 4}}))
    stage.source.answer = Traffic(stage)
    later(monkeypatch, stage.kube, ("get", "list", "apply", "apply_status", "scale"), 0.01)
    later(monkeypatch, stage.source, ("query",), 0.05)
    ticked = []
    monkeypatch.setattr(stage.metrics.tick_lag_seconds, "set", ticked.append)
    stage.store.complete = False
    runtime, ended = runtime_of(stage, workers=4)
    runtime.start()
    await asyncio.sleep(10)
    assert all(stage.get(Kind.DEPLOYMENT, f"{key.name}-pool") for key in keys)
    stage.kube.run_deployments()
    await asyncio.sleep(15)
    records = [stage.records.find(key) for key in keys]
    assert {record.assessment.state for record in records} == {SignalState.OK}
    assert all(slo.met for record in records for slo in record.assessment.slos.values())
    assert len(ticked) == 2
    assert max(ticked) < 0.1
    assert ended == []
    await runtime.stop()


def later(monkeypatch, edge, names, seconds):
    """Make calls of an edge take so long."""
    for name in names:
        call = getattr(edge, name)

        async def waiting(*args, _call=call, **kwargs):
            await asyncio.sleep(seconds)
            return await _call(*args, **kwargs)

        monkeypatch.setattr(edge, name, waiting)
