"""docs/cases.md names a test, or a reason, for every public case, and every test that it names exists."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|\n ").split("|")]
    for line in (ROOT / "docs/cases.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| [A-Z]\d\d \|", line)
]
NAMED = re.compile(r"`([\w/.]+\.py)::(\w+)`")


@cache
def defined_in(path: Path) -> frozenset[str]:
    return frozenset(
        node.name
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def test_no_case_stands_twice() -> None:
    names = [row[0] for row in ROWS]
    assert names
    assert len(names) == len(set(names))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_case_has_a_source_and_tests_that_exist_or_a_reason(row: list[str]) -> None:
    _, source, held = row
    assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", source)
    named = NAMED.findall(held)
    assert "`" not in NAMED.sub("", held)
    assert named or len(held) > 20
    assert [f"{path}::{name}" for path, name in named if name not in defined_in(ROOT / path)] == []
