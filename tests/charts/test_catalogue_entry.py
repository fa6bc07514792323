"""What a catalogue such as Artifact Hub shows of the chart is so: its CRD exists, its example is accepted.

Keys and their forms: https://artifacthub.io/docs/topics/annotations/helm.
"""

from pathlib import Path
from typing import Any

from tests import fast_yaml
from tierkeeper.api import GROUP, KIND, VERSION
from tierkeeper.api.resource import ServiceTier

ROOT = Path(__file__).parents[2]
CRD = fast_yaml.load((ROOT / "crds/servicetiers.yaml").read_text())


def annotation(name: str) -> Any:
    """One entry, parsed: all values of annotations are strings that hold YAML."""
    chart = fast_yaml.load((ROOT / "charts/tierkeeper/Chart.yaml").read_text())
    text = chart["annotations"][f"artifacthub.io/{name}"]
    assert isinstance(text, str)
    return fast_yaml.load(text)


def test_the_crd_that_is_named_is_the_one_that_is_shipped() -> None:
    (entry,) = annotation("crds")
    assert (entry["kind"], entry["version"], entry["name"]) == (KIND, VERSION, CRD["metadata"]["name"])
    assert entry["displayName"]
    assert entry["description"]


def test_the_example_is_a_tier_that_is_accepted() -> None:
    (example,) = annotation("crdsExamples")
    assert (example["apiVersion"], example["kind"]) == (f"{GROUP}/{VERSION}", KIND)
    ServiceTier.model_validate(example)


def test_changes_are_of_the_kinds_that_the_catalogue_knows() -> None:
    changes = annotation("changes")
    assert {change["kind"] for change in changes} <= {"added", "changed", "deprecated", "removed", "fixed", "security"}
    assert all(change["description"] for change in changes)


def test_a_version_below_one_is_no_promise() -> None:
    chart = fast_yaml.load((ROOT / "charts/tierkeeper/Chart.yaml").read_text())
    assert annotation("prerelease") is chart["version"].startswith("0.")
    assert annotation("license") == "Apache-2.0"
    assert annotation("category") == "ai-machine-learning"
