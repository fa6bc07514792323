"""Faults of life, engine and Events that people met in systems like this one (docs/cases.md)."""

import dataclasses
import math
import re

import pytest

from tests.control.stage import GOLD, POOL, Stage, tier
from tests.control.test_slo_loop import failing, running_stage, ticks
from tests.control.test_trouble_is_named import crashed, settled
from tests.fakes import admission
from tierkeeper.api.crd import COLUMNS
from tierkeeper.ports import ApiError, Kind, MetricsErrorReason
from tierkeeper.tier import TierKey

FOREIGN = ("app.kubernetes.io/instance", "argocd.argoproj.io/instance", "argocd.argoproj.io/tracking-id")


async def test_l04_twenty_steady_tiers_bear_ten_restarts_of_the_operator_without_a_write_or_a_word():
    """The last two times the loop judges them anew as well; only a figure in a status may then be another."""
    keys = [TierKey("llm", f"t{number}") for number in range(20)]
    stage = await running_stage(*(tier(name=key.name) for key in keys))
    await ticks(stage, 5)
    events = len(stage.recorder.events)
    before, first = stage.kube.settled(), len(stage.kube.writes)
    for number in range(10):
        stage.start_operator()
        for key in keys:
            await stage.reconciler.reconcile(key)
        if number < 8:
            assert len(stage.kube.writes) == first
        else:
            await ticks(stage, 1)
    assert {call.verb for call in stage.kube.writes[first:]} <= {"apply_status"}
    assert len(stage.kube.writes[first:]) <= 2 * len(keys)
    assert stage.kube.settled() == before
    assert len(stage.recorder.events) == events
    assert {stage.stands("SLOMet", key.name) for key in keys} == {"True ObjectivesMet"}


async def test_l01_nothing_that_the_operator_makes_waits_for_it_when_all_goes_at_once():
    """A finalizer, or an owner that waits for its children, would keep the namespace once the operator is gone."""
    stage = Stage()
    stage.kube.put(tier())
    await stage.settle()
    for obj in stage.kube.objects.values():
        assert "finalizers" not in obj["metadata"]
    owners = [
        owner
        for (kind, _, _), obj in stage.kube.objects.items()
        if kind not in (Kind.SERVICE_TIER, Kind.POD)
        for owner in obj["metadata"]["ownerReferences"]
    ]
    assert [owner["blockOwnerDeletion"] for owner in owners] == [False] * 5


async def test_l10_a_second_writer_of_the_labels_costs_a_retry_and_keeps_what_it_wrote():
    stage = Stage()
    stage.kube.put(tier())
    edits = iter(range(3))

    def somebody_else(call):
        """Changes a label between our look and our write of the status, three times."""
        if call.verb == "apply_status" and (number := next(edits, None)) is not None:
            meta = {"namespace": "llm", "name": "gold", "labels": {"edited": str(number)}}
            stage.kube.edit(Kind.SERVICE_TIER, "llm", "gold", {"metadata": meta})

    stage.kube.fail = somebody_else
    for _ in range(3):
        with pytest.raises(ApiError, match="409"):  # for the queue, which comes back with growing pauses
            await stage.reconciler.reconcile(GOLD)
    await stage.settle()
    assert stage.stands("Ready") == "True PoolReady"
    assert stage.get(Kind.SERVICE_TIER, "gold")["metadata"]["labels"] == {"edited": "2"}


async def test_l02_fifty_tiers_that_go_at_once_leave_nothing_and_nobody_to_wait_for():
    stage = Stage()
    keys = [TierKey("llm", f"t{number}") for number in range(50)]
    for key in keys:
        stage.kube.put(tier(name=key.name))
        await stage.reconciler.reconcile(key)
        assert "finalizers" not in stage.get(Kind.SERVICE_TIER, key.name)["metadata"]
    for key in keys:
        stage.kube.delete(Kind.SERVICE_TIER, "llm", key.name)
        assert await stage.reconciler.reconcile(key) is None
    assert [kind for kind, _, _ in stage.kube.objects] == []
    assert list(stage.records) == []


async def test_i16_labels_and_marks_by_which_a_gitops_tool_knows_its_objects_stay_on_the_tier():
    stage = Stage()
    marked = tier()
    marked["metadata"] |= {
        "labels": dict.fromkeys(FOREIGN[:2], "gold-app"),
        "annotations": {FOREIGN[2]: "app:x/y:llm/z"},
    }
    stage.kube.put(marked)
    await stage.settle()
    children = [obj for (kind, _, _), obj in stage.kube.objects.items() if kind is not Kind.SERVICE_TIER]
    assert children
    for child in children:
        carried = {**child["metadata"].get("labels", {}), **child["metadata"].get("annotations", {})}
        assert carried.get(FOREIGN[0]) != "gold-app"
        assert not {*FOREIGN[1:]} & {*carried}


async def test_e07_a_flag_that_the_engine_does_not_know_is_quoted_and_the_old_pod_serves_on():
    stage = await settled(tier())
    await stage.settle()
    stage.kube.put(tier(engine={"extraArgs": ["--enable-metrics"]}))
    await stage.reconciler.reconcile(GOLD)
    first, other = (pod["metadata"]["name"] for pod in stage.kube.pods_of("llm", POOL))
    stage.kube.set_pod_status("llm", first, crashed("api_server.py: error: unrecognized arguments: --enable-metrics"))
    writes = len(stage.kube.writes)
    for _ in range(5):
        stage.clock.advance(30)
        await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Stalled") == "True CrashLoopBackOff"
    assert "unrecognized arguments: --enable-metrics" in stage.condition("Stalled")["message"]
    assert {call.verb for call in stage.kube.writes[writes:]} <= {"apply_status"}  # nobody's pod is touched meanwhile
    assert stage.get(Kind.POD, other)["status"]["conditions"][1]["status"] == "True"
    strategy = stage.get(Kind.DEPLOYMENT, POOL)["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 0, "maxUnavailable": 1}  # so that a first crash is the last pod that is taken


async def test_o05_empty_answers_nan_time_outs_and_refusals_are_counted_apart():
    stage = await running_stage()

    def value(name, reason):
        return sum(
            sample.value
            for metric in stage.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == name and sample.labels.get("reason") == reason
        )

    await ticks(stage, 1)
    usual = stage.source.answer

    def nan(promql):
        """In the buckets; as ages of samples they would be another fault."""
        return [dataclasses.replace(one, value=math.nan) if "le" in one.labels else one for one in usual(promql)]

    for answer in (lambda _: [], nan, failing(MetricsErrorReason.TIMEOUT), failing(MetricsErrorReason.AUTH_FAILED)):
        stage.source.answer = answer
        stage.clock.advance(400)  # every window is due again
        await ticks(stage, 1)
    unknown, failed = "tierkeeper_unknown_signals_total", "tierkeeper_query_errors_total"
    assert value(unknown, "NoSeries") == 1
    assert value(unknown, "NotANumber") == 1
    assert value(failed, "Timeout") >= 1
    assert value(failed, "AuthFailed") >= 1


async def test_o01_the_operator_knows_no_secret_and_hands_the_hubs_token_on_by_reference():
    stage = Stage()
    stage.kube.put(tier(model={"tokenSecretRef": {"name": "hub", "key": "token"}}))
    await stage.settle()
    deployment = stage.get(Kind.DEPLOYMENT, POOL)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (token,) = [each for each in container["env"] if each["name"] == "HF_TOKEN"]
    assert token == {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    assert "Secret" not in set(Kind)


async def test_e05_pods_without_access_to_their_model_are_no_capacity():
    stage = await settled(tier())
    stage.kube.run_deployments(pod=crashed("GatedRepoError: 403 Client Error"))
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Ready") == "False CrashLoopBackOff"
    assert "no access to the model" in stage.condition("Ready")["message"]
    assert stage.status()["replicas"]["ready"] == 0


async def test_i20_a_pool_that_can_never_start_is_stalled_so_that_tools_report_a_failure():
    stage = await settled(tier(pod={"priorityClassName": "fast"}))
    message = admission.forbidden("gold-pool-5978c5f986-", admission.PRIORITY_CLASS.format(name="fast"))
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    live = stage.get(Kind.DEPLOYMENT, POOL)
    stage.kube.put(live | {"status": live.get("status", {}) | {"conditions": [failure]}})
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Stalled") == "True ApiRefused"
    assert stage.condition("Reconciling")["status"] == "False"


def shown(stage, name="gold"):
    """What `kubectl get` prints of a tier, by column: the value at the column's path in the CRD."""
    return {column: at(stage.get(Kind.SERVICE_TIER, name), path) for column, _, path, wide, _ in COLUMNS if not wide}


def at(obj, path):
    for step, wanted in re.findall(r'\.(\w+)(?:\[\?\(@\.type=="(\w+)"\)\])?', path):
        obj = (obj or {}).get(step)
        obj = next((one for one in obj or () if one["type"] == wanted), None) if wanted else obj
    return obj


async def test_o06_a_broken_metrics_path_is_a_condition_of_the_tier_and_seen_in_the_table():
    stage = await running_stage()
    await ticks(stage, 8)
    assert shown(stage) | {"Age": None} == {
        "Ready": "True", "Met": "True", "TTFT P99": "32/1500ms", "TPOT P99": "32/100ms", "Burn 5m": "0.0x",
        "Replicas": "2/2", "Seqs": "16", "Age": None,
    }  # fmt: skip
    before = {condition["type"]: condition["status"] for condition in stage.status()["conditions"]}
    stage.source.answer = failing(MetricsErrorReason.UNREACHABLE)
    await ticks(stage, 8)
    after = {condition["type"]: condition["status"] for condition in stage.status()["conditions"]}
    assert {kind: after[kind] for kind in after if after[kind] != before[kind]} == {
        "MetricsAvailable": "False",
        "SLOMet": "Unknown",
    }
    assert stage.stands("MetricsAvailable") == "False Unreachable"
    assert "told to fail" in stage.condition("MetricsAvailable")["message"]
    row = shown(stage)  # the pool serves on; nothing is shown that is not measured any more
    assert (row["Ready"], row["Met"], row["Burn 5m"]) == ("True", "Unknown", None)
    assert (row["TTFT P99"], row["TPOT P99"]) == ("-/1500ms", "-/100ms")
    assert stage.recorder.reasons.count("Unreachable") == 1
