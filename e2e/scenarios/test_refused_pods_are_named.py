"""A pool whose pods the API server refuses is Stalled with the field, the value and the remedy, and mends by itself;
one whose engine ends is Stalled with what the engine said last.

The words of the real API server are compared with those that the tests without a cluster take for them.
"""

from __future__ import annotations

import json

import pytest

from e2e.scenarios.kit import Kit, changed, tier
from tests.fakes import admission

pytestmark = [pytest.mark.e2e, pytest.mark.alongside, pytest.mark.timeout(300)]

NAME = "does-not-exist"
REFUSED = {
    "priorityClassName": admission.PRIORITY_CLASS,
    "runtimeClassName": admission.RUNTIME_CLASS,
    "serviceAccountName": admission.SERVICE_ACCOUNT,
}


def what_the_api_server_says(kit: Kit, name: str) -> str:
    """Of the pods that the tier's Deployment cannot make; empty while it says nothing."""
    conditions = kit.get("deployments", f"{name}-pool").get("status", {}).get("conditions", [])
    return next((str(c["message"]) for c in conditions if c["type"] == "ReplicaFailure"), "")


def test_a_class_or_an_account_that_does_not_exist_stalls_the_tier_with_the_remedy(kit: Kit) -> None:
    names = {field: field.removesuffix("Name").lower() for field in REFUSED}
    kit.apply(*(tier(name, pod={field: NAME}) for field, name in names.items()))
    for field, name in names.items():
        stalled = kit.until_condition(name, "Stalled", "True", reason="ApiRefused")
        said = what_the_api_server_says(kit, name)
        print(f"{field}: {said}\n  → {stalled['message']}")
        expected = REFUSED[field].format(namespace=kit.namespace, name=NAME)
        assert said.startswith(f'pods "{name}-pool-')
        assert said.endswith(admission.forbidden("", expected).removeprefix('pods ""'))
        assert expected in stalled["message"]
        assert f"create {NAME}, or correct spec.pod.{field} ({NAME})" in stalled["message"]
        assert kit.condition(name, "Ready")["reason"] == "ApiRefused"
        assert kit.pods(name) == []

    kit.apply(*(tier(name) for name in names.values()))
    kit.until_ready(*names.values())
    for name in names.values():
        assert kit.condition(name, "Stalled")["status"] == "False"


def test_an_engine_that_cannot_start_stalls_the_tier_with_the_last_line_of_its_log(kit: Kit) -> None:
    """The kubelet keeps the end of the log, because no engine writes a termination message."""
    kit.apply(changed(tier("greedy"), "spec.engine.env", [{"name": "ENGINE_OOM_ABOVE", "value": "8"}]))
    stalled = kit.until_condition("greedy", "Stalled", "True", reason="CrashLoopBackOff")
    print(stalled["message"])
    assert "ended with exit code 1: RuntimeError: CUDA out of memory" in stalled["message"]

    kit.until("the engine to have been started for the third time, and to have ended", lambda: ends(kit, "greedy") > 2)
    told = [event["reason"] for event in kit.events("greedy")]
    print(told)
    assert told.count("CrashLoopBackOff") == 1
    assert "Cleared" not in told
    assert kit.condition("greedy", "Stalled") == stalled


def ends(kit: Kit, name: str) -> int:
    """How often the engine of the tier's first pod has ended."""
    container = kit.pods(name)[0]["status"]["containerStatuses"][0]
    return int(container["restartCount"]) + ("running" not in container["state"])


def test_a_replica_at_a_gate_is_told_with_the_gate_and_serves_once_it_opens(kit: Kit) -> None:
    """As Kueue's pods wait for quota; what somebody adds to the Deployment beside our fields stays."""
    kit.apply(tier("gated"))
    kit.until_ready("gated")
    gate = "example.com/quota"
    template = {"spec": {"schedulingGates": [{"name": gate}]}}
    kit.kubectl("patch", "deployment", "gated-pool", "-p", json.dumps({"spec": {"template": template}}))
    told = kit.until_condition("gated", "Ready", "False", reason="Unschedulable")
    (pod,) = kit.pods("gated")
    print(told["message"])
    assert (
        f"pod {pod['metadata']['name']} waits at its scheduling gate {gate}: whoever set it opens it" in told["message"]
    )

    opened = [{"op": "remove", "path": "/spec/schedulingGates"}]
    kit.kubectl("patch", "pod", pod["metadata"]["name"], "--type=json", "-p", json.dumps(opened))
    kit.until_ready("gated")
    assert [pod["metadata"]["uid"]] == [one["metadata"]["uid"] for one in kit.pods("gated")]
