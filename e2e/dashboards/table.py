"""A table panel's cells: instant answers joined by their labels, named and ordered as the panel says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from e2e.dashboards.source import Series
from e2e.dashboards.units import color_of, mapped, shown

Cell = tuple[str, str | None]
"""Text and color."""


def cells(panel: Mapping[str, Any], found: Sequence[Series]) -> tuple[list[str], list[list[Cell]]]:
    """Column titles, and the rows. Answers with more labels than the others add theirs to the row that they fit."""
    rows: list[dict[str, Any]] = []
    for each in sorted(found, key=lambda one: len(one.labels)):
        fitting = [row for row in rows if all(row.get(k, v) == v for k, v in each.labels.items())]
        if not fitting:
            rows.append({})
            fitting = rows[-1:]
        for row in fitting:
            row |= {**each.labels, f"Value #{each.ref}": each.values[-1]}
    organized: dict[str, Any] = next((t["options"] for t in panel["transformations"] if t["id"] == "organize"), {})
    hidden, titles, order = (organized.get(part, {}) for part in ("excludeByName", "renameByName", "indexByName"))
    names = [name for name in dict.fromkeys(key for row in rows for key in row) if not hidden.get(name)]
    names.sort(key=lambda name: (order.get(name, len(order) + 1), name))
    by = panel["options"].get("sortBy") or [{}]
    key = next((name for name in names if titles.get(name, name) == by[0].get("displayName")), None)
    if key is not None:
        rows.sort(key=lambda row: row.get(key, float("-inf")), reverse=bool(by[0].get("desc")))
    return [titles.get(name, name) for name in names], [
        [_cell(panel, titles.get(name, name), row.get(name)) for name in names] for row in rows
    ]


def _cell(panel: Mapping[str, Any], title: str, value: object) -> Cell:
    if not isinstance(value, float):
        return ("" if value is None else str(value)), None
    rules: dict[str, Any] = {}
    for each in panel["fieldConfig"]["overrides"]:
        if each["matcher"] == {"id": "byName", "options": title}:
            rules |= {one["id"]: one["value"] for one in each["properties"]}
    text, color = mapped(value, rules.get("mappings"))
    if text is not None:
        return text, color
    known = color_of(value, rules["thresholds"], "") if "thresholds" in rules else None
    return shown(value, rules.get("unit")), known
