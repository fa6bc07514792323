"""V10: some tools read YAML in the locale's encoding, so what is shipped keeps to ASCII."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(
    path
    for folder in ("crds", "charts", "examples")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".yaml", ".yml", ".tpl", ".json") or path.name == "Kustomization"
)


def test_there_is_something_to_check() -> None:
    assert {"servicetiers.yaml", "gold.yaml", "values.yaml", "Chart.yaml"} <= {path.name for path in SHIPPED}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(ROOT)))
def test_v10_a_shipped_file_is_ascii(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [f"{number}: {line}" for number, line in enumerate(lines, 1) if not line.isascii()] == []
