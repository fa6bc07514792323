"""Rule files and dashboards reach the cluster as they lie in the chart, and nothing where there are none."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.built, pytest.mark.timeout(1800)]

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


@pytest.mark.parametrize("base", ["https://wiki.example/runbooks", "https://wiki.example/runbooks/"])
def test_an_alert_links_to_its_runbook_where_they_are_served(base: str, objects: Any) -> None:
    found = objects({"prometheusRule": {"enabled": True, "runbookBaseUrl": base}})
    alerts = alerts_of(found["PrometheusRule", "tierkeeper-system/tierkeeper-tierkeeper"])
    assert alerts
    for name, annotations in alerts.items():
        assert annotations["runbook_url"] == f"https://wiki.example/runbooks/{name}.md"


def test_an_alert_has_no_link_where_nobody_serves_the_runbooks(objects: Any) -> None:
    alerts = alerts_of(objects(ON)["PrometheusRule", "tierkeeper-system/tierkeeper-tierkeeper"])
    assert alerts
    for annotations in alerts.values():
        assert set(annotations) == {"summary", "description"}


def alerts_of(rule: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Annotations of each alert."""
    rules = [rule for group in rule["spec"]["groups"] for rule in group["rules"]]
    return {rule["alert"]: rule["annotations"] for rule in rules if "alert" in rule}


def test_a_dashboard_becomes_a_config_map_word_for_word(chart: Path, objects: Any) -> None:
    dashboard = objects(ON, chart)["ConfigMap", "tierkeeper-system/tierkeeper-dashboard-fleet"]
    assert json.loads(dashboard["data"]["fleet.json"]) == DASHBOARD
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboard["metadata"]["annotations"] == {"grafana_folder": "LLM"}


def test_the_dashboards_ask_by_the_labels_that_the_operator_asks_by(objects: Any) -> None:
    labels = {"namespace": "kubernetes_namespace", "tier": "tk_tier", "pod": "pod_name"}
    renamed, usual = objects(ON | {"prometheus": {"labels": labels}}), objects(ON)
    for name in ("fleet", "tier"):
        key = "ConfigMap", f"tierkeeper-system/tierkeeper-dashboard-{name}"
        board, before = (json.loads(found[key]["data"][f"{name}.json"]) for found in (renamed, usual))
        assert before == json.loads((CHART / f"files/dashboards/{name}.json").read_text())
        constants = [variable for variable in board["templating"]["list"] if variable["type"] == "constant"]
        assert constants
        for constant in constants:
            label = labels[constant["name"].removesuffix("_label")]
            assert (constant["query"], constant["current"]) == (label, {"text": label, "value": label})
        del board["templating"], before["templating"]
        assert board == before


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
