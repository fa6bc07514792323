"""What the comparison says of Tierkeeper is linked where it stands, and held by tests that exist."""

import re

import pytest

from tests.docs.pages import DOCS, ROOT, read
from tests.test_cases_have_their_tests import NAMED, defined_in

PAGE = read(DOCS / "comparison.md")
TABLES = ("What Tierkeeper does that they do not", "The charts")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, its head left out."""
    text = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines[2:]]


OURS = [(row[0], row[-1]) for heading in TABLES for row in rows(heading)]
HELD = {row[0]: NAMED.findall(row[1]) for row in rows("What stands behind our column")}


@pytest.mark.parametrize(("row", "cell"), OURS, ids=[row for row, _ in OURS])
def test_a_cell_of_ours_is_linked_and_held_by_tests_that_exist(row: str, cell: str) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", cell)
    assert links
    assert [link for link in links if not (DOCS / link).exists()] == []
    assert HELD[row]
    assert [f"{path}::{name}" for path, name in HELD[row] if name not in defined_in(ROOT / path)] == []


def test_nothing_is_held_that_no_table_says() -> None:
    assert sorted(HELD) == sorted(row for row, _ in OURS)


def test_the_number_of_rules_in_the_crd_is_the_one_that_is_told() -> None:
    blocks = read(ROOT / "crds/servicetiers.yaml").count("x-kubernetes-validations:")
    assert dict(OURS)["CEL blocks in the CRDs"].startswith(f"[{blocks}]")
