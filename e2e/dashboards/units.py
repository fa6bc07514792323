"""Values as Grafana would write and color them, for the units that the dashboards use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

COLORS = {
    "green": "#1a7f37",
    "yellow": "#bf8700",
    "orange": "#bc4c00",
    "red": "#cf222e",
    "blue": "#0969da",
    "text": "#d0d7de",
}


def shown(value: float, unit: str | None) -> str:
    """A value with its unit."""
    if math.isnan(value):
        return "–"
    match unit:
        case "s":
            return f"{value * 1000:.3g} ms" if 0 < abs(value) < 1 else f"{value:.3g} s"
        case "percentunit":
            return f"{value * 100:.3g}%"
        case "bytes":
            return f"{value / 2**20:.3g} MiB"
        case "reqps":
            return f"{value:.3g} req/s"
        case str() if unit.startswith("suffix:"):
            return f"{value:.3g}{unit.removeprefix('suffix:')}"
        case _:
            return f"{value / 1000:.3g} K" if abs(value) >= 10_000 else f"{value:.4g}"


def color_of(value: float, thresholds: Mapping[str, Any] | None, otherwise: str) -> str:
    """The color of the highest step that the value has reached."""
    reached = [step for step in (thresholds or {}).get("steps", ()) if step["value"] is None or value >= step["value"]]
    return COLORS[reached[-1]["color"]] if reached else otherwise


def mapped(value: float, mappings: Sequence[Mapping[str, Any]] | None) -> tuple[str | None, str | None]:
    """Text and color that a value is mapped to, if it is."""
    for each in mappings or ():
        if (found := each["options"].get(f"{value:g}")) is not None:
            return found["text"], COLORS[found["color"]]
    return None, None
