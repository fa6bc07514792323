"""Rule files and dashboards reach the cluster as they lie in the chart, and nothing where there are none."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

CHART = Path(__file__).parents[2] / "charts/tierkeeper"
ON: dict[str, Any] = {
    "prometheusRule": {"enabled": True, "labels": {"role": "alerts"}},
    "dashboards": {"enabled": True, "annotations": {"grafana_folder": "LLM"}},
    "monitoring": {"labels": {"release": "stack"}},
}
#: What Helm must not touch: templates of another language, long lines, numbers, quotes.
RULES = """# A comment.
groups:
  - name: tierkeeper
    interval: 30s
    limit: 1000000
    rules:
      - alert: Burns
        expr: |
          tierkeeper_burn_rate{window="1h"} > 14.4
            and on (namespace, tier) tierkeeper_burn_rate{window="5m"} > 14.4
        annotations:
          summary: '{{ $labels.namespace }}/{{ $labels.tier }} burns at {{ printf "%.1f" $value }}x'
"""
DASHBOARD = {"title": "Fleet", "uid": "tk", "panels": [{"legendFormat": "{{tier}} `p99`", "max": 1000000}]}


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A copy of the chart with one rule file and one dashboard of the test's own."""
    copy = tmp_path / "tierkeeper"
    shutil.copytree(CHART, copy, ignore=shutil.ignore_patterns("rules", "dashboards"))
    for folder, name, text in (
        ("rules", "slo.yaml", RULES),
        ("dashboards", "fleet.json", json.dumps(DASHBOARD, indent=2)),
    ):
        (copy / "files" / folder).mkdir()
        (copy / "files" / folder / name).write_text(text + "\n")
    return copy


def test_a_rule_file_becomes_a_rule_object_word_for_word(chart: Path, objects: Any) -> None:
    rule = objects(ON, chart)["PrometheusRule", "tierkeeper-system/tierkeeper-slo"]
    assert rule["spec"] == yaml.safe_load(RULES)
    assert rule["metadata"]["labels"].items() >= {"role": "alerts", "release": "stack"}.items()


def test_a_dashboard_becomes_a_config_map_word_for_word(chart: Path, objects: Any) -> None:
    dashboard = objects(ON, chart)["ConfigMap", "tierkeeper-system/tierkeeper-dashboard-fleet"]
    assert json.loads(dashboard["data"]["fleet.json"]) == DASHBOARD
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboard["metadata"]["annotations"] == {"grafana_folder": "LLM"}


def test_the_sidecars_label_can_be_another(chart: Path, objects: Any) -> None:
    labels = {"grafana_dashboard": None, "dashboards": "llm"}
    dashboard = objects({"dashboards": {"enabled": True, "labels": labels}}, chart)
    found = dashboard["ConfigMap", "tierkeeper-system/tierkeeper-dashboard-fleet"]["metadata"]["labels"]
    assert found["dashboards"] == "llm"
    assert "grafana_dashboard" not in found


def test_neither_is_there_by_default_or_without_files(chart: Path, objects: Any) -> None:
    assert not {"PrometheusRule", "ConfigMap"} & {kind for kind, _ in objects({}, chart)}
    shutil.rmtree(chart / "files/rules")
    shutil.rmtree(chart / "files/dashboards")
    assert not {"PrometheusRule", "ConfigMap"} & {kind for kind, _ in objects(ON, chart)}


def test_every_file_of_the_chart_is_wrapped(objects: Any) -> None:
    found = objects(ON)
    rules = {f"tierkeeper-system/tierkeeper-{path.stem}" for path in (CHART / "files/rules").glob("*")}
    boards = {f"tierkeeper-system/tierkeeper-dashboard-{path.stem}" for path in (CHART / "files/dashboards").glob("*")}
    assert {name for kind, name in found if kind == "PrometheusRule"} == rules
    assert {name for kind, name in found if kind == "ConfigMap"} == boards
