"""What `helm install` would send: with the defaults, in namespaced mode, and with every value set."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
CRD = ("CustomResourceDefinition", "/servicetiers.tierkeeper.dev")
FOREIGN = {"*", "secrets", "nodes", "namespaces", "customresourcedefinitions", "servicetiers/finalizers"}
DEPLOYMENT = ("Deployment", "tierkeeper-system/tierkeeper")

CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "namespaced": {"watch": {"namespaces": ["llm-a", "llm-b"]}, "crds": {"install": False}},
    "every-value": {
        "image": {"repository": "registry.example/tierkeeper", "tag": "1.2.3", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "fullnameOverride": "keeper",
        "crds": {"install": False},
        "prometheus": {"url": "https://metrics.example:9443/select/0", "scrapeIntervalSeconds": 5, "timeoutSeconds": 1},
        "tickSeconds": 2,
        "log": {"level": "debug", "format": "text"},
        "serviceAccount": {"create": False, "name": "existing"},
        "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}},
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "control-plane", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podLabels": {"team": "serving", "app.kubernetes.io/name": "other"},
        "podAnnotations": {"note": "text"},
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
    },
}


@pytest.mark.parametrize("case", CASES)
def test_chart_renders_as_reviewed(case: str, objects: Any) -> None:
    """Golden files; GOLDEN_UPDATE=1 rewrites them. The CRD has its own test and is left out."""
    found = {key: document for key, document in objects(CASES[case]).items() if key != CRD}
    text = yaml.safe_dump_all([found[key] for key in sorted(found)], sort_keys=True)
    golden = GOLDEN / f"{case}.yaml"
    if os.environ.get("GOLDEN_UPDATE"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


def test_crd_reaches_the_cluster_unchanged_but_for_the_keep_annotation(objects: Any) -> None:
    generated = yaml.safe_load((ROOT / "crds/servicetiers.yaml").read_text())
    rendered = objects()[CRD]
    annotations = rendered["metadata"].pop("annotations")
    assert annotations["helm.sh/resource-policy"] == "keep"
    assert {**generated["metadata"].get("annotations", {}), "helm.sh/resource-policy": "keep"} == annotations
    generated["metadata"].pop("annotations", None)
    assert rendered == generated


def test_crd_goes_with_the_release_where_keep_is_off(objects: Any) -> None:
    rendered = objects({"crds": {"keep": False}})[CRD]
    assert "helm.sh/resource-policy" not in rendered["metadata"].get("annotations", {})


def test_crd_is_left_to_others_where_install_is_off(objects: Any) -> None:
    assert CRD not in objects({"crds": {"install": False}})


def test_namespaced_release_without_crd_has_no_cluster_wide_object(objects: Any) -> None:
    found = objects(CASES["namespaced"])
    assert not [key for key in found if key[1].startswith("/")]
    assert {name for kind, name in found if kind == "RoleBinding"} == {"llm-a/tierkeeper", "llm-b/tierkeeper"}


def test_namespaced_rights_equal_the_cluster_wide_ones(objects: Any) -> None:
    everywhere = objects()["ClusterRole", "/tierkeeper"]["rules"]
    assert objects(CASES["namespaced"])["Role", "llm-a/tierkeeper"]["rules"] == everywhere


def test_operator_can_neither_read_secrets_nor_write_what_users_own(objects: Any) -> None:
    allowed = {
        (resource, verb)
        for rule in objects()["ClusterRole", "/tierkeeper"]["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert not {resource for resource, _ in allowed} & FOREIGN
    assert not {verb for _, verb in allowed} & {"*", "delete", "deletecollection", "update"}
    assert {verb for resource, verb in allowed if resource == "servicetiers"} == {"get", "list", "watch"}


def test_replicas_are_left_to_the_cluster(objects: Any) -> None:
    """Else an upgrade by Helm 4 conflicts with whoever ran `kubectl scale`."""
    assert "replicas" not in objects()[DEPLOYMENT]["spec"]


def test_selector_holds_nothing_that_changes_with_a_release_of_the_chart(objects: Any) -> None:
    """A Deployment's selector is immutable: a version in it would fail every upgrade."""
    selector = objects()[DEPLOYMENT]["spec"]["selector"]["matchLabels"]
    assert selector == {"app.kubernetes.io/name": "tierkeeper", "app.kubernetes.io/instance": "tierkeeper"}


def test_pod_labels_cannot_break_the_selector(objects: Any) -> None:
    deployment = objects({"podLabels": {"app.kubernetes.io/name": "other", "team": "serving"}})[DEPLOYMENT]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels.items() >= deployment["spec"]["selector"]["matchLabels"].items()
    assert labels["team"] == "serving"
