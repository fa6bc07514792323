"""A steady pool is never written to; an edited, older or missing child is; another's object is never touched."""

import copy
from fractions import Fraction

import pytest

from tierkeeper.render.drift import DriftReason, content_hash, is_foreign, needs_apply, quantity
from tierkeeper.render.pool import render_pool


@pytest.fixture
def rendered(full, levers):
    return render_pool(full, levers=levers, plugin_source="# the plugin\n")[-1]


@pytest.fixture
def live(rendered):
    """The Deployment as an API server shows it: defaults filled in, empty values left out, status and bookkeeping."""
    live = copy.deepcopy(rendered)
    live["metadata"] |= {"uid": "d", "resourceVersion": "7", "generation": 2, "managedFields": [{"manager": "x"}]}
    live["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "1"
    live["spec"]["replicas"] = 6
    template = live["spec"]["template"]
    template["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = "2026-11-29T00:00:00Z"
    template["spec"] |= {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}
    container = template["spec"]["containers"][0]
    container["terminationMessagePath"] = "/dev/termination-log"
    container["startupProbe"]["successThreshold"] = 1
    container["startupProbe"]["httpGet"]["scheme"] = "HTTP"
    for volume in template["spec"]["volumes"]:
        if "configMap" in volume:
            volume["configMap"]["defaultMode"] = 420
    live["status"] = {"readyReplicas": 6}
    return live


def container(deployment):
    return deployment["spec"]["template"]["spec"]["containers"][0]


def test_what_the_api_server_adds_is_no_drift(rendered, live):
    assert needs_apply(rendered, live) is None


def test_quantities_are_compared_by_meaning(rendered, live):
    container(live)["resources"]["limits"]["memory"] = "65536Mi"
    container(live)["resources"]["requests"]["cpu"] = "8000m"
    assert needs_apply(rendered, live) is None
    container(live)["resources"]["requests"]["cpu"] = "8001m"
    assert needs_apply(rendered, live).reason is DriftReason.EDITED


def test_an_empty_environment_value_that_the_api_server_leaves_out_is_no_drift(rendered, live):
    container(rendered)["env"].append({"name": "EMPTY", "value": ""})
    container(live)["env"].append({"name": "EMPTY"})
    assert needs_apply(rendered, live) is None


def test_containers_and_variables_that_others_inject_are_no_drift(rendered, live):
    live["spec"]["template"]["spec"]["containers"].insert(0, {"name": "proxy", "image": "proxy"})
    live["spec"]["template"]["spec"]["containers"][1]["env"].insert(0, {"name": "INJECTED", "value": "1"})
    assert needs_apply(rendered, live) is None


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (lambda d: container(d)["args"].append("--x"), "containers[0].args"),
        (lambda d: container(d)["env"][0].update(value="/root"), "env[0].value"),
        (lambda d: container(d)["env"].pop(0), "env[0]"),
        (lambda d: d["spec"]["strategy"]["rollingUpdate"].update(maxSurge=1, maxUnavailable=1), "maxUnavailable"),
        (lambda d: d["metadata"]["labels"].pop("tierkeeper.dev/tier"), "metadata.labels"),
        (lambda d: d["spec"]["template"]["spec"].pop("automountServiceAccountToken"), "automountServiceAccountToken"),
        (lambda d: d["spec"]["template"]["spec"]["tolerations"].pop(), "tolerations"),
        (lambda d: d["metadata"]["ownerReferences"].clear(), "ownerReferences"),
        (lambda d: container(d)["securityContext"].update(readOnlyRootFilesystem=False), "readOnlyRootFilesystem"),
    ],
)
def test_an_edit_of_a_field_of_ours_is_drift_and_the_message_names_it(rendered, live, edit, path):
    edit(live)
    drift = needs_apply(rendered, live)
    assert drift.reason is DriftReason.EDITED
    assert path in drift.message
    assert "Deployment gold-pool" in drift.message


def test_a_missing_child_is_drift(rendered):
    assert needs_apply(rendered, None).reason is DriftReason.MISSING


def test_a_child_of_another_state_of_the_tier_is_drift_even_if_it_only_had_more(rendered, live):
    live["metadata"]["annotations"]["tierkeeper.dev/hash"] = "0" * 16
    assert needs_apply(rendered, live).reason is DriftReason.CHANGED


def test_the_hash_depends_on_content_and_not_on_order():
    assert content_hash({"a": 1, "b": [1, 2]}) == content_hash({"b": [1, 2], "a": 1})
    assert content_hash({"b": [1, 2]}) != content_hash({"b": [2, 1]})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("0.5", Fraction(1, 2)), ("500m", Fraction(1, 2)), ("1Gi", 2**30), ("1024Mi", 2**30), ("1e3", 1000),
        ("1k", 1000), ("1.5Gi", 3 * 2**29), ("12E", 12 * 10**18), ("1.", 1), ("100n", Fraction(1, 10**7)),
        ("", None), ("Gi", None), ("1 Gi", None), ("1gi", None), ("one", None),
    ],
)  # fmt: skip
def test_quantities_are_numbers(text, value):
    assert quantity(text) == value


def owned_by(live, **owner):
    live["metadata"]["ownerReferences"] = [{"controller": True, "uid": "x", **owner}] if owner else []
    return live


def test_our_own_child_is_not_foreign(live, full):
    assert is_foreign(live, full.uid) is None


def test_an_object_that_nobody_owns_is_not_adopted(live, full):
    message = is_foreign(owned_by(live), full.uid)
    assert message.startswith("Deployment gold-pool exists and belongs to no ServiceTier")
    assert "delete it" in message


def test_an_object_of_another_controller_is_not_adopted(live, full):
    message = is_foreign(owned_by(live, kind="HelmRelease", name="chat"), full.uid)
    assert "controlled by HelmRelease chat" in message


def test_a_child_of_a_deleted_tier_of_the_same_name_is_waited_for(live, full):
    message = is_foreign(owned_by(live, kind="ServiceTier", name="gold"), full.uid)
    assert "wait until its children are garbage-collected" in message
