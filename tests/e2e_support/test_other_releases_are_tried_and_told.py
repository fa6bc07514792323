"""``make compat``: what it tries, how it tells it, and how another Kubernetes release is built."""

import os
import re
from pathlib import Path

import pytest

from e2e.cluster import Cluster, ClusterError, binaries, releases
from e2e.cluster.cluster import Status
from e2e.cluster.hyperkube import make_gomod
from e2e.compat import __main__ as compat
from e2e.compat.targets import CheckError, Target, surroundings, targets

PAGE = Path(__file__).parents[2] / "docs/compatibility.md"
UPSTREAM = """\
module k8s.io/kubernetes

go 1.24.0

godebug default=go1.24

require (
	github.com/spf13/cobra v1.9.1
	go.etcd.io/etcd/client/v3 v3.6.4
	k8s.io/api v0.0.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
)
"""


def target(*, fails: str = "", cluster: bool = False) -> Target:
    def refuse() -> str:
        raise CheckError("see build/compat/x.log")

    steps = {name: refuse if name == fails else lambda: "3 passed" for name in ("build", "CRD", "lifecycle")}
    return Target("Kubernetes", "1.34", "v1.34.4", steps, cluster=cluster)


def test_the_staging_modules_of_a_release_are_its_published_ones() -> None:
    text = make_gomod.render("v1.34.4", None, UPSTREAM)
    assert "k8s.io/kubernetes v1.34.4" in text
    assert "k8s.io/api v0.34.4" in text
    assert "k8s.io/api => k8s.io/api v0.34.4" in text
    assert "github.com/spf13/cobra v1.9.1" in text
    assert "godebug default=go1.24" in text


def test_another_release_is_built_without_etcd_and_dns_and_the_pinned_one_with_them() -> None:
    assert "coredns" not in make_gomod.render("v1.34.4", None, UPSTREAM)
    assert "etcd/server" not in make_gomod.render("v1.34.4", None, UPSTREAM)
    whole = make_gomod.render("v1.36.4", "v1.14.2", UPSTREAM)
    assert "github.com/coredns/coredns v1.14.2" in whole
    assert "go.etcd.io/etcd/server/v3 v3.6.4" in whole


def test_only_the_components_of_kubernetes_are_of_the_chosen_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(releases.VARIABLE, "v1.34.4")
    monkeypatch.setattr(releases, "kubernetes", lambda release, _: Path(f"/{release}/hyperkube"))
    monkeypatch.setattr(binaries, "go_binary", lambda name, *_, **__: Path("/pinned") / name)
    assert {str(binaries.component(name)) for name in binaries.KUBERNETES} == {
        f"/v1.34.4/{name}" for name in binaries.KUBERNETES
    }
    assert binaries.component("etcd") == Path("/pinned/etcd")
    assert binaries.component("coredns") == Path("/pinned/coredns")


def test_the_table_has_a_row_a_release_and_says_where_to_read_of_a_failure() -> None:
    outcomes = [compat.tried(target()), compat.tried(target(fails="CRD"))]
    lines = compat.table(outcomes).splitlines()
    assert re.split(r"\s{2,}", lines[0]) == ["Kubernetes", "build", "CRD", "lifecycle", "result", "seconds"]
    assert re.split(r"\s{2,}", lines[1])[:5] == ["v1.34.4", "3 passed", "3 passed", "3 passed", "passed"]
    assert re.split(r"\s{2,}", lines[2])[:5] == [
        "v1.34.4",
        "3 passed",
        "FAILED",
        "-",
        "FAILED: see build/compat/x.log",
    ]


def test_a_target_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"no target 1\.99; there are: 1\.34, 1\.35, 1\.36, 1\.37, prometheus-2"):
        compat.chosen("1.34, 1.99")
    assert [each.name for each in compat.chosen("1.35,vllm-0.33")] == ["1.35", "vllm-0.33"]
    assert [each.name for each in compat.chosen("")] == [each.name for each in targets()]


def test_a_cluster_that_is_up_is_neither_used_nor_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "status", lambda _: Status("running", ()))
    monkeypatch.setattr(Cluster, "down", lambda _: pytest.fail("this cluster is somebody else's"))
    with pytest.raises(ClusterError, match="`make down` first"), surroundings(target(cluster=True)):
        pytest.fail("nothing may run")


def test_the_cluster_is_ended_and_the_release_forgotten_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []
    monkeypatch.setenv(releases.VARIABLE, "")
    monkeypatch.setattr(Cluster, "status", lambda _: Status("absent", ()))
    monkeypatch.setattr(Cluster, "down", lambda _: ended.append(os.environ[releases.VARIABLE]))
    chosen = target(fails="build", cluster=True)
    with pytest.raises(CheckError), surroundings(chosen):
        chosen.steps["build"]()
    assert ended == ["v1.34.4"]
    assert os.environ[releases.VARIABLE] == ""


@pytest.mark.parametrize("each", targets(), ids=lambda each: each.name)
def test_the_page_says_of_each_release_what_was_seen(each: Target) -> None:
    assert f"| {each.release.removeprefix('v')} |" in PAGE.read_text()
