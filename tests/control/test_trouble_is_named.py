"""What goes wrong ends in a condition with a cause and a remedy, and other tiers do not notice."""

import pytest

from tests.control.stage import GOLD, LIMIT, POOL, Stage, tier
from tests.control.test_slo_loop import running_stage
from tests.fakes import admission
from tests.fakes.kube import pod_status
from tierkeeper.ports import ApiError, Kind
from tierkeeper.tier import TierKey

SILVER = TierKey("llm", "silver")


def waiting(reason, message=""):
    status = pod_status(ready=False)
    container = status["containerStatuses"][0] | {"state": {"waiting": {"reason": reason, "message": message}}}
    return status | {"containerStatuses": [container]}


def crashed(message="", restarts=3):
    status = pod_status(ready=False)
    container = status["containerStatuses"][0] | {
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "restartCount": restarts,
        "lastState": {"terminated": {"exitCode": 1, "message": message}},
    }
    return status | {"containerStatuses": [container]}


async def settled(*tiers):
    stage = Stage()
    for obj in tiers:
        stage.kube.put(obj)
    await stage.reconciler.reconcile(GOLD)
    return stage


async def test_a_spec_that_contradicts_itself_stalls_with_field_value_and_remedy():
    stage = await settled(tier(scaling={"replicas": {"min": 5, "max": 2}}))
    assert stage.stands("Stalled") == "True InvalidSpec"
    assert stage.stands("Ready") == "False InvalidSpec"
    assert "spec.scaling.replicas" in stage.condition("Stalled")["message"]
    assert "min 5, max 2" in stage.condition("Stalled")["message"]
    assert stage.get(Kind.DEPLOYMENT, POOL) is None


async def test_a_corrected_spec_leaves_stalled_again():
    stage = await settled(tier(scaling={"replicas": {"min": 5, "max": 2}}))
    stage.kube.put(tier())
    await stage.settle()
    assert stage.stands("Stalled") == "False AsExpected"
    assert stage.stands("Ready") == "True PoolReady"


@pytest.mark.parametrize("owner", [[], [{"kind": "Rollout", "name": "other", "uid": "u9", "controller": True}]])
async def test_a_foreign_deployment_of_the_pool_s_name_is_not_touched(owner):
    stage = Stage()
    stage.kube.put(tier())
    theirs = {
        "kind": "Deployment",
        "metadata": {"name": POOL, "namespace": "llm", "ownerReferences": owner},
        "spec": {"replicas": 7, "template": {"metadata": {}, "spec": {}}},
    }
    before = stage.kube.put(theirs)
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Stalled") == "True ForeignObject"
    assert POOL in stage.condition("Stalled")["message"]
    assert "delete it" in stage.condition("Stalled")["message"]
    assert stage.get(Kind.DEPLOYMENT, POOL) == before
    assert {c.verb for c in stage.kube.writes} == {"apply_status"}


async def test_the_tier_goes_on_once_the_foreign_object_is_gone():
    stage = Stage()
    stage.kube.put(tier())
    stage.kube.put({"kind": "Service", "metadata": {"name": POOL, "namespace": "llm"}, "spec": {}})
    assert await stage.reconciler.reconcile(GOLD) == 60
    stage.kube.delete(Kind.SERVICE, "llm", POOL)
    await stage.settle()
    assert stage.stands("Ready") == "True PoolReady"


async def test_a_missing_secret_stalls_with_its_name():
    stage = await settled(tier())
    stage.kube.run_deployments(pod=waiting("CreateContainerConfigError", 'secret "hf-token" not found'))
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Stalled") == "True MissingReference"
    assert stage.stands("Ready") == "False CreateContainerConfigError"
    assert stage.stands("Reconciling") == "False AsExpected"
    assert 'secret "hf-token" not found; create it' in stage.condition("Stalled")["message"]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (waiting("ImagePullBackOff", "manifest unknown"), "ImagePullBackOff"),
        (waiting("InvalidImageName", "bad reference"), "InvalidImageName"),
        (crashed("unrecognized arguments: --enable-metrics"), "CrashLoopBackOff"),
    ],
)
async def test_a_pool_that_cannot_work_is_stalled_and_not_in_progress_for_ever(status, reason):
    stage = await settled(tier())
    stage.kube.run_deployments(pod=status)
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Stalled") == f"True {reason}"
    assert stage.stands("Ready") == f"False {reason}"


async def test_ready_is_lost_when_pods_that_served_go_into_a_crash_loop():
    stage = await settled(tier())
    await stage.settle()
    for pod in stage.kube.pods_of("llm", POOL):
        stage.kube.set_pod_status("llm", pod["metadata"]["name"], crashed("CUDA error"))
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Ready") == "False CrashLoopBackOff"
    assert "CUDA error" in stage.condition("Ready")["message"]


async def test_an_engine_without_access_to_its_model_says_so():
    stage = await settled(tier())
    stage.kube.run_deployments(pod=crashed("GatedRepoError: 403 Client Error"))
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Ready") == "False CrashLoopBackOff"
    assert "no access to the model" in stage.condition("Ready")["message"]


async def test_a_quota_is_a_limit_of_scaling_and_is_not_asked_again_and_again():
    stage = await settled(tier(scaling={"replicas": {"min": 2, "max": 4}, "mode": "Fixed"}))
    await stage.settle()
    said = 'pods "gold-pool-x" is forbidden: exceeded quota: gpus, requested: 1, used: 2, limited: 2'
    stage.kube.delete(Kind.POD, "llm", stage.kube.pods_of("llm", POOL)[0]["metadata"]["name"])
    live = stage.get(Kind.DEPLOYMENT, POOL)
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": said}
    stage.kube.put(live | {"status": live["status"] | {"conditions": [failure]}})
    writes = len(stage.kube.writes)
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("ScalingLimited") == "True QuotaExceeded"
    assert "exceeded quota: gpus" in stage.condition("ScalingLimited")["message"]
    for _ in range(5):
        stage.clock.advance(5)
        await stage.reconciler.reconcile(GOLD)
    assert {c.verb for c in stage.kube.writes[writes:]} == {"apply_status"}
    assert len(stage.kube.writes) == writes + 1


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (admission.PRIORITY_CLASS.format(name="fast"), "create fast, or correct spec.pod.priorityClassName (fast)."),
        (admission.RUNTIME_CLASS.format(name="wasm"), "create wasm, or correct spec.pod.runtimeClassName (wasm)."),
        (
            admission.SERVICE_ACCOUNT.format(namespace="llm", name="own"),
            "create own, or correct spec.pod.serviceAccountName (own).",
        ),
        ('violates PodSecurity "restricted:latest": x', "namespace llm a Pod Security level"),
        ("maximum memory usage per Container is 1Gi, but limit is 2Gi", "spec.pod, spec.resources or the cluster's"),
    ],
    ids=["priority class", "runtime class", "service account", "pod security", "anything else"],
)
async def test_a_pool_whose_pods_are_refused_is_stalled_and_says_what_to_do(said, remedy):
    names = {"priorityClassName": "fast", "runtimeClassName": "wasm", "serviceAccountName": "own"}
    stage = await settled(tier(pod=names))
    live = stage.get(Kind.DEPLOYMENT, POOL)
    message = admission.forbidden("gold-pool-5978c5f986-", said)
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    stage.kube.put(live | {"status": live.get("status", {}) | {"conditions": [failure]}})
    await stage.reconciler.reconcile(GOLD)
    for condition, status in (("Stalled", "True"), ("Ready", "False")):
        assert stage.stands(condition) == f"{status} ApiRefused"
        assert said in stage.condition(condition)["message"]
        assert remedy in stage.condition(condition)["message"]


async def test_pods_that_a_node_rejected_are_not_counted_as_replicas():
    stage = await settled(tier())
    await stage.settle()
    name = stage.kube.pods_of("llm", POOL)[0]["metadata"]["name"]
    stage.kube.set_pod_status("llm", name, {"phase": "Failed", "reason": "UnexpectedAdmissionError"})
    await stage.reconciler.reconcile(GOLD)
    assert stage.status()["replicas"]["ready"] == 1
    assert stage.stands("Ready") == "False PoolStarting"


async def test_pods_of_a_stranger_with_the_same_labels_are_not_counted():
    stage = await settled(tier())
    await stage.settle()
    pod = stage.kube.pods_of("llm", POOL)[0]
    owner = pod["metadata"]["ownerReferences"][0] | {"name": "stranger-1"}
    stage.kube.put(pod | {"metadata": pod["metadata"] | {"name": "stranger-1-x", "ownerReferences": [owner]}})
    await stage.reconciler.reconcile(GOLD)
    assert stage.status()["replicas"]["ready"] == 2


async def test_an_autoscaler_on_the_pool_is_reported_and_not_fought():
    stage = await settled(tier(scaling={"mode": "Fixed"}))
    await stage.settle()
    await stage.kube.scale(namespace="llm", name=POOL, replicas=4, field_manager="kube-controller-manager")
    await stage.reconciler.reconcile(GOLD)
    assert stage.replicas == 4
    assert stage.stands("ScalingLimited") == "True HoldExternalScaler"
    assert "HorizontalPodAutoscaler" in stage.condition("ScalingLimited")["message"]


async def test_a_webhook_that_rewrites_a_child_is_named_and_not_fought():
    stage = await settled(tier())
    await stage.settle()

    def rewrite(obj):
        if obj["kind"] == "Service":
            obj["spec"]["type"] = "LoadBalancer"

    stage.kube.mutate = rewrite
    stage.kube.edit(Kind.SERVICE, "llm", POOL, {"spec": {"type": "LoadBalancer"}})
    writes = len(stage.kube.writes)
    for _ in range(20):
        stage.clock.advance(1)
        await stage.reconciler.reconcile(GOLD)
    applies = [c for c in stage.kube.writes[writes:] if c.verb == "apply"]
    assert len(applies) == 3
    assert stage.stands("Stalled") == "True Rewritten"
    assert "spec.type" in stage.condition("Stalled")["message"]


async def test_somebody_who_sets_the_replicas_again_and_again_is_named_and_not_fought():
    stage = await settled(tier(scaling={"mode": "Fixed"}))
    await stage.settle()
    for _ in range(20):
        await stage.kube.scale(namespace="llm", name=POOL, replicas=4, field_manager="other-operator")
        await stage.reconciler.reconcile(GOLD)
        stage.clock.advance(1)
    assert len([c for c in stage.kube.writes if c.verb == "scale" and c.manager == "tierkeeper-scale"]) == 4
    assert stage.stands("Stalled") == "True Rewritten"
    assert "other-operator" in stage.condition("Stalled")["message"]
    stage.clock.advance(600)
    await stage.reconciler.reconcile(GOLD)
    assert stage.replicas == 2
    assert stage.stands("Stalled") == "False AsExpected"


async def test_two_operators_of_different_minds_do_not_rewrite_each_other_for_ever():
    stage = await settled(tier(scaling={"mode": "Fixed"}))
    await stage.settle()
    ours = stage.get(Kind.CONFIG_MAP, LIMIT)
    meta = {**ours["metadata"], "annotations": {"tierkeeper.dev/hash": "another"}, "resourceVersion": None}
    theirs = ours | {"metadata": meta, "data": {"max-num-seqs": "9"}}
    writes = len(stage.kube.writes)
    for _ in range(20):
        await stage.kube.apply(theirs, field_manager="tierkeeper")
        await stage.reconciler.reconcile(GOLD)
        stage.clock.advance(1)
    assert len([c for c in stage.kube.writes[writes:] if c.verb == "apply"]) == 20 + 3
    assert stage.stands("Stalled") == "True Rewritten"


async def test_a_refusal_of_the_api_server_is_shown_and_tried_again_later():
    stage = Stage()
    stage.kube.put(tier())
    refusal = ApiError(status=422, reason="Invalid", message="spec.template.spec.nodeSelector: Invalid value")
    stage.kube.fail = lambda call: refusal if call.verb == "apply" and call.kind is Kind.DEPLOYMENT else None
    assert await stage.reconciler.reconcile(GOLD) == 60
    assert stage.stands("Stalled") == "True ApiRefused"
    assert "nodeSelector: Invalid value" in stage.condition("Stalled")["message"]


async def test_an_absent_api_server_is_an_error_for_the_queue_and_no_verdict_on_the_tier():
    stage = Stage()
    stage.kube.put(tier())
    stage.kube.fail = lambda call: (
        ApiError(status=0, reason="Timeout", message="no answer") if call.verb == "apply" else None
    )
    with pytest.raises(ApiError):
        await stage.reconciler.reconcile(GOLD)
    assert stage.status() == {}


async def test_writes_that_fail_for_a_minute_while_reads_work_are_told_and_still_tried():
    """As where an admission webhook is down: the API server answers each write with 500."""
    stage = await settled(tier())
    down = ApiError(status=500, reason="InternalError", message='failed calling webhook "policy.example.com"')
    stage.kube.fail = lambda call: down if call.verb == "apply" else None
    stage.kube.put(tier(engine={"image": "vllm/vllm-openai:v0.33.0"}))
    for _ in range(5):
        with pytest.raises(ApiError):
            await stage.reconciler.reconcile(GOLD)
        stage.clock.advance(20)
    assert stage.stands("Reconciling") == "True ApiUnavailable"
    assert 'failed calling webhook "policy.example.com"' in stage.condition("Reconciling")["message"]
    assert stage.stands("Stalled") == "False AsExpected"
    stage.kube.fail = lambda _: None
    await stage.settle()
    assert (stage.stands("Ready"), stage.stands("Reconciling")) == ("True PoolReady", "False AsExpected")


async def test_a_bad_tier_does_not_disturb_a_good_one():
    stage = Stage()
    stage.kube.put(tier(scaling={"replicas": {"min": 5, "max": 2}}))
    stage.kube.put(tier(name="silver"))
    await stage.reconciler.reconcile(GOLD)
    await stage.settle(SILVER)
    assert stage.stands("Ready", "silver") == "True PoolReady"


async def test_a_tier_that_is_deleted_while_its_status_is_written_is_no_error():
    stage = Stage()
    stage.kube.put(tier())
    gone = ApiError(status=404, reason="NotFound", message="gone")
    stage.kube.fail = lambda call: gone if call.verb == "apply_status" else None
    await stage.reconciler.reconcile(GOLD)


async def test_there_is_always_exactly_one_ready_condition():
    stage = await settled(tier())
    await stage.settle()
    stage.kube.put(tier(scaling={"replicas": {"min": 5, "max": 2}}))
    await stage.reconciler.reconcile(GOLD)
    assert [c["type"] for c in stage.status()["conditions"]].count("Ready") == 1


async def test_a_tier_in_a_namespace_that_is_being_deleted_is_left_to_go_in_silence(caplog):
    stage = await running_stage()
    status = stage.status()
    said = "configmaps is forbidden: unable to create new content in namespace llm because it is being terminated"
    stage.kube.fail = lambda call: (
        ApiError(status=403, reason="NamespaceTerminating", message=said) if call.verb == "apply" else None
    )
    stage.kube.delete(Kind.CONFIG_MAP, "llm", LIMIT)  # as the namespace controller does, one kind after the other
    caplog.set_level("INFO")
    caplog.clear()
    assert await stage.reconciler.reconcile(GOLD) == 60
    assert (stage.status(), stage.recorder.events) == (status, [])
    assert "forbidden" not in caplog.text
