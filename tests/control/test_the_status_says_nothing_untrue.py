"""What a tier's status claims is so at that moment, and no more than was seen."""

from tests.control.stage import GOLD, POOL, Stage, agreeing, tier
from tests.control.test_live_resize_is_done_when_pods_say_so import decide
from tierkeeper.ports import ApiError, Kind


async def settled(**spec):
    stage = Stage()
    stage.kube.put(tier(**spec))
    await stage.settle()
    stage.recorder.events.clear()
    return stage


async def test_a_pool_that_still_runs_the_template_before_a_refused_one_is_not_ready():
    stage = await settled()
    refusal = ApiError(status=422, reason="Invalid", message="spec.template.spec.nodeSelector: Invalid value")
    stage.kube.fail = lambda call: refusal if call.verb == "apply" and call.kind is Kind.DEPLOYMENT else None
    stage.kube.put(tier(engine={"image": "vllm/vllm-openai:v0.33.0"}))
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Stalled") == "True ApiRefused"
    assert stage.stands("Ready") == "False ApiRefused"
    stage.kube.fail = lambda _: None
    await stage.settle()
    assert stage.stands("Ready") == "True PoolReady"


async def test_a_refused_scale_leaves_a_pool_of_the_present_template_ready():
    stage = await settled()
    refusal = ApiError(status=403, reason="Forbidden", message="deployments/scale is forbidden")
    stage.kube.fail = lambda call: refusal if call.verb == "scale" else None
    decide(stage, seqs=16, replicas=3)
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Stalled") == "True ApiRefused"
    assert stage.stands("Ready") == "True PoolReady"


async def test_a_tier_that_is_paused_before_it_has_a_pool_says_that_none_is_on_the_way():
    stage = Stage()
    stage.kube.put(tier(scaling={"mode": "Paused"}))
    await stage.reconciler.reconcile(GOLD)
    assert stage.get(Kind.DEPLOYMENT, POOL) is None
    assert stage.stands("Ready") == "False Paused"
    assert "spec.scaling.mode" in stage.condition("Ready")["message"]
    assert stage.stands("Reconciling") == "False AsExpected"


async def test_a_limit_that_no_pod_was_there_to_show_is_no_resize():
    stage = await settled()
    stage.kube.run_deployments(ready=False)
    decide(stage)
    await stage.reconciler.reconcile(GOLD)
    assert stage.cap == 24
    assert "Resized" not in stage.recorder.reasons
    assert "lastApplyMilliseconds" not in stage.status()["liveResize"]


async def test_a_first_start_that_made_no_progress_within_its_deadline_is_stalled():
    stage = Stage()
    stage.kube.put(tier())
    await stage.reconciler.reconcile(GOLD)
    stage.kube.run_deployments(ready=False)
    live = stage.get(Kind.DEPLOYMENT, POOL)
    said = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    stage.kube.put(live | {"status": live["status"] | {"conditions": [said]}})
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Stalled") == "True RolloutStuck"
    assert stage.stands("Reconciling") == "False AsExpected"


async def test_a_paused_pool_is_not_shown_on_its_way_to_new_bounds():
    stage = await settled()
    stage.kube.put(tier(scaling={"mode": "Paused", "replicas": {"min": 3, "max": 4}}))
    await stage.reconciler.reconcile(GOLD)
    assert stage.status()["replicas"] == {"current": 2, "ready": 2, "desired": 2}
    assert stage.status()["replicasSummary"] == "2/2"


async def test_a_token_budget_that_was_taken_back_leaves_nothing_to_write_again_and_again():
    stage = Stage()
    obj = tier()
    obj["spec"]["scaling"]["maxNumBatchedTokens"] = {"min": 512, "max": 2048}
    stage.kube.put(obj)
    stage.probe.default = agreeing(16, 2048)
    await stage.settle()
    assert stage.status()["maxNumBatchedTokens"]["applied"] == 2048
    stage.kube.put(tier())
    await stage.settle()
    writes = len(stage.kube.writes)
    for _ in range(5):
        stage.clock.advance(120)
        await stage.reconciler.reconcile(GOLD)
    assert len(stage.kube.writes) == writes


async def test_a_pool_below_a_minimum_that_nobody_acts_on_says_so_and_what_to_do():
    stage = await settled(scaling={"mode": "Recommend"})
    stage.kube.put(tier(scaling={"mode": "Recommend", "replicas": {"min": 3, "max": 4}}))
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Ready") == "False PoolDegraded"
    assert "spec.scaling.replicas.min is 3 and the mode is Recommend" in stage.condition("Ready")["message"]
