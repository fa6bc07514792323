"""Between the look and the write another object may come under the name: it is left as it is, whoever made it."""

import pytest

from tests.control.stage import GOLD, LIMIT, POOL, Stage, tier
from tests.control.test_slo_loop import running_stage
from tierkeeper.ports import ApiError, Kind
from tierkeeper.scaling.model import Decision, Lever, Levers, Reason


def theirs(kind, name, **body):
    meta = {"name": name, "namespace": "llm", "labels": {"app": "theirs"}}
    return {"apiVersion": "v1", "kind": kind.value, "metadata": meta} | body


def before_the(stage, verb, kind, happens):
    """``happens`` once, right before that call takes effect."""
    todo = [happens]

    def fail(call):
        if call.verb == verb and call.kind is kind and todo:
            todo.pop()()

    stage.kube.fail = fail


@pytest.mark.parametrize(("kind", "name"), [(Kind.CONFIG_MAP, LIMIT), (Kind.SERVICE, POOL)])
async def test_one_that_came_since_the_look_is_not_adopted_and_then_named(kind, name):
    stage = Stage()
    stage.kube.put(tier())
    stranger = theirs(kind, name, data={"theirs": "1"}, spec={"ports": []})
    before_the(stage, "apply", kind, lambda: stage.kube.put(stranger))
    with pytest.raises(ApiError, match="409"):
        await stage.reconciler.reconcile(GOLD)
    found = stage.get(kind, name)
    assert found["metadata"]["labels"] == {"app": "theirs"}
    assert found["data"] == {"theirs": "1"}
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Stalled") == "True ForeignObject"
    assert name in stage.condition("Stalled")["message"]


async def test_one_that_took_the_place_of_ours_since_the_look_is_not_adopted():
    stage = await running_stage()

    def replaced():
        stage.kube.delete(Kind.CONFIG_MAP, "llm", LIMIT)
        stage.kube.put(theirs(Kind.CONFIG_MAP, LIMIT, data={"theirs": "1"}))

    obj = tier()
    obj["spec"]["engine"]["maxNumSeqs"] = 20
    stage.kube.put(obj)
    before_the(stage, "apply", Kind.CONFIG_MAP, replaced)
    with pytest.raises(ApiError, match="409"):
        await stage.reconciler.reconcile(GOLD)
    assert stage.get(Kind.CONFIG_MAP, LIMIT)["data"] == {"theirs": "1"}


async def test_a_deployment_that_took_the_place_of_ours_since_the_look_is_not_scaled():
    stage = await running_stage()
    ours = stage.get(Kind.DEPLOYMENT, POOL)

    def replaced():
        stage.kube.delete(Kind.DEPLOYMENT, "llm", POOL)
        stage.kube.put(theirs(Kind.DEPLOYMENT, POOL, spec={"replicas": 1, "template": ours["spec"]["template"]}))

    record = stage.records.find(GOLD)
    record.pending = Levers(3, 16)
    record.decision = Decision(record.pending, Reason.QUEUE_BOUND_ADD_REPLICAS, "more", changed=(Lever.REPLICAS,))
    before_the(stage, "scale", Kind.DEPLOYMENT, replaced)
    with pytest.raises(ApiError, match="409"):
        await stage.reconciler.reconcile(GOLD)
    assert stage.replicas == 1


async def test_a_tier_made_anew_during_a_pass_does_not_get_the_status_of_the_one_before():
    stage = await running_stage()

    def made_anew():
        stage.kube.delete(Kind.SERVICE_TIER, "llm", "gold")
        stage.kube.put(tier())

    stage.kube.put(tier(scaling={"replicas": {"min": 3, "max": 4}}))
    before_the(stage, "apply_status", Kind.SERVICE_TIER, made_anew)
    with pytest.raises(ApiError, match="409"):
        await stage.reconciler.reconcile(GOLD)
    assert stage.status() == {}
    await stage.settle()
    assert stage.status()["observedGeneration"] == 1
    assert stage.stands("Ready") == "True PoolReady"


async def test_what_was_done_is_told_even_where_the_status_cannot_be_written():
    stage = await running_stage()
    record = stage.records.find(GOLD)
    record.pending = Levers(3, 16)
    record.decision = Decision(record.pending, Reason.QUEUE_BOUND_ADD_REPLICAS, "more", changed=(Lever.REPLICAS,))
    stage.kube.fail = lambda call: (
        ApiError(status=409, reason="Conflict", message="changed") if call.verb == "apply_status" else None
    )
    with pytest.raises(ApiError):
        await stage.reconciler.reconcile(GOLD)
    assert stage.recorder.reasons == ["QueueBoundAddReplicas"]
