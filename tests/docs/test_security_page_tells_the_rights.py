"""The table of the security page is the list of rules that the chart grants."""

import re

from tests import fast_yaml
from tests.docs.pages import DOCS, ROOT, read

#: Group, resource, verb.
Right = tuple[str, str, str]


def granted() -> set[Right]:
    """Every right in the chart's one list of rules, whatever condition it stands under."""
    template = read(ROOT / "charts/tierkeeper/templates/_rules.tpl")
    plain = "\n".join(line for line in template.splitlines() if "{{" not in line)
    rules = fast_yaml.load(plain)
    return {(g, r, v) for rule in rules for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}


def told() -> set[Right]:
    section = read(DOCS / "security.md").partition("## What the operator may do")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in section.splitlines() if "|" in line][2:]
    return {
        ("" if group == "core" else group, resource, verb)
        for group, resources, verbs, _ in rows
        for resource in re.split(r", *", resources)
        for verb in re.split(r", *", verbs)
    }


def test_every_right_is_told_and_none_that_is_not_granted() -> None:
    assert told() == granted()


def test_what_is_said_never_to_happen_is_not_granted() -> None:
    rights = granted()
    assert "secrets" not in {resource for _, resource, _ in rights}
    assert {"delete", "deletecollection", "escalate", "bind", "impersonate", "*"}.isdisjoint(v for *_, v in rights)
    assert {verb for _, resource, verb in rights if resource == "servicetiers"} == {"get", "list", "watch"}
    assert not [r for _, r, _ in rights if r.startswith("pods/")]
