"""The chart's parts say the same thing as each other and as the repository; no Helm needed."""

import json
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts import values_table
from tests.charts.cases import CASES
from tierkeeper.ports import Kind

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/tierkeeper"

#: Values with tests of their own instead of a golden file.
TESTED_ELSEWHERE = {
    "crds.keep",  # test_chart_renders.py
    "prometheusRule.enabled",  # test_chart_wraps_rules_and_dashboards.py
    "prometheusRule.labels",
    "prometheusRule.runbookBaseUrl",
    "dashboards.enabled",
    "dashboards.labels",
    "dashboards.annotations",
}


@cache
def values() -> dict[str, Any]:
    """Every value's dotted name and its default."""
    root = yaml.compose((CHART / "values.yaml").read_text(), Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    schema = json.loads((CHART / "values.schema.json").read_text())
    return {name: yaml.safe_load(yaml.serialize(node)) for name, _, node in values_table.leaves(root, schema)}


def is_set(case: dict[str, Any], name: str) -> bool:
    at: Any = case
    for part in name.split("."):
        if not isinstance(at, dict) or part not in at:
            return False
        at = at[part]
    return True


def closed_objects(schema: dict[str, Any], above: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if "properties" in schema:
        yield above, schema
        for name, below in schema["properties"].items():
            yield from closed_objects(below, f"{above}.{name}")


def test_chart_carries_the_generated_crd() -> None:
    copied, generated = CHART / "files/servicetiers.yaml", ROOT / "crds/servicetiers.yaml"
    assert copied.read_text() == generated.read_text(), f"cp {generated.relative_to(ROOT)} {copied.relative_to(ROOT)}"


def test_chart_version_is_the_package_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["appVersion"] == project["version"]


def test_the_table_of_values_is_current() -> None:
    readme = (CHART / "README.md").read_text()
    assert readme == values_table.with_table(readme, values_table.table()), "run `python charts/values_table.py`"


def test_a_value_without_a_description_is_named(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("# Said.\na: 1\n\nb:\n  c: 2\n")
    schema = {"properties": {"a": {}, "b": {"properties": {"c": {}}}}}
    (tmp_path / "values.schema.json").write_text(json.dumps(schema))
    with pytest.raises(ValueError, match=r"b\.c in values\.yaml has no comment above it"):
        values_table.table(tmp_path)


def test_a_table_is_written_only_between_its_marks() -> None:
    text = f"before\n{values_table.START}\nold\n{values_table.END}\nafter\n"
    assert values_table.with_table(text, "new") == f"before\n{values_table.START}\n\nnew\n\n{values_table.END}\nafter\n"
    with pytest.raises(ValueError, match="no table between"):
        values_table.with_table("nothing here", "new")


def test_schema_knows_exactly_the_values_there_are() -> None:
    """Beside them Helm's own `global`. None but the user id may be taken away: no template has to bear its absence."""
    nodes = dict(closed_objects(json.loads((CHART / "values.schema.json").read_text())))
    declared = {
        f"{above}.{name}".removeprefix(".")
        for above, node in nodes.items()
        for name, below in node["properties"].items()
        if "properties" not in below
    }
    assert declared == values().keys() | {"global"}
    assert [name for name, node in nodes.items() if node["additionalProperties"] is not False] == []
    optional = {name for node in nodes.values() for name in node["properties"].keys() - set(node["required"])}
    assert optional == {"global", "runAsUser"}


@pytest.mark.parametrize("name", sorted(values().keys() - TESTED_ELSEWHERE))
def test_every_value_is_set_in_a_case_with_a_golden_file(name: str) -> None:
    assert [case for case, given in CASES.items() if is_set(given, name)]


def test_every_right_has_a_reason() -> None:
    lines = (CHART / "templates/_rules.tpl").read_text().splitlines()
    rules = [number for number, line in enumerate(lines) if line.startswith("- apiGroups")]
    assert rules
    assert [lines[number] for number in rules if not lines[number - 1].startswith("# ")] == []


def test_c14_no_right_to_look_at_nodes_is_asked_for_or_needed() -> None:
    """Whether a pod finds a node is read from the pod, where the scheduler says it."""
    assert "nodes" not in (CHART / "templates/_rules.tpl").read_text().replace("node drain", "")
    assert "Node" not in set(Kind)


def test_l01_nothing_of_the_chart_waits_for_the_operator_when_its_namespace_goes() -> None:
    """No finalizer, and no hook: a job that tidies up would need an operator, a CRD or rights that are gone by then."""
    templates = {file.name: file.read_text() for file in (CHART / "templates").iterdir()}
    assert [name for name, text in templates.items() if "finalizers" in text or "helm.sh/hook" in text] == []
    assert "finalizers" not in (CHART / "files/servicetiers.yaml").read_text()


def test_i07_the_chart_has_no_webhook_that_could_block_the_cluster() -> None:
    """What may be in a ServiceTier is said by the CRD alone."""
    assert [file.name for file in (CHART / "templates").iterdir() if "WebhookConfiguration" in file.read_text()] == []
    assert "webhook" not in (CHART / "files/servicetiers.yaml").read_text()
