"""The chart's parts say the same thing as each other and as the repository; no Helm needed."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/tierkeeper"


def leaves(values: dict[str, Any], schema: dict[str, Any], prefix: str = "") -> set[str]:
    """Dotted names of the values that a user sets: down to where the schema lists no properties."""
    found: set[str] = set()
    for name, value in values.items():
        nested = schema["properties"][name]
        if isinstance(value, dict) and nested.get("additionalProperties") is False and name != "resources":
            found |= leaves(value, nested, f"{prefix}{name}.")
        else:
            found.add(prefix + name)
    return found


def test_chart_carries_the_generated_crd() -> None:
    copied, generated = CHART / "files/servicetiers.yaml", ROOT / "crds/servicetiers.yaml"
    assert copied.read_text() == generated.read_text(), f"cp {generated.relative_to(ROOT)} {copied.relative_to(ROOT)}"


def test_chart_version_is_the_package_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["appVersion"] == project["version"]


def test_every_value_has_a_schema_and_a_row_in_the_table() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    rows = [line.split("|")[1] for line in (CHART / "README.md").read_text().splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`([A-Za-z.]+)`", row)}
    assert leaves(values, schema) == documented


def test_every_right_has_a_reason() -> None:
    lines = (CHART / "templates/_rules.tpl").read_text().splitlines()
    rules = [number for number, line in enumerate(lines) if line.startswith("- apiGroups")]
    assert rules
    assert [lines[number] for number in rules if not lines[number - 1].startswith("# ")] == []
