"""From a ServiceTier to a running pool, and back to it after every disturbance."""

import pytest

from tests.control.stage import GOLD, LIMIT, POOL, Stage, agreeing, tier
from tierkeeper.ports import Kind


async def test_a_new_tier_becomes_a_pool_and_then_ready():
    stage = Stage()
    stage.kube.put(tier())
    await stage.reconciler.reconcile(GOLD)
    assert stage.replicas == 2
    assert stage.cap == 16
    assert stage.stands("Ready") == "False PoolStarting"
    assert stage.stands("Reconciling") == "True PoolStarting"
    await stage.settle()
    assert stage.stands("Ready") == "True PoolReady"
    assert stage.stands("Reconciling") == "False AsExpected"
    assert stage.stands("Stalled") == "False AsExpected"
    assert stage.status()["observedGeneration"] == 1
    assert stage.status()["replicasSummary"] == "2/2"


async def test_every_child_is_owned_by_the_tier_and_goes_with_it():
    stage = Stage()
    stage.kube.put(tier())
    await stage.settle()
    kinds = sorted(kind.value for kind, _, _ in stage.kube.objects if kind is not Kind.POD)
    assert kinds == ["ConfigMap", "ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "ServiceTier"]
    stage.kube.delete(Kind.SERVICE_TIER, "llm", "gold")
    assert stage.kube.objects == {}
    assert await stage.reconciler.reconcile(GOLD) is None
    assert stage.records.find(GOLD) is None


async def test_a_steady_tier_causes_no_write_and_no_event_however_often_it_is_looked_at():
    stage = Stage()
    stage.kube.put(tier())
    await stage.settle()
    writes, events = len(stage.kube.writes), len(stage.recorder.events)
    for _ in range(100):
        stage.clock.advance(30)
        await stage.reconciler.reconcile(GOLD)
    assert (len(stage.kube.writes), len(stage.recorder.events)) == (writes, events)


async def test_restarting_the_operator_writes_nothing_and_says_nothing():
    stage = Stage()
    stage.kube.put(tier())
    await stage.settle()
    writes, events = len(stage.kube.writes), len(stage.recorder.events)
    for _ in range(10):
        stage.start_operator()
        await stage.reconciler.reconcile(GOLD)
    assert (len(stage.kube.writes), len(stage.recorder.events)) == (writes, events)


async def test_nothing_is_ever_written_to_the_user_s_spec_or_metadata():
    stage = Stage()
    before = stage.kube.put(tier())
    await stage.settle()
    after = stage.get(Kind.SERVICE_TIER, "gold")
    assert after["spec"] == before["spec"]
    assert after["metadata"].keys() - {"managedFields"} == before["metadata"].keys()
    assert {c.verb for c in stage.kube.writes if c.kind is Kind.SERVICE_TIER} == {"apply_status"}


async def test_a_deleted_child_comes_back_and_that_is_told():
    stage = Stage()
    stage.kube.put(tier())
    await stage.settle()
    assert "Repaired" not in stage.recorder.reasons  # a first making is no repair
    stage.kube.delete(Kind.SERVICE, "llm", POOL)
    await stage.reconciler.reconcile(GOLD)
    assert stage.get(Kind.SERVICE, POOL) is not None
    told = [event.message for event in stage.recorder.events if event.reason == "Repaired"]
    assert told == [f"Service {POOL} was deleted by someone else and is made again"]


async def test_an_edited_child_is_put_right_and_the_repair_is_told_once():
    stage = Stage()
    stage.kube.put(tier())
    await stage.settle()
    stage.kube.edit(Kind.SERVICE, "llm", POOL, {"spec": {"type": "NodePort"}})
    await stage.reconciler.reconcile(GOLD)
    assert stage.get(Kind.SERVICE, POOL)["spec"]["type"] == "ClusterIP"
    assert stage.recorder.reasons.count("Repaired") == 1


async def test_replicas_set_by_hand_are_corrected_and_the_template_keeps_its_hands_off_them():
    stage = Stage()
    stage.kube.put(tier(scaling={"mode": "Fixed"}))
    await stage.settle()
    await stage.kube.scale(namespace="llm", name=POOL, replicas=4, field_manager="kubectl")
    await stage.reconciler.reconcile(GOLD)
    assert stage.replicas == 2
    assert "Replicas were 4, set by another hand; 2 again" in [e.message for e in stage.recorder.events]


async def test_the_template_is_applied_without_touching_the_replica_count():
    stage = Stage()
    stage.kube.put(tier(scaling={"mode": "Fixed"}))
    await stage.settle()
    scales = [c for c in stage.kube.writes if c.verb == "scale"]
    assert {c.manager for c in scales} == {"tierkeeper-scale"}
    stage.kube.put(tier(scaling={"mode": "Fixed"}, engine={"image": "vllm/vllm-openai:v0.33.0"}))
    await stage.reconciler.reconcile(GOLD)
    assert stage.replicas == 2
    assert [c for c in stage.kube.writes if c.verb == "scale"] == scales


async def test_a_changed_image_rolls_the_pool_and_ready_waits_for_it():
    stage = Stage()
    stage.kube.put(tier())
    await stage.settle()
    stage.kube.put(tier(engine={"image": "vllm/vllm-openai:v0.33.0"}))
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Ready") == "False RollingOut"
    assert stage.stands("Reconciling") == "True RollingOut"
    await stage.settle()
    assert stage.stands("Ready") == "True PoolReady"
    assert stage.status()["observedGeneration"] == 2


async def test_rolling_out_scales_nothing():
    stage = Stage()
    stage.kube.put(tier())
    await stage.settle()
    live = stage.get(Kind.DEPLOYMENT, POOL)
    stage.kube.put(live | {"status": {"replicas": 3, "updatedReplicas": 1, "observedGeneration": 99}})
    await stage.reconciler.reconcile(GOLD)
    assert stage.replicas == 2
    assert stage.stands("Ready") == "False RollingOut"


async def test_a_paused_tier_is_left_exactly_as_it_is():
    stage = Stage()
    stage.kube.put(tier())
    await stage.settle()
    stage.kube.put(tier(scaling={"mode": "Paused"}))
    stage.kube.edit(Kind.SERVICE, "llm", POOL, {"spec": {"type": "NodePort"}})
    writes = len(stage.kube.writes)
    await stage.reconciler.reconcile(GOLD)
    assert {c.verb for c in stage.kube.writes[writes:]} == {"apply_status"}
    assert stage.get(Kind.SERVICE, POOL)["spec"]["type"] == "NodePort"


async def test_the_same_name_in_two_namespaces_is_two_independent_tiers():
    stage = Stage()
    stage.kube.put(tier())
    stage.kube.put(tier(namespace="other"))
    await stage.reconciler.reconcile(GOLD)
    assert {ns for kind, ns, _ in stage.kube.objects if kind is Kind.DEPLOYMENT} == {"llm"}


async def test_a_limit_set_by_hand_is_put_right_within_one_look():
    stage = Stage()
    stage.kube.put(tier(scaling={"mode": "Fixed"}))
    await stage.settle()
    stage.kube.edit(Kind.CONFIG_MAP, "llm", LIMIT, {"data": {"max-num-seqs": "3"}})
    await stage.reconciler.reconcile(GOLD)
    assert stage.cap == 16


async def test_moving_the_start_in_the_spec_moves_the_limit_wherever_the_loop_has_taken_it():
    stage = Stage()
    stage.kube.put(tier())
    await stage.settle()
    limits = stage.get(Kind.CONFIG_MAP, LIMIT)
    limits["data"]["max-num-seqs"] = "12"  # where the loop has taken it
    stage.kube.put(limits)
    stage.probe.default = agreeing(12)
    await stage.settle()
    assert stage.cap == 12
    moved = tier()
    moved["spec"]["engine"]["maxNumSeqs"] = 20
    stage.kube.put(moved)
    await stage.reconciler.reconcile(GOLD)
    assert stage.cap == 20
    await stage.reconciler.reconcile(GOLD)
    assert stage.cap == 20


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced by force"])
async def test_a_deployment_made_anew_is_not_taken_for_a_rollout_of_the_one_before(replaced):
    """Its generation begins at 1 again, below that of the last rollout."""
    stage = Stage()
    stage.kube.put(tier())
    await stage.settle()
    for patch in (1, 2, 3):
        stage.kube.put(tier(engine={"image": f"vllm/vllm-openai:v0.32.{patch}"}))
        await stage.settle()
    before = stage.get(Kind.DEPLOYMENT, POOL)
    stage.kube.delete(Kind.DEPLOYMENT, "llm", POOL)
    if replaced:
        stage.kube.put(before | {"metadata": before["metadata"] | {"uid": "another"}})
        stage.kube.run_deployments()
    await stage.settle()
    assert stage.get(Kind.DEPLOYMENT, POOL)["metadata"]["generation"] < before["metadata"]["generation"]
    assert stage.stands("Ready") == "True PoolReady"
    await stage.loop.tick()
    assert not stage.records.find(GOLD).pool.rolling_out
