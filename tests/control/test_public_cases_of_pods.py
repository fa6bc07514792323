"""Faults of pods, nodes and neighbours that people met in systems like this one (docs/cases.md)."""

import dataclasses

import pytest

from tests.control.stage import GOLD, POOL, Stage, agreeing, tier
from tests.control.test_news_is_told_once import starting, without_a_node
from tests.control.test_slo_loop import running_stage, ticks
from tests.fakes.kubelet import FakeKubelet
from tierkeeper.control.pods import OPENS_A_GATE
from tierkeeper.ports import Kind

THREE = {"replicas": {"min": 3, "max": 8}}


def name_of(stage, number):
    return stage.kube.pods_of("llm", POOL)[number]["metadata"]["name"]


def queue_up(stage):
    """A third of the pool is away, and what is left has a queue: half of the requests miss their TTFT."""
    stage.source.answer = dataclasses.replace(stage.source.answer, waiting=40.0, running=16.0, slow=0.5)


async def served_and_lost(stage):
    """The first pod has served for an hour; then its node is gone, and nobody but the node controller says so."""
    kubelet, name = FakeKubelet(stage.clock), name_of(stage, 0)
    began, ready = list(kubelet.run(3600, ready_after=60))[:2]
    assert began["conditions"][1]["status"] == "False"
    stage.kube.set_pod_status("llm", name, ready)
    away = [ready["conditions"][0], {"type": "Ready", "status": "False", "lastTransitionTime": kubelet.now()}]
    stage.kube.set_pod_status("llm", name, ready | {"conditions": away})
    return name


@pytest.mark.parametrize("least", [3, 2], ids=["below the minimum", "above the minimum"])
async def test_g06_a_node_that_is_gone_is_lost_capacity_and_no_load_that_grows(least):
    stage = await running_stage(tier(scaling={"replicas": {"min": 3, "max": 8}}))
    stage.kube.put(tier(scaling={"replicas": {"min": least, "max": 8}}))
    await ticks(stage, 4)
    stage.recorder.events.clear()
    name = await served_and_lost(stage)
    queue_up(stage)
    await ticks(stage, 20)  # five minutes, until the node controller evicts what was there
    ready = "False" if least == 3 else "True"
    assert stage.stands("Ready") == f"{ready} PoolDegraded"
    assert f"2 of 3 replicas Ready. {name} served and is not Ready any more" in stage.condition("Ready")["message"]
    assert stage.replicas == 3

    stage.kube.delete(Kind.POD, "llm", name)
    stage.kube.run_deployments()
    stage.kube.set_pod_status("llm", name_of(stage, 2), without_a_node())
    await ticks(stage, 20)
    assert stage.stands("Ready") == f"{ready} {'Unschedulable' if least == 3 else 'PoolDegraded'}"
    assert "Insufficient nvidia.com/gpu" in stage.condition("Ready")["message"]
    assert stage.replicas == 3
    warned = [event.reason for event in stage.recorder.events if event.message.startswith("Ready=False")]
    assert warned == (["PoolDegraded", "Unschedulable"] if least == 3 else [])


async def test_pods_at_a_gate_hold_growth_with_the_gate_s_name_and_not_the_scheduler_s_words():
    """Kueue's, on what was added: status and decision count them alike, and nobody says that they are starting."""
    stage = await running_stage(tier(scaling={"replicas": {"min": 2, "max": 8}, "maxNumSeqs": {"min": 16, "max": 16}}))
    queue_up(stage)
    await ticks(stage, 4)
    asked = stage.replicas
    assert asked > 2
    stage.kube.run_deployments()
    waits = without_a_node("Scheduling is blocked due to non-empty scheduling gates", why="SchedulingGated")
    for number in range(2, asked):
        stage.kube.pods_of("llm", POOL)[number]["spec"] = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
        stage.kube.set_pod_status("llm", name_of(stage, number), waits)
    await ticks(stage, 12)
    decision = stage.status()["lastDecision"]
    assert decision["reason"] == "HoldUnschedulable"
    assert f"waits at its scheduling gate kueue.x-k8s.io/admission: {OPENS_A_GATE}" in decision["message"]
    assert "scheduler:" not in decision["message"]
    assert stage.stands("ScalingLimited") == "True HoldUnschedulable"
    assert stage.replicas == asked


async def test_e11_an_image_that_is_pulled_for_a_quarter_of_an_hour_is_said_and_awaited():
    stage = await running_stage(tier(scaling={"replicas": {"min": 2, "max": 8}, "maxNumSeqs": {"min": 16, "max": 16}}))
    queue_up(stage)
    await ticks(stage, 4)
    asked = stage.replicas
    assert asked > 2
    stage.kube.run_deployments()
    kubelet = FakeKubelet(stage.clock)
    for number in range(2, asked):
        pulls = kubelet.status({"waiting": {"reason": "ContainerCreating"}}) | {"phase": "Pending"}
        stage.kube.set_pod_status("llm", name_of(stage, number), pulls)
    await ticks(stage, 60)
    assert stage.replicas == asked
    new = asked - 2
    assert stage.stands("Ready") == "True ScalingUp"
    assert f"{new} on the way, {new} of them waiting for image or volumes" in stage.condition("Ready")["message"]
    assert stage.status()["lastDecision"]["reason"] == "HoldStarting"


async def test_e11_a_first_pull_is_told_from_a_model_that_loads():
    stage = await starting()
    assert stage.condition("Ready")["message"] == "0 of 2 replicas Ready; 2 on the way."
    status = FakeKubelet(stage.clock).status({"waiting": {"reason": "ContainerCreating"}})
    stage.kube.set_pod_status("llm", name_of(stage, 0), status | {"phase": "Pending"})
    await stage.reconciler.reconcile(GOLD)
    said = "0 of 2 replicas Ready; 2 on the way, 1 of them waiting for image or volumes."
    assert stage.condition("Ready")["message"] == said
    assert stage.recorder.events == []


async def test_r07_a_raise_that_kills_a_pod_is_taken_back_once_and_never_tried_again():
    stage = await running_stage(waiting=40.0, running=16.0, slow=0.5)
    while stage.cap == 16:
        await ticks(stage, 1)
    assert stage.cap == 24
    stage.probe.default = agreeing(24)
    crash = list(FakeKubelet(stage.clock).run(1, message="torch.OutOfMemoryError: CUDA out of memory"))[-1]
    stage.kube.set_pod_status("llm", name_of(stage, 0), crash)
    await ticks(stage, 2)
    assert stage.cap == 16
    stage.probe.default = agreeing(16)
    stage.kube.run_deployments()
    caps = set()
    for _ in range(24):  # six minutes of the same queue, three times as long as a raise is blamed
        await ticks(stage, 1)
        stage.kube.run_deployments()
        caps.add(stage.cap)
    assert caps == {16}
    assert stage.recorder.reasons.count("RollBackCap") == 1
    (told,) = [event.message for event in stage.recorder.events if event.reason == "RollBackCap"]
    assert "lower max-num-seqs 24 → 16" in told
    assert "not raised above 16 again" in told


async def test_r07_a_cap_of_the_user_that_kills_the_first_new_pod_ends_the_rollout_there():
    """An engine without live limits takes the cap as an argument: the pods are rolled, one after the other."""
    old = {"image": "vllm/vllm-openai:v0.10.0", "maxNumSeqs": 256}
    wide = {"mode": "Fixed", "maxNumSeqs": {"min": 8, "max": 1024}}
    stage = await running_stage(tier(engine=old, scaling=wide))
    stage.kube.put(tier(engine=old | {"maxNumSeqs": 1024}, scaling=wide))
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Ready") == "False RollingOut"
    first, other = name_of(stage, 0), name_of(stage, 1)
    writes = len(stage.kube.writes)
    for status in FakeKubelet(stage.clock).crash_loop(times=8, message="torch.OutOfMemoryError: CUDA out of memory"):
        stage.kube.set_pod_status("llm", first, status)
        await ticks(stage, 1)
    assert stage.stands("Stalled") == "True CrashLoopBackOff"
    assert "CUDA out of memory" in stage.condition("Stalled")["message"]
    assert {call.verb for call in stage.kube.writes[writes:]} == {"apply_status"}
    assert stage.recorder.reasons.count("CrashLoopBackOff") == 1
    assert stage.get(Kind.POD, other)["status"]["conditions"][1]["status"] == "True"

    stage.kube.put(tier(engine=old, scaling=wide))
    await stage.settle()
    assert (stage.stands("Ready"), stage.stands("Stalled")) == ("True PoolReady", "False AsExpected")


async def test_c17_two_releases_on_one_tier_leave_off_and_it_is_said_that_there_may_be_two():
    """They are of two releases of the operator, whose pools differ: each would put its own back for ever."""
    one = Stage()
    one.kube.put(tier())
    await one.settle()
    two = Stage(kube=one.kube, clock=one.clock)
    two.reconciler._plugin_source = "# the plugin of another release"
    before, said = len(one.kube.writes), set()
    for _ in range(15):  # ten minutes
        for stage in (one, two):
            await stage.reconciler.reconcile(GOLD)
            said.add((stage.stands("Stalled"), stage.condition("Stalled")["message"].partition(": ")[2]))
        one.clock.advance(40)
    applied = [call for call in one.kube.writes[before:] if call.verb == "apply"]
    assert len(applied) <= 2 * 4
    assert ("True Rewritten", "find what writes it (two operators? a webhook?)") in said
