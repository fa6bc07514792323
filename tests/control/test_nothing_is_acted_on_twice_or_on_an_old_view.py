"""What a decision rests on may change before it is carried out: then it is void, and what is seen now counts."""

import pytest

from tests.control.stage import GOLD, LIMIT, POOL, Stage, agreeing, tier
from tests.control.test_slo_loop import running_stage, ticks
from tierkeeper.control.store import project
from tierkeeper.ports import ApiError, Kind
from tierkeeper.scaling.model import Decision, Lever, Levers, Reason


def moved_start(seqs):
    obj = tier()
    obj["spec"]["engine"]["maxNumSeqs"] = seqs
    return obj


class Meanwhile:
    """A Prometheus in front of which something happens while it is asked."""

    def __init__(self, source, happens):
        self.inner, self.happens = source.query, [happens]
        source.query = self.query

    async def query(self, promql):
        while self.happens:
            await self.happens.pop()()
        return await self.inner(promql)


async def test_what_a_user_changes_while_prometheus_is_asked_is_not_reverted():
    stage = await running_stage()
    await ticks(stage, 2)

    async def edit():
        stage.kube.put(moved_start(20))
        await stage.reconciler.reconcile(GOLD)

    Meanwhile(stage.source, edit)
    await ticks(stage, 1)
    await stage.reconciler.reconcile(GOLD)
    assert stage.cap == 20


async def test_what_a_user_changes_is_not_reverted_by_a_tick_that_falls_into_the_write():
    stage = await running_stage()
    await ticks(stage, 2)
    stage.kube.put(moved_start(20))
    apply = stage.kube.apply

    async def tick_first(obj, *, field_manager):
        if obj["metadata"]["name"] == LIMIT:
            await stage.loop.tick()
        return await apply(obj, field_manager=field_manager)

    stage.kube.apply = tick_first
    await stage.reconciler.reconcile(GOLD)
    stage.kube.apply = apply
    await stage.reconciler.reconcile(GOLD)
    assert stage.cap == 20


async def test_a_decision_that_was_not_carried_out_before_a_pause_is_not_carried_out_after_it():
    stage = await running_stage(waiting=40.0, running=16.0, slow=0.5)
    await ticks(stage, 2, reconcile=False)
    assert stage.records.find(GOLD).pending.max_num_seqs == 24
    stage.kube.put(tier(scaling={"mode": "Paused"}))
    await stage.reconciler.reconcile(GOLD)
    assert stage.records.find(GOLD).pending is None
    stage.source.answer.waiting, stage.source.answer.slow = 0.0, 0.0
    await ticks(stage, 4)
    stage.kube.put(tier())
    await stage.reconciler.reconcile(GOLD)
    assert stage.cap == 16


async def test_a_scale_that_failed_while_the_pool_was_made_is_made_up_for_in_mode_recommend():
    stage = Stage()
    stage.kube.put(tier(scaling={"mode": "Recommend"}))
    stage.kube.fail = lambda call: ApiError(status=503, reason="Down", message="down") if call.verb == "scale" else None
    with pytest.raises(ApiError):
        await stage.reconciler.reconcile(GOLD)
    stage.kube.fail = lambda _: None
    stage.start_operator()
    await stage.settle()
    assert stage.replicas == 2


def rewritten_limits(stage):
    ours = stage.get(Kind.CONFIG_MAP, LIMIT)
    meta = {**ours["metadata"], "annotations": {"tierkeeper.dev/hash": "another"}, "resourceVersion": None}
    return ours | {"metadata": meta, "data": {"max-num-seqs": "9"}}


async def test_limits_that_something_writes_back_are_shown_as_they_are_and_not_asked_for_at_full_speed():
    stage = Stage()
    stage.kube.put(tier(scaling={"mode": "Fixed"}))
    await stage.settle()
    stage.probe.default = agreeing(9)
    for _ in range(10):
        await stage.kube.apply(rewritten_limits(stage), field_manager="tierkeeper")
        again = await stage.reconciler.reconcile(GOLD)
        stage.clock.advance(1)
    assert stage.stands("Stalled") == "True Rewritten"
    assert stage.status()["maxNumSeqs"] == {"current": 9, "desired": 16, "applied": 9}
    assert again == 60


async def test_going_back_to_a_limit_is_read_back_from_pods_that_may_have_left_it_meanwhile():
    stage = await running_stage()
    record = stage.records.find(GOLD)
    for seqs, says in ((24, None), (16, None)):  # no pod answers: each may follow either limit by now
        stage.probe.default = says
        levers = Levers(2, seqs)
        record.decision = Decision(levers, Reason.ROLL_BACK_CAP, "set it", changed=(Lever.MAX_NUM_SEQS,))
        record.pending = levers
        await stage.reconciler.reconcile(GOLD)
        stage.clock.advance(5)
    assert stage.stands("Resizing") == "True WaitingForPods"
    nudged = {pod["metadata"]["annotations"]["tierkeeper.dev/limits"] for pod in stage.kube.pods_of("llm", POOL)}
    assert nudged == {"max-num-seqs=16"}


async def test_a_change_that_was_given_up_is_not_announced_as_done():
    stage = await running_stage()
    record = stage.records.find(GOLD)
    for _ in range(4):
        record.guard.made("replicas", "3", now=stage.clock.monotonic())
    levers = Levers(3, 16)
    record.decision = Decision(levers, Reason.QUEUE_BOUND_ADD_REPLICAS, "add 1 replica", changed=(Lever.REPLICAS,))
    record.pending = levers
    await stage.reconciler.reconcile(GOLD)
    assert stage.replicas == 2
    assert "QueueBoundAddReplicas" not in stage.recorder.reasons


async def test_a_tier_that_cannot_be_read_shows_no_burn_rate_of_another_time():
    stage = await running_stage()
    await ticks(stage, 2)
    names = {"tier_namespace": "llm", "tier": "gold", "slo": "TTFT", "window": "1m"}
    read = stage.metrics.registry.get_sample_value
    assert read("tierkeeper_burn_rate", names) == 0
    stage.kube.put(tier(scaling={"replicas": {"min": 5, "max": 2}}))
    await stage.reconciler.reconcile(GOLD)
    assert read("tierkeeper_burn_rate", names) is None


async def test_a_deleted_tier_leaves_no_series_behind():
    stage = await running_stage(waiting=40.0, running=16.0, slow=0.5)
    await ticks(stage, 4)
    stage.probe.default = agreeing(stage.cap)
    await stage.settle()
    read = stage.metrics.registry.collect

    def series():
        return [m.name for m in read() for s in m.samples if s.labels.get("tier") == "gold"]

    assert {"tierkeeper_decisions", "tierkeeper_resize_seconds"} <= set(series())
    stage.kube.delete(Kind.SERVICE_TIER, "llm", "gold")
    await stage.reconciler.reconcile(GOLD)
    assert series() == []


async def test_a_watch_that_hangs_does_not_keep_the_loop_at_an_old_spec():
    stage = await running_stage(waiting=40.0, running=16.0, slow=0.5)
    tell = stage.kube.on_change
    stage.kube.on_change = lambda kind, *rest: None if kind is Kind.SERVICE_TIER else tell(kind, *rest)
    stage.kube.put(tier(scaling={"scaleDownStabilizationSeconds": 600}))
    await stage.reconciler.reconcile(GOLD)
    await ticks(stage, 4)
    assert stage.records.find(GOLD).spec.generation == 2
    assert stage.cap == 24


async def test_in_mode_recommend_a_moved_start_moves_the_limits_and_no_replica():
    stage = await running_stage(tier(scaling={"mode": "Recommend"}))
    moved = moved_start(20)
    moved["spec"]["scaling"] |= {"mode": "Recommend", "replicas": {"min": 3, "max": 4}}
    stage.kube.put(moved)
    await stage.reconciler.reconcile(GOLD)
    assert (stage.cap, stage.replicas) == (20, 2)


async def test_a_late_event_from_before_our_own_scale_does_not_bring_the_old_number_back():
    stage = await running_stage()
    late = project(Kind.DEPLOYMENT, stage.get(Kind.DEPLOYMENT, POOL))
    stage.kube.on_change = lambda *_: None  # the watch lags behind
    stage.kube.put(tier(scaling={"replicas": {"min": 3, "max": 4}}))
    await stage.reconciler.reconcile(GOLD)
    stage.store.put(Kind.DEPLOYMENT, late)
    assert stage.store.child(GOLD, Kind.DEPLOYMENT, POOL)["spec"]["replicas"] == 3


async def test_a_tier_made_anew_while_the_watch_hangs_keeps_its_record():
    stage = await running_stage()
    stage.kube.on_change = lambda *_: None
    stage.kube.delete(Kind.SERVICE_TIER, "llm", "gold")
    made = stage.kube.put(tier())
    await stage.reconciler.reconcile(GOLD)
    await stage.loop.tick()
    assert stage.records.find(GOLD).uid == made["metadata"]["uid"]
    assert stage.records.find(GOLD).looked_at is not None
