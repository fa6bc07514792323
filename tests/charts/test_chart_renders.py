"""What `helm install` would send: with the defaults, in namespaced mode, and with every value that changes a shape."""

import difflib
import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import fast_yaml
from tests.charts.cases import CASES
from tests.charts.conftest import BRIEF, template

pytestmark = [pytest.mark.built, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
CRD = ("CustomResourceDefinition", "/servicetiers.tierkeeper.dev")
DEPLOYMENT = ("Deployment", "tierkeeper-system/tierkeeper")

Objects = Mapping[tuple[str, str], dict[str, Any]]


def lines(document: dict[str, Any] | None) -> list[str]:
    return yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=True).splitlines() if document else []


def changes(found: Objects, usual: Objects) -> str:
    """What is not as by default, object by object: new ones whole, others as the lines that differ with one beside."""
    told: list[str] = []
    for key in sorted((found.keys() | usual.keys()) - {CRD}):
        before, after = lines(usual.get(key)), lines(found.get(key))
        name = " ".join(key)
        if not after:
            told.append(f"gone: {name}")
        elif not before:
            told += [f"new: {name}", *(f"  {line}" for line in after)]
        elif before != after:
            differing = list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:]
            told += [f"changed: {name}", *("  ..." if line.startswith("@@") else f"  {line}" for line in differing)]
    return "\n".join(told) + "\n"


@pytest.mark.parametrize("case", CASES)
def test_chart_renders_as_reviewed(case: str, objects: Any) -> None:
    """Golden files; GOLDEN_UPDATE=1 rewrites them. The CRD has its own test and is left out."""
    text = changes(objects(CASES[case]), objects() if case != "defaults" else {})
    golden = GOLDEN / f"{case}.txt"
    if os.environ.get("GOLDEN_UPDATE"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


def test_every_golden_file_has_its_case() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(CASES)


def test_crd_reaches_the_cluster_unchanged_but_for_the_keep_annotation(objects: Any) -> None:
    generated = fast_yaml.load((ROOT / "crds/servicetiers.yaml").read_text())
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


@pytest.mark.parametrize("keep", [True, False])
def test_common_labels_are_on_every_object(keep: bool, objects: Any) -> None:
    """The chart's own labels win: a selector that matches nothing any more would be worse than a label not set."""
    everything = ("monitors", "network-policies", "disruption-budget", "priority-classes")
    values = {name: value for case in everything for name, value in CASES[case].items()}
    labels = {"cost-center": "llm", "app.kubernetes.io/name": "other"}
    found = objects(values | {"commonLabels": labels, "crds": {"install": True, "keep": keep}})
    assert len({kind for kind, _ in found}) == 11
    unlabelled = {key for key, document in found.items() if document["metadata"]["labels"]["cost-center"] != "llm"}
    assert not unlabelled
    pod = found[DEPLOYMENT]["spec"]["template"]["metadata"]["labels"]
    assert (pod["cost-center"], pod["app.kubernetes.io/name"]) == ("llm", "tierkeeper")


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


ALL = {
    name: value for case in ("monitors", "network-policies", "disruption-budget") for name, value in CASES[case].items()
}


@pytest.mark.parametrize("name", ["2026", "1e3", "0x1f"])
def test_names_that_look_like_numbers_stay_names(name: str, helm: Path) -> None:
    """Of the release, its namespace, an account or a class: bare in YAML they are numbers, which no name may be."""
    names = {"fullnameOverride": name, "serviceAccount": {"name": name}, "priorityClassName": name}
    values = json.dumps(ALL | names | {"leaderElection": {"enabled": True}, "crds": {"install": False}})
    done = template(helm, ROOT / "charts/tierkeeper", values, release=name, namespace=name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f'"{name}"') > 30
    assert re.findall(rf"^.*[:-] +{name}$", done.stdout, re.MULTILINE) == []
    assert re.findall(r"^.*[:-] +(?:1000|31|1e\+03)$", done.stdout, re.MULTILINE) == []


@pytest.mark.parametrize("release", ["r" * 53, "a.b", "tierkeeper-" + "x" * 42])
def test_a_service_has_a_name_that_a_service_can_have(release: str, helm: Path) -> None:
    """A label of 63 characters without a dot; other objects, and releases, may have longer ones with dots."""
    done = template(helm, ROOT / "charts/tierkeeper", json.dumps(ALL), release=release)
    names = [one["metadata"]["name"] for one in fast_yaml.load_all(done.stdout) if one and one["kind"] == "Service"]
    assert len(names) == 1
    assert re.fullmatch("[a-z]([-a-z0-9]{0,61}[a-z0-9])?", names[0])


def test_lint_finds_nothing(helm: Path) -> None:
    done = subprocess.run(
        [helm, "lint", "--strict", "--kube-version", "1.36.0", ROOT / "charts/tierkeeper"],
        capture_output=True,
        text=True,
        env=BRIEF,
    )
    assert done.returncode == 0, done.stdout + done.stderr
