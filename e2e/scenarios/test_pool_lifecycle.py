"""One tier is one pool: rendered whole, owned, repaired, rolled only when it must be, and gone with its tier."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from e2e.scenarios.kit import Kit, changed, tier

pytestmark = [pytest.mark.e2e, pytest.mark.alongside, pytest.mark.timeout(300)]


def revision(kit: Kit, name: str) -> str:
    """The Deployment's own count of its templates: it moves when, and only when, pods are rolled."""
    annotations = kit.get("deployments", f"{name}-pool")["metadata"]["annotations"]
    return str(annotations["deployment.kubernetes.io/revision"])


def rolled(kit: Kit, name: str, *, since: str) -> bool:
    return revision(kit, name) != since


def test_a_tier_becomes_ready_and_its_children_go_with_it(kit: Kit) -> None:
    kit.apply(tier("gold"))
    kit.until_ready("gold")
    row = kit.kubectl("get", "servicetiers", "gold")
    print(row)
    uid = kit.get("servicetiers", "gold")["metadata"]["uid"]
    children = [
        *kit.list("deployments"),
        *kit.list("services"),
        *kit.list("poddisruptionbudgets"),
        *kit.list("configmaps", "tierkeeper.dev/tier=gold"),
    ]
    assert sorted((c["kind"], c["metadata"]["name"]) for c in children) == [
        ("ConfigMap", "gold-pool-limit"),
        ("ConfigMap", "gold-pool-plugin"),
        ("Deployment", "gold-pool"),
        ("PodDisruptionBudget", "gold-pool"),
        ("Service", "gold-pool"),
    ]
    assert all(c["metadata"]["ownerReferences"][0]["uid"] == uid for c in children)

    kit.kubectl("delete", "servicetier", "gold")
    kit.until("the children to be collected", lambda: not kit.list("deployments") and not kit.list("services"))


def test_nothing_of_ours_is_on_the_users_object(kit: Kit) -> None:
    kit.apply(tier("gold"))
    kit.until_ready("gold")
    metadata = kit.get("servicetiers", "gold")["metadata"]
    assert "finalizers" not in metadata
    assert set(metadata["annotations"]) == {"kubectl.kubernetes.io/last-applied-configuration"}
    assert metadata["generation"] == 1


#: One change per engine field of the spec, and what must then stand in the pod.
ENGINE_CHANGES: list[tuple[str, Any, str]] = [
    ("spec.engine.maxModelLen", 4096, "--max-model-len 4096"),
    ("spec.engine.maxNumBatchedTokens", 1024, "--max-num-batched-tokens 1024"),
    ("spec.engine.extraArgs", ["--enforce-eager"], "--enforce-eager"),
    ("spec.engine.env", [{"name": "ENGINE_STARTUP_SECONDS", "value": "2"}], "ENGINE_STARTUP_SECONDS=2"),
    ("spec.model.revision", "abc123", "--revision abc123"),
]


def test_every_engine_field_reaches_the_pod_and_rolls_it_while_max_num_seqs_does_not(kit: Kit) -> None:
    wanted = tier("gold")
    kit.apply(wanted)
    kit.until_ready("gold")
    pod = kit.pods("gold")[0]["metadata"]["uid"]
    before = revision(kit, "gold")

    wanted = changed(wanted, "spec.engine.maxNumSeqs", 24)
    kit.apply(wanted)
    kit.until("the new cap", lambda: kit.get("configmaps", "gold-pool-limit")["data"]["max-num-seqs"] == "24")
    assert kit.pods("gold")[0]["metadata"]["uid"] == pod
    assert revision(kit, "gold") == before

    for path, value, shown in ENGINE_CHANGES:
        before = revision(kit, "gold")
        wanted = changed(wanted, path, value)
        kit.apply(wanted)
        kit.until(f"a new template after {path}", partial(rolled, kit, "gold", since=before))
        container = kit.get("deployments", "gold-pool")["spec"]["template"]["spec"]["containers"][0]
        text = " ".join([*container["args"], *(f"{e['name']}={e.get('value')}" for e in container["env"])])
        assert shown in text, path
    kit.until_ready("gold", seconds=120)


def test_drift_is_repaired_and_a_rollout_restart_is_kept(kit: Kit) -> None:
    kit.apply(tier("gold"))
    kit.until_ready("gold")
    patch = '{"spec":{"template":{"spec":{"enableServiceLinks":true}}}}'
    kit.kubectl("patch", "deployment", "gold-pool", "-p", patch)

    def repaired() -> bool:
        return kit.get("deployments", "gold-pool")["spec"]["template"]["spec"]["enableServiceLinks"] is False

    kit.until("the template to be put back", repaired)
    kit.kubectl("delete", "service", "gold-pool")
    kit.until("the Service to come back", lambda: kit.list("services"))

    kit.kubectl("rollout", "restart", "deployment/gold-pool")
    kit.kubectl("rollout", "status", "deployment/gold-pool", "--timeout=90s")
    template = kit.get("deployments", "gold-pool")["spec"]["template"]
    assert "kubectl.kubernetes.io/restartedAt" in template["metadata"]["annotations"]


def test_a_bad_tier_is_stalled_and_its_neighbour_does_not_notice(kit: Kit) -> None:
    foreign = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "taken-pool", "labels": {"mine": "yes"}},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "x", "image": "localhost/none"}]},
            },
        },
    }
    kit.apply(foreign, tier("good"), tier("taken"))
    secret = changed(tier("secretless"), "spec.model.tokenSecretRef", {"name": "no-such-secret", "key": "token"})
    kit.apply(secret)

    stalled = kit.until_condition("taken", "Stalled", "True")
    assert "taken-pool" in stalled["message"]
    assert kit.get("deployments", "taken-pool")["metadata"]["labels"] == {"mine": "yes"}

    stalled = kit.until_condition("secretless", "Stalled", "True")
    assert "no-such-secret" in stalled["message"]

    kit.until_ready("good")
    assert kit.condition("good", "Stalled")["status"] == "False"


def test_a_tier_that_was_stalled_recovers_once_its_cause_is_gone(kit: Kit) -> None:
    kit.apply(changed(tier("gold"), "spec.model.tokenSecretRef", {"name": "late-secret", "key": "token"}))
    kit.until_condition("gold", "Stalled", "True")
    kit.kubectl("create", "secret", "generic", "late-secret", "--from-literal=token=x")
    kit.until_ready("gold")
    assert kit.condition("gold", "Stalled")["status"] == "False"
