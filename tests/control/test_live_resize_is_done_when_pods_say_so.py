"""A live resize: limit written, kubelets nudged, applied values read back from every Ready pod, and only then done."""

import pytest

from tests.control.stage import GOLD, POOL, Stage, agreeing, tier
from tierkeeper.control.resize import obeys
from tierkeeper.engine.limits import Limits
from tierkeeper.ports import AppliedLimits, Kind
from tierkeeper.scaling.model import Decision, Lever, Levers, Reason


async def running_stage(**spec):
    stage = Stage()
    stage.kube.put(tier(**spec))
    await stage.settle()
    stage.recorder.events.clear()
    return stage


def decide(stage, *, seqs=24, replicas=2, tokens=None):
    record = stage.records.find(GOLD)
    levers = Levers(replicas, seqs, tokens)
    record.decision = Decision(levers, Reason.QUEUE_BOUND_RAISE_CAP, "raise it", changed=(Lever.MAX_NUM_SEQS,))
    record.pending = levers


async def test_a_resize_is_under_way_until_every_ready_pod_shows_it():
    stage = await running_stage()
    names = [pod["metadata"]["name"] for pod in stage.kube.pods_of("llm", POOL)]
    for number, name in enumerate(names):
        live = stage.get(Kind.POD, name)
        stage.kube.set_pod_status("llm", name, live["status"] | {"podIP": f"10.0.0.{number}"})
    stage.probe.pods = {"10.0.0.0": agreeing(24), "10.0.0.1": agreeing(16)}
    decide(stage)
    again = await stage.reconciler.reconcile(GOLD)
    assert stage.cap == 24
    assert stage.stands("Resizing") == "True WaitingForPods"
    assert names[1] in stage.condition("Resizing")["message"]
    assert names[0] not in stage.condition("Resizing")["message"]
    assert again == 0.25
    stage.probe.pods["10.0.0.1"] = agreeing(24)
    stage.clock.advance(1.2)
    assert await stage.reconciler.reconcile(GOLD) is None
    assert stage.stands("Resizing") == "False Applied"
    assert stage.status()["maxNumSeqs"] == {"current": 24, "desired": 24, "applied": 24}
    assert stage.status()["liveResize"]["lastApplyMilliseconds"] == 1200
    assert "Resized max-num-seqs 16 → 24 on 2 pods in 1.2 s, no restart" in [e.message for e in stage.recorder.events]


async def test_a_resize_restarts_no_pod_and_leaves_the_template_alone():
    stage = await running_stage()
    generation = stage.get(Kind.DEPLOYMENT, POOL)["metadata"]["generation"]
    stage.probe.default = agreeing(24)
    decide(stage)
    await stage.reconciler.reconcile(GOLD)
    assert stage.get(Kind.DEPLOYMENT, POOL)["metadata"]["generation"] == generation


async def test_ready_is_not_pulled_down_by_a_resize():
    stage = await running_stage()
    stage.probe.default = agreeing(16)
    decide(stage)
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Ready") == "True PoolReady"
    assert stage.stands("Reconciling") == "False AsExpected"


async def test_every_pod_is_nudged_once_and_not_at_each_look():
    stage = await running_stage()
    decide(stage)
    for _ in range(4):
        await stage.reconciler.reconcile(GOLD)
        stage.clock.advance(0.25)
    assert len([c for c in stage.kube.writes if c.verb == "annotate_pod"]) == 2


async def test_a_pod_that_never_shows_the_limit_is_named_with_what_to_do():
    stage = await running_stage()
    stage.probe.default = None
    decide(stage)
    await stage.reconciler.reconcile(GOLD)
    stage.clock.advance(61)
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Resizing") == "True NotApplied"
    message = stage.condition("Resizing")["message"]
    assert all(pod["metadata"]["name"] in message for pod in stage.kube.pods_of("llm", POOL))
    assert "kubectl delete pod" in message
    assert stage.recorder.reasons.count("ResizingNotApplied") == 1
    stage.clock.advance(15)
    await stage.reconciler.reconcile(GOLD)
    assert stage.recorder.reasons.count("ResizingNotApplied") == 1


async def test_a_second_decision_during_a_resize_counts_from_its_own_write():
    stage = await running_stage()
    decide(stage, seqs=24)
    await stage.reconciler.reconcile(GOLD)
    stage.clock.advance(5)
    decide(stage, seqs=32)
    stage.probe.default = agreeing(32)
    await stage.reconciler.reconcile(GOLD)
    resized = stage.records.find(GOLD).resized
    assert (resized.before.max_num_seqs, resized.after.max_num_seqs, resized.seconds) == (16, 32, 0.0)


async def test_a_pod_that_becomes_ready_after_a_scale_up_is_read_back_without_a_resize_being_announced():
    stage = await running_stage()
    decide(stage, seqs=16, replicas=3)
    await stage.reconciler.reconcile(GOLD)
    stage.probe.default = None
    stage.kube.run_deployments()
    assert await stage.reconciler.reconcile(GOLD) == 0.25
    assert stage.stands("Resizing") == "False Applied"
    stage.probe.default = agreeing(16)
    await stage.reconciler.reconcile(GOLD)
    assert "Resized" not in stage.recorder.reasons


async def test_an_unknown_engine_version_changes_the_cap_by_a_restart_and_says_why():
    stage = await running_stage(engine={"image": "registry.example/vllm:nightly"})
    assert stage.stands("Resizing") == "False UnknownEngineVersion"
    assert "spec.engine.version" in stage.condition("Resizing")["message"]
    decide(stage)
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Ready") == "False RollingOut"
    args = stage.get(Kind.DEPLOYMENT, POOL)["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[args.index("--max-num-seqs") + 1] == "24"
    assert "annotate_pod" not in {c.verb for c in stage.kube.writes}


async def test_an_operator_that_dies_after_the_write_reads_the_pods_back_all_the_same():
    stage = await running_stage()
    decide(stage)
    await stage.reconciler.reconcile(GOLD)
    stage.start_operator()
    stage.probe.default = agreeing(24)
    await stage.reconciler.reconcile(GOLD)
    assert stage.cap == 24
    assert stage.stands("Resizing") == "False Applied"
    assert stage.status()["maxNumSeqs"]["applied"] == 24


WANTED = Limits(24, 512)


@pytest.mark.parametrize(
    ("says", "obeyed"),
    [
        (None, False),
        (AppliedLimits(), False),
        (agreeing(24, 512, idle=False), True),
        (AppliedLimits(seen_max_num_seqs=24, seen_token_budget=512, idle=True), True),
        (AppliedLimits(seen_max_num_seqs=24, seen_token_budget=512, idle=False), False),
        (AppliedLimits(24, 512, 16, 2048, idle=True), True),
        (AppliedLimits(24, 512, 16, 512, idle=False), False),
        (AppliedLimits(24, 512, 24, 2048, idle=False), False),
        (AppliedLimits(16, 512, 16, 512, idle=True), False),
        (AppliedLimits(24, 2048, 24, 2048, idle=True), False),
    ],
)
def test_a_pod_obeys_when_it_applies_the_limits_or_is_idle_and_has_seen_them(says, obeyed):
    assert obeys(says, WANTED) is obeyed


def test_a_token_budget_that_nobody_set_is_not_asked_for():
    assert obeys(AppliedLimits(24, None, 24, 8192), Limits(24))


async def test_resizes_are_counted_over_the_life_of_the_tier_and_not_of_the_operator():
    stage = await running_stage()
    for seqs in (24, 32):
        stage.probe.default = agreeing(seqs)
        decide(stage, seqs=seqs)
        await stage.settle()
    assert stage.status()["liveResize"]["count"] == 2
    stage.start_operator()
    await stage.settle()
    assert stage.status()["liveResize"]["count"] == 2
    stage.probe.default = agreeing(40)
    decide(stage, seqs=40)
    await stage.settle()
    assert stage.status()["liveResize"]["count"] == 3
