"""The two Helm binaries. Built where the cache lacks them (minutes): a test that asks for one is end-to-end."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import tools

CHART = Path(__file__).parents[2] / "charts/tierkeeper"
NAMESPACE = "tierkeeper-system"

Render = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(params=["helm4", "helm3"])
def helm(request: pytest.FixtureRequest) -> Path:
    """Helm 4, then Helm 3: what holds for one must hold for both."""
    return {"helm4": tools.helm4, "helm3": tools.helm3}[request.param]()


@pytest.fixture
def render(helm: Path, tmp_path: Path) -> Render:
    """`helm template` of the chart with some values, against no cluster."""

    def run(values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(dict(values or {})))
        options = ["--namespace", NAMESPACE, "--kube-version", "1.36.0", "--values", file]
        return subprocess.run([helm, "template", "tierkeeper", CHART, *options], capture_output=True, text=True)

    return run


@pytest.fixture
def objects(render: Render) -> Callable[..., dict[tuple[str, str], dict[str, Any]]]:
    """The rendered objects by kind and "namespace/name" (cluster-wide: "/name"); an object printed twice fails."""

    def run(values: Mapping[str, Any] | None = None) -> dict[tuple[str, str], dict[str, Any]]:
        done = render(values)
        assert done.returncode == 0, done.stderr
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for document in filter(None, yaml.safe_load_all(done.stdout)):
            metadata = document["metadata"]
            key = document["kind"], f"{metadata.get('namespace', '')}/{metadata['name']}"
            assert key not in found, f"{key} is rendered twice"
            found[key] = document
        return found

    return run
