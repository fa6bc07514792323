"""Events: what is worse, what is over, and nothing twice."""

import pytest

from tests.control.stage import GOLD, LIMIT, POOL, Stage, tier
from tests.control.test_slo_loop import failing, running_stage, ticks
from tests.control.test_trouble_is_named import crashed, settled, waiting
from tierkeeper.ports import MetricsErrorReason


def without_a_node(said="0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", *, why="Unschedulable"):
    scheduled = {"type": "PodScheduled", "status": "False", "reason": why, "message": said}
    return {"phase": "Pending", "conditions": [scheduled]}


async def starting() -> Stage:
    stage = await settled(tier())
    stage.kube.run_deployments(ready=False)
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Ready") == "False PoolStarting"
    stage.recorder.events.clear()
    return stage


async def see(stage, status):
    for pod in stage.kube.pods_of("llm", POOL):
        stage.kube.set_pod_status("llm", pod["metadata"]["name"], status)
    await stage.reconciler.reconcile(GOLD)


async def test_a_start_that_finds_no_node_is_a_warning_with_a_remedy():
    stage = await starting()
    await see(stage, without_a_node())
    (event,) = stage.recorder.events
    assert (event.type, event.reason) == ("Warning", "Unschedulable")
    assert "Insufficient nvidia.com/gpu: free it or add a node, ask for less in spec.resources" in event.message
    assert stage.condition("Ready")["message"] in event.message


NO_USE = "0/1 nodes are available: 1 Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("scheduler", "told"),
    [
        (
            'persistentvolumeclaim "weights" not found. not found.',
            'persistentvolumeclaim "weights" not found. not found: have the claim there and bound '
            "(`kubectl get pvc`), or correct spec.model.volumeClaim.",
        ),
        (
            f"1 Insufficient cpu. no new claims to deallocate, preemption: {NO_USE}",
            "1 Insufficient cpu: free it or add a node, ask for less in spec.resources, or correct nodeSelector, "
            "tolerations or affinity in spec.pod.",
        ),
    ],
)
async def test_the_remedy_is_for_what_the_scheduler_lacks_and_its_own_plans_are_left_out(scheduler, told):
    stage = await starting()
    await see(stage, without_a_node(f"0/1 nodes are available: {scheduler}"))
    assert stage.condition("Ready")["message"].endswith(f"0/1 nodes are available: {told}")


async def test_a_start_at_a_scheduling_gate_is_told_with_who_can_open_it():
    stage = await starting()
    for pod in stage.kube.pods_of("llm", POOL):
        pod["spec"] = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "Blocked"}
    await see(stage, {"phase": "Pending", "conditions": [scheduled]})
    assert stage.stands("Ready") == "False Unschedulable"
    told = "gate kueue.x-k8s.io/admission: whoever set it opens it; see the queue and its quota."
    assert stage.condition("Ready")["message"].endswith(told)


@pytest.mark.parametrize("status", [waiting("ImagePullBackOff", "no such tag"), crashed("CUDA error")])
async def test_a_start_that_fails_for_good_is_told_once_by_stalled(status):
    stage = await starting()
    await see(stage, status)
    (event,) = stage.recorder.events
    assert event.type == "Warning"
    assert event.message.startswith("Stalled=True: ")


async def test_the_same_cause_in_other_words_is_no_news():
    stage = await starting()
    await see(stage, without_a_node())
    await see(stage, without_a_node("0/2 nodes are available: 2 Insufficient nvidia.com/gpu."))
    assert stage.recorder.reasons == ["Unschedulable"]


async def test_what_is_over_is_named():
    stage = await settled(tier(scaling={"replicas": {"min": 5, "max": 2}}))
    stage.recorder.events.clear()
    stage.kube.put(tier())
    await stage.settle()
    assert "Stalled is over: InvalidSpec no longer holds" in [event.message for event in stage.recorder.events]
    assert "AsExpected" not in stage.recorder.reasons


async def test_a_new_object_is_logged_as_created(caplog):
    caplog.set_level("INFO")
    await settled(tier())
    assert f"create ConfigMap {LIMIT}" in caplog.messages
    assert "does not exist" not in caplog.text


async def test_a_query_without_an_answer_is_named_as_a_query():
    stage = await running_stage()
    stage.source.answer = failing(MetricsErrorReason.TIMEOUT)
    await ticks(stage, 3)
    assert stage.condition("MetricsAvailable")["message"].startswith("the query for ")
