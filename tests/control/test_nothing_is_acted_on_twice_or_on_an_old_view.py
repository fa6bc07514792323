"""What a decision rests on may change before it is carried out: then it is void, and what is seen now counts."""

from tests.control.stage import GOLD, LIMIT, tier
from tests.control.test_slo_loop import running_stage, ticks


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
