"""What `helm install` prints at its end: what is there, and what a person still has to do."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import tools
from tests.charts.conftest import BRIEF

pytestmark = [pytest.mark.built, pytest.mark.timeout(1800)]

CHART = Path(__file__).parents[2] / "charts/tierkeeper"
PULLED = {"image": {"repository": "registry.example/tierkeeper/operator"}}

Notes = Callable[[dict[str, Any]], str]


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    """The notes of an install that is played on the client alone; Helm 3 asks a cluster even for that."""

    def run(values: dict[str, Any]) -> str:
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        options = ["--namespace", "tierkeeper-system", "--dry-run=client", "--values", file]
        command = [tools.helm4(), "install", "keeper", CHART, *options]
        done = subprocess.run(command, capture_output=True, text=True, env=BRIEF)
        assert done.returncode == 0, done.stderr
        return done.stdout.partition("NOTES:")[2]

    return run


def test_an_image_that_no_node_can_pull_is_warned_of_with_the_remedy(notes: Notes) -> None:
    said = notes({})
    assert "WARNING: image.repository is localhost/tierkeeper/operator, which no node can pull" in said
    upgrade = "helm upgrade keeper charts/tierkeeper -n tierkeeper-system --reset-then-reuse-values"
    assert f"{upgrade} --set image.repository=" in said
    assert "WARNING" not in notes(PULLED)


def test_the_examples_are_offered_only_where_they_are_watched(notes: Notes) -> None:
    offer = "kubectl apply -f examples/"
    assert offer in notes(PULLED)
    assert offer in notes(PULLED | {"watch": {"namespaces": ["other", "llm"]}})
    elsewhere = notes(PULLED | {"watch": {"namespaces": ["chat", "code"]}})
    assert offer not in elsewhere
    assert "only in a watched namespace: chat, code" in elsewhere
    assert "kubectl get servicetiers -n chat" in elsewhere


def test_the_scrape_that_all_depends_on_is_asked_for_unless_the_chart_sees_to_it(notes: Notes) -> None:
    demand = "Prometheus must scrape the pools"
    assert demand in notes(PULLED)
    assert demand not in notes(PULLED | {"monitoring": {"pools": {"enabled": True}}})
