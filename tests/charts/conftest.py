"""The two Helm binaries. Built where the cache lacks them (minutes): a test that asks for one is end-to-end."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from e2e import tools
from tests import fast_yaml
from tests.fakes.kube import copied

CHART = Path(__file__).parents[2] / "charts/tierkeeper"
NAMESPACE = "tierkeeper-system"
BRIEF = os.environ | {"GOGC": "off", "GOMAXPROCS": "1"}
"""For a Go program that is gone in a moment: to collect garbage on every core is a third of its work."""

Render = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(params=["helm4", "helm3"])
def helm(request: pytest.FixtureRequest) -> Path:
    """Helm 4, then Helm 3: what holds for one must hold for both."""
    return {"helm4": tools.helm4, "helm3": tools.helm3}[request.param]()


def template(
    helm: Path, chart: Path, values: str, *, release: str = "tierkeeper", namespace: str = NAMESPACE
) -> subprocess.CompletedProcess[str]:
    """`helm template` with these values, against no cluster."""
    options = ["--namespace", namespace, "--kube-version", "1.36.0", "--values", "-"]
    command = [helm, "template", release, chart, *options]
    return subprocess.run(command, input=values, capture_output=True, text=True, env=BRIEF)


#: The chart does not change while the tests run: what was rendered or read once is not rendered or read again.
template_once = cache(template)
read_once = cache(fast_yaml.load)


@pytest.fixture
def render(helm: Path) -> Render:
    """The chart, or a copy of it, rendered with some values."""

    def run(values: Mapping[str, Any] | None = None, chart: Path = CHART) -> subprocess.CompletedProcess[str]:
        return (template_once if chart == CHART else template)(helm, chart, json.dumps(dict(values or {})))

    return run


@pytest.fixture
def objects(render: Render) -> Callable[..., dict[tuple[str, str], dict[str, Any]]]:
    """The rendered objects by kind and "namespace/name" (cluster-wide: "/name"); an object printed twice fails."""

    def run(values: Mapping[str, Any] | None = None, chart: Path = CHART) -> dict[tuple[str, str], dict[str, Any]]:
        done = render(values, chart)
        assert done.returncode == 0, done.stderr
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for document in map(copied, filter(None, map(read_once, done.stdout.split("\n---\n")))):
            metadata = document["metadata"]
            key = document["kind"], f"{metadata.get('namespace', '')}/{metadata['name']}"
            assert key not in found, f"{key} is rendered twice"
            found[key] = document
        return found

    return run
