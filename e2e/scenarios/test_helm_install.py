"""A release's whole life on a real cluster, by Helm 4 and Helm 3: installed, upgraded, rolled back, removed.

Tiers and pools serve through all of it, because neither belongs to the release.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from e2e.artifacts import cached
from e2e.audit import answered, log_time
from e2e.cluster import Cluster, ClusterError
from e2e.platform import (
    CHART,
    OPERATOR_NAMESPACE,
    RELEASE,
    ROOT,
    install_operator,
    merged,
    run_helm,
    uninstall_operator,
    wait_for_rollout,
)
from e2e.scenarios.kit import Kit, Object, changed, tier

pytestmark = [pytest.mark.e2e, pytest.mark.exchanged, pytest.mark.timeout(600)]

#: The chart that is upgraded from: the last commit whose CRD has other columns, so that an upgrade of the CRD shows.
PREVIOUS = "99a71c0b2bb38a0170126cf7606e533e32a5a49a"

#: Where the Prometheus Operator's CRDs come from: its own module, by its checksum.
MONITORING = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
MONITORING_SUM = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
MONITORING_KINDS = ("podmonitors", "prometheusrules", "servicemonitors")

AS_YAML = ("--dry-run=client", "-o", "yaml")
CRD = "crd/servicetiers.tierkeeper.dev"
DEPLOYMENT = ("-n", OPERATOR_NAMESPACE, "deployment", RELEASE)
EXTRAS = "podmonitors,servicemonitors,networkpolicies,poddisruptionbudgets"
SELECTOR = f"app.kubernetes.io/instance={RELEASE},helm.sh/chart"
MINE = ("-l", SELECTOR)


def everything(namespace: str) -> dict[str, Any]:
    """Values that turn on all that is off by default, for tiers in one namespace."""
    return {
        "commonLabels": {"team": "serving"},
        "monitoring": {
            "labels": {"release": "stack"},
            "operator": {"enabled": True},
            "pools": {"enabled": True},
        },
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True},
        "networkPolicy": {
            "operator": {"enabled": True},
            "pools": {
                "enabled": True,
                "namespaces": [namespace],
                # The requests of this test come from the host, which is in no namespace.
                "fromPeers": [{"ipBlock": {"cidr": "0.0.0.0/0"}}],
            },
        },
        "podDisruptionBudget": {"enabled": True},
        "priorityClasses": {"create": True},
    }


@pytest.fixture(scope="module")
def previous_chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart before this one, from the history; the present one, where a checkout has no history."""
    folder = tmp_path_factory.mktemp("previous")
    archive = ["git", "-C", str(ROOT), "archive", "--output", str(folder / "chart.tar"), PREVIOUS, "charts/tierkeeper"]
    done = subprocess.run(archive, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"upgrading from the present chart with fewer values, because {PREVIOUS} cannot be had: {done.stderr}")
        return CHART
    subprocess.run(["tar", "-xf", "chart.tar"], cwd=folder, check=True)
    return folder / "charts/tierkeeper"


@pytest.fixture(scope="module")
def monitoring_api(cluster: Cluster) -> Iterator[None]:
    """The Prometheus Operator's kinds without the Prometheus Operator: the API server checks what we send."""

    def build(folder: Path) -> None:
        command = ["go", "mod", "download", "-json", MONITORING]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        module = json.loads(done.stdout)
        assert module["Sum"] == MONITORING_SUM
        for kind in MONITORING_KINDS:
            shutil.copy(
                Path(module["Dir"], f"example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml"), folder
            )

    folder = cached("monitoring-crds", [MONITORING, MONITORING_SUM, *MONITORING_KINDS], build, expected_seconds=20)
    names = [f"crd/{kind}.monitoring.coreos.com" for kind in MONITORING_KINDS]
    cluster.kubectl("apply", "--server-side", "--field-manager=e2e", "-f", str(folder))
    cluster.kubectl("wait", "--for=condition=Established", *names, "--timeout=30s")
    yield
    cluster.kubectl("delete", *names)


@pytest.fixture(scope="module")
def release(platform: Cluster) -> Iterator[dict[str, Any]]:
    """The values of the session's release, which is put back at the end whatever became of it."""
    values: dict[str, Any] = json.loads(run_helm(platform, "get", "values", RELEASE, "--output", "json"))
    yield values
    uninstall_operator(platform)
    platform.kubectl("delete", "priorityclasses", *MINE)
    install_operator(platform, values=values)


class Asking:
    """What a client sees meanwhile: the status codes of a small request twice a second, 0 where none came."""

    def __init__(self, url: str, model: str) -> None:
        self.answers: list[int] = []
        self._url, self._body = f"{url}/v1/completions", {"model": model, "prompt": "hello", "max_tokens": 2}
        self._stop = threading.Event()

    def has_answered(self, times: int) -> bool:
        return len(self.answers) >= times

    def ask(self) -> None:
        while not self._stop.wait(0.5):
            try:
                self.answers.append(httpx.post(self._url, json=self._body, timeout=10, trust_env=False).status_code)
            except httpx.HTTPError:
                self.answers.append(0)

    @contextmanager
    def all_along(self) -> Iterator[None]:
        thread = threading.Thread(target=self.ask, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()


def put(kit: Kit, verb: str, chart: Path, values: dict[str, Any], *, helm: int) -> None:
    """`helm install` or `helm upgrade`. The CRD was applied by hand before, so it is taken over as the README says."""
    take_over = ("--take-ownership", "--force-conflicts") if helm == 4 else ("--take-ownership",)
    text = json.dumps(values)
    run_helm(kit.cluster, verb, RELEASE, str(chart), *take_over, "--values", "-", helm=helm, stdin=text)


def for_one_namespace(kit: Kit) -> dict[str, Any]:
    """As a namespace's administrator installs it: the CRD is there already, and nothing else is cluster-wide."""
    return {"watch": {"namespaces": [kit.namespace]}, "crds": {"install": False}}


def columns(crd: Object) -> list[str]:
    return [column["name"] for column in crd["spec"]["versions"][0]["additionalPrinterColumns"]]


def served_columns(cluster: Cluster) -> list[str]:
    return columns(json.loads(cluster.kubectl("get", CRD, "-o", "json")))


def limited(kit: Kit, name: str, *, to: str) -> bool:
    return bool(kit.get("configmaps", f"{name}-pool-limit")["data"]["max-num-seqs"] == to)


def names_of(cluster: Cluster, kinds: str, *where: str) -> set[str]:
    """The release's objects of these kinds, as `kind/name`; what the cluster makes by itself has no such label."""
    found = cluster.kubectl("get", kinds, *(where or ("-A",)), *MINE, "-o", "json")
    return {f"{item['kind']}/{item['metadata']['name']}" for item in json.loads(found)["items"]}


def may(kit: Kit, user: str, verb: str, subresource: str = "") -> bool:
    """Whether the API server lets a user do so to tiers in the test's namespace; kubectl says no by its exit code."""
    question = ("auth", "can-i", verb, "servicetiers.tierkeeper.dev", "--subresource", subresource, "--as", user)
    try:
        return kit.kubectl(*question).strip() == "yes"
    except ClusterError:
        return False


def people_have_what_their_roles_say(kit: Kit) -> None:
    for role, user in {"view": "viewer", "edit": "editor"}.items():
        binding = kit.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={user}", *AS_YAML)
        kit.kubectl("apply", "-f", "-", input=binding)
    # The controller manager adds the chart's roles to the cluster's own a moment after it sees them.
    kit.until("an editor to get the right to tiers", lambda: may(kit, "editor", "patch"))
    assert may(kit, "viewer", "list")
    assert not may(kit, "viewer", "patch")
    assert not may(kit, "editor", "patch", "status")


def every_object_is_known_to_the_api_server_field_by_field(kit: Kit, values: dict[str, Any], *, helm: int) -> None:
    """Strictly: a field that the API server does not know is dropped in silence otherwise."""
    text = run_helm(kit.cluster, "template", RELEASE, str(CHART), "--values", "-", helm=helm, stdin=json.dumps(values))
    strictly = ("--server-side", "--force-conflicts", "--field-manager=e2e", "--validate=strict", "--dry-run=server")
    kit.cluster.kubectl("apply", *strictly, "-f", "-", input=text)


def remove(kit: Kit, *, helm: int) -> None:
    """`helm uninstall`, and the operator's process has ended: no second one may begin beside it."""
    uninstall_operator(kit.cluster, helm=helm)
    operators = Kit(kit.cluster, OPERATOR_NAMESPACE)
    kit.until("the operator to be gone", lambda: not operators.list("pods", SELECTOR))


def install_and_upgrade(kit: Kit, values: dict[str, Any], previous_chart: Path, *, helm: int) -> None:
    cluster = kit.cluster
    put(kit, "install", previous_chart, values, helm=helm)
    wait_for_rollout(cluster, OPERATOR_NAMESPACE, RELEASE)
    before = served_columns(cluster)
    if previous_chart != CHART:
        # With the old defaults instead of the new, what the new chart needs is missing: named before anything is sent.
        with pytest.raises(ClusterError, match="missing propert"):
            run_helm(cluster, "upgrade", RELEASE, str(CHART), "--reuse-values", "--dry-run=client", helm=helm)

    # Whoever scaled the operator by hand keeps the say in it, and Helm 4 finds no conflict.
    cluster.kubectl("scale", *DEPLOYMENT, "--replicas=0")
    wanted = merged(values, everything(kit.namespace))
    put(kit, "upgrade", CHART, wanted, helm=helm)
    assert json.loads(cluster.kubectl("get", *DEPLOYMENT, "-o", "json"))["spec"]["replicas"] == 0
    print(f"columns of kubectl get: {before} -> {served_columns(cluster)}")
    assert served_columns(cluster) == columns(yaml.safe_load((ROOT / "crds/servicetiers.yaml").read_text()))
    assert names_of(cluster, EXTRAS) == {
        f"PodMonitor/{RELEASE}-pools",
        f"ServiceMonitor/{RELEASE}",
        f"NetworkPolicy/{RELEASE}",
        f"NetworkPolicy/{RELEASE}-pools",
        f"PodDisruptionBudget/{RELEASE}",
    }
    every_object_is_known_to_the_api_server_field_by_field(kit, wanted, helm=helm)
    people_have_what_their_roles_say(kit)
    cluster.kubectl("scale", *DEPLOYMENT, "--replicas=1")
    wait_for_rollout(cluster, OPERATOR_NAMESPACE, RELEASE)


def roll_back_and_uninstall(kit: Kit, *, helm: int) -> None:
    cluster = kit.cluster
    run_helm(cluster, "rollback", RELEASE, "1", helm=helm)
    first, now = (run_helm(cluster, "get", "manifest", RELEASE, *which) for which in (("--revision", "1"), ()))
    assert now == first
    assert names_of(cluster, EXTRAS) == set()

    remove(kit, helm=helm)
    assert names_of(cluster, "deployments,serviceaccounts", "-n", OPERATOR_NAMESPACE) == set()
    assert cluster.kubectl("get", CRD, "-o", "name")
    # Classes stay, because pods name them; monitors and policies do not.
    assert len(names_of(cluster, "priorityclasses")) == 4


def test_tiers_and_pools_serve_through_the_whole_life_of_a_release_by_helm_4_and_by_helm_3(
    kit: Kit, release: dict[str, Any], previous_chart: Path, monitoring_api: None
) -> None:
    kit.apply(tier("gold"))
    kit.until_ready("gold")
    pods = {pod["metadata"]["uid"] for pod in kit.pods("gold")}
    client = Asking(kit.url("gold"), "gold")
    with client.all_along():
        for helm, cap in ((4, "24"), (3, "32")):
            remove(kit, helm=helm)
            install_and_upgrade(kit, release, previous_chart, helm=helm)
            kit.apply(changed(tier("gold"), "spec.engine.maxNumSeqs", int(cap)))
            kit.until("the cap", partial(limited, kit, "gold", to=cap))
            roll_back_and_uninstall(kit, helm=helm)
            asked = len(client.answers)
            kit.until("two answers without an operator", partial(client.has_answered, asked + 2))
    print(f"{len(client.answers)} requests, answered {sorted(set(client.answers))}")
    assert set(client.answers) == {200}
    assert {pod["metadata"]["uid"] for pod in kit.pods("gold")} == pods
    assert kit.condition("gold", "Ready")["status"] == "True"


def test_a_namespaced_release_asks_for_nothing_outside_its_namespaces(kit: Kit, release: dict[str, Any]) -> None:
    cluster = kit.cluster
    remove(kit, helm=4)
    since = log_time(time.time())
    began = time.monotonic()
    put(kit, "install", CHART, merged(release, for_one_namespace(kit)), helm=4)
    kit.apply(tier("gold"))
    kit.until_ready("gold")
    print(f"from `helm install` to the first tier Ready: {time.monotonic() - began:.1f} s")
    wait_for_rollout(cluster, OPERATOR_NAMESPACE, RELEASE)
    assert names_of(cluster, "clusterroles,clusterrolebindings") == set()

    lines = cluster.audit_log.read_text(encoding="utf-8").splitlines()
    mine = [
        event
        for event in answered(lines, since=since)
        if event.get("objectRef", {}).get("apiGroup") == "tierkeeper.dev"
    ]
    assert mine
    assert {event["objectRef"].get("namespace") for event in mine} == {kit.namespace}
    assert [event for event in mine if event.get("responseStatus", {}).get("code") == 403] == []


def test_the_namespace_that_holds_operator_and_tiers_is_gone_within_two_minutes(
    kit: Kit, release: dict[str, Any]
) -> None:
    """Nothing in it waits for an operator that goes at the same moment."""
    cluster = kit.cluster
    remove(kit, helm=4)
    values = merged(release, for_one_namespace(kit))
    where = ("--namespace", kit.namespace)
    run_helm(cluster, "install", RELEASE, str(CHART), *where, "--values", "-", stdin=json.dumps(values))
    wait_for_rollout(cluster, kit.namespace, RELEASE)
    for number in range(5):  # paused, so that they have a status but no pods that would have to drain
        kit.apply(changed(tier(f"t{number}"), "spec.scaling.mode", "Paused"))
    kit.until("the operator to look at all", lambda: all(kit.condition(f"t{n}", "Ready")["status"] for n in range(5)))
    kit.delete_namespace()  # raises after 120 s
    assert cluster.kubectl("get", "namespace", kit.namespace, "--ignore-not-found") == ""
