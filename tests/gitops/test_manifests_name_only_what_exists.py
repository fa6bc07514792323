"""The Argo CD and Flux manifests: fields of those APIs, paths of this repository, values of the chart, placeholders.

The fields were read from Argo CD 3 (argoproj.io/v1alpha1) and Flux 2 (source v1, kustomize v1, helm v2); only those in
use are listed, so that a new one is looked up before it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import fast_yaml

ROOT = Path(__file__).parents[2]
GITOPS = ROOT / "examples/gitops"
FILES = sorted(GITOPS.rglob("*.yaml"))
PATCHES = {"argocd-cm-patch.yaml", "tiers-health-patch.yaml"}
CHART_VALUES = fast_yaml.load((ROOT / "charts/tierkeeper/values.yaml").read_text(encoding="utf-8"))

DURATION = re.compile(r"(\d+[smh])+")
_SYNC = {
    "automated": {"prune": bool, "selfHeal": bool},
    "syncOptions": [str],
    "retry": {"limit": int, "backoff": {"duration": DURATION, "factor": int, "maxDuration": DURATION}},
}
_HEALTH = {"apiVersion": str, "kind": str, "current": str, "inProgress": str, "failed": str}
_SOURCE = {"kind": str, "name": str}
SCHEMAS: dict[tuple[str, str], dict[str, Any]] = {
    ("argoproj.io/v1alpha1", "Application"): {
        "project": str,
        "source": {
            "repoURL": str,
            "targetRevision": str,
            "path": str,
            "helm": {"releaseName": str, "valuesObject": dict},
        },
        "destination": {"server": str, "namespace": str},
        "syncPolicy": _SYNC,
    },
    ("source.toolkit.fluxcd.io/v1", "GitRepository"): {"url": str, "ref": {"branch": str}, "interval": DURATION},
    ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"): {
        "dependsOn": [{"name": str}],
        "sourceRef": _SOURCE,
        "path": str,
        "interval": DURATION,
        "retryInterval": DURATION,
        "prune": bool,
        "wait": bool,
        "timeout": DURATION,
        "healthCheckExprs": [_HEALTH],
    },
    ("helm.toolkit.fluxcd.io/v2", "HelmRelease"): {
        "releaseName": str,
        "targetNamespace": str,
        "interval": DURATION,
        "chart": {"spec": {"chart": str, "reconcileStrategy": str, "sourceRef": _SOURCE}},
        "install": {"createNamespace": bool, "remediation": {"retries": int}},
        "upgrade": {"crds": str, "remediation": {"retries": int}},
        "values": dict,
    },
}


def documents(path: Path) -> list[dict[str, Any]]:
    return list(fast_yaml.load_all(path.read_text(encoding="utf-8")))


OBJECTS = [obj for path in FILES if path.name not in PATCHES for obj in documents(path)]


def of(kind: str) -> dict[str, dict[str, Any]]:
    """The objects of a kind by name; two of one name fail."""
    found = [obj for obj in OBJECTS if obj["kind"] == kind]
    names = {obj["metadata"]["name"]: obj for obj in found}
    assert len(names) == len(found)
    return names


def strange(value: Any, schema: Any, path: str = "spec") -> Iterator[str]:
    """Where a value is not what the API has there."""
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            yield f"{path} is no object"
            return
        for key, item in value.items():
            if key in schema:
                yield from strange(item, schema[key], f"{path}.{key}")
            else:
                yield f"{path}.{key} is no known field"
    elif isinstance(schema, list):
        for number, item in enumerate(value):
            yield from strange(item, schema[0], f"{path}[{number}]")
    elif isinstance(schema, re.Pattern):
        if not schema.fullmatch(str(value)):
            yield f"{path} is no duration: {value}"
    elif type(value) is not schema:
        yield f"{path} is {type(value).__name__}, not {schema.__name__}"


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: f"{obj['kind']}/{obj['metadata']['name']}")
def test_every_field_is_one_of_its_api(obj: dict[str, Any]) -> None:
    assert list(strange(obj["spec"], SCHEMAS[obj["apiVersion"], obj["kind"]])) == []


def test_the_patches_hold_fields_of_what_they_patch() -> None:
    (health,) = documents(GITOPS / "flux/tiers-health-patch.yaml")
    assert set(health) == {"spec"}
    assert list(strange(health["spec"], SCHEMAS["kustomize.toolkit.fluxcd.io/v1", "Kustomization"])) == []
    (settings,) = documents(GITOPS / "argocd/argocd-cm-patch.yaml")
    assert set(settings) == {"data"}
    assert all(isinstance(value, str) for value in settings["data"].values())


def test_every_placeholder_is_in_the_readme_and_every_one_there_is_in_use() -> None:
    readme = (GITOPS / "README.md").read_text(encoding="utf-8")
    table = set(re.findall(r"^\| `([^`]*example[^`]*)` \|", readme, re.MULTILINE))
    used = {
        word
        for path in FILES
        for word in re.findall(
            r"[^\s'\"]*(?:example\.com|<[A-Z-]+>|YOUR|CHANGE)[^\s'\"]*", path.read_text(encoding="utf-8")
        )
    }
    assert used == table


def test_no_placeholder_is_left_once_those_are_replaced() -> None:
    readme = (GITOPS / "README.md").read_text(encoding="utf-8")
    replaced = re.findall(r"s#([^#]+)#[^#]+#", readme)
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        for placeholder in replaced:
            text = text.replace(placeholder, "there")
        assert "example.com" not in text, path.name


def test_argocd_brings_the_operator_before_the_tiers_and_waits_for_neither_crd_nor_drift() -> None:
    apps = of("Application")
    waves = {
        name: app["metadata"].get("annotations", {}).get("argocd.argoproj.io/sync-wave") for name, app in apps.items()
    }
    assert waves == {"tierkeeper": "0", "tiers": "1", "tierkeeper-root": None}
    options = {name: set(app["spec"]["syncPolicy"].get("syncOptions", ())) for name, app in apps.items()}
    assert {"SkipDryRunOnMissingResource=true", "ServerSideApply=true"} <= options["tiers"]
    assert {"CreateNamespace=true", "ServerSideApply=true"} <= options["tierkeeper"]
    assert apps["tiers"]["spec"]["syncPolicy"]["automated"]["prune"] is False


def test_flux_brings_the_operator_before_the_tiers_and_waits_for_both() -> None:
    kustomizations = of("Kustomization")
    operator, tiers = kustomizations["tierkeeper-operator"]["spec"], kustomizations["tierkeeper-tiers"]["spec"]
    assert tiers["dependsOn"] == [{"name": "tierkeeper-operator"}]
    assert operator["wait"] is True
    assert tiers["wait"] is True
    assert of("HelmRelease")["tierkeeper"]["spec"]["upgrade"]["crds"] == "CreateReplace"
    sources = {("GitRepository", name) for name in of("GitRepository")}
    chart = of("HelmRelease")["tierkeeper"]["spec"]["chart"]["spec"]
    named = [operator["sourceRef"], tiers["sourceRef"], chart["sourceRef"]]
    assert {(one["kind"], one["name"]) for one in named} <= sources


def test_every_path_is_one_of_this_repository() -> None:
    paths = [app["spec"]["source"]["path"] for app in of("Application").values()]
    paths += [one["spec"]["path"] for one in of("Kustomization").values()]
    paths.append(of("HelmRelease")["tierkeeper"]["spec"]["chart"]["spec"]["chart"])
    assert [path for path in paths if not (ROOT / path).is_dir()] == []


def test_every_value_is_one_of_the_chart() -> None:
    argocd = of("Application")["tierkeeper"]["spec"]["source"]["helm"]["valuesObject"]
    flux = of("HelmRelease")["tierkeeper"]["spec"]["values"]
    assert argocd == flux
    assert list(unknown(argocd, CHART_VALUES)) == []


def unknown(given: dict[str, Any], known: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, value in given.items():
        if key not in known:
            yield path + key
        elif isinstance(value, dict):
            yield from unknown(value, known[key], f"{path}{key}.")
