"""docs/metrics.md has a row for each metric, in the registry's own words, and no other."""

import re

import pytest

from tests.obs.dashboards import ROOT, named, own_metrics
from tierkeeper.obs.metrics import Metrics
from tierkeeper.obs.tiers import FAMILIES, TIER, TierCollector

PAGE = (ROOT / "docs/metrics.md").read_text()
KINDS = ("Of each tier, by the last tick", "Of each tier, by the last reconcile", "Of the operator")


def rows():
    """Section and table row of every metric, in the order of the registry."""
    for family in FAMILIES:
        yield KINDS[0], row(family.name, "gauge", (*TIER, *family.labels), family.help)
    for collector in Metrics().registry._collector_to_names:
        if isinstance(collector, TierCollector) or not hasattr(collector, "_labelnames"):
            continue
        name = f"{collector._name}_total" if collector._type == "counter" else collector._name
        of_a_tier = "tier" in collector._labelnames
        said = collector._documentation
        yield KINDS[1] if of_a_tier else KINDS[2], row(name, collector._type, collector._labelnames, said)


def row(name, kind, labels, said):
    return f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels if label not in TIER)} | {said} |"


def section(title):
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("title", KINDS)
def test_the_table_is_what_the_registry_says(title):
    written = [line for line in section(title).splitlines() if line.startswith("| `")]
    assert written == [line for kind, line in rows() if kind == title]


def test_every_name_says_its_project_and_its_unit():
    """Prometheus' own rule; counts of things and states have none."""
    unitless = {
        "info",
        "state",
        "condition",
        "replicas",
        "tiers",
        "depth",
        "requests",
        "seqs",
        "tokens",
        "rate",
        "leader",
    }
    for name in (re.search(r"`(\w+)`", line)[1] for _, line in rows()):
        assert name.startswith("tierkeeper_")
        assert name.rsplit("_", 1)[1] in {"seconds", "ratio", "total", *unitless}


def test_the_examples_name_only_what_there_is():
    known = own_metrics()
    for block in re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL):
        for name, labels in named(re.sub(r"#.*", "", block)):
            assert set(labels) <= known[name]
