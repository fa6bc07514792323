"""What a dashboard asks, and what a Prometheus answers."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DASHBOARDS = ROOT / "charts/tierkeeper/files/dashboards"

RATE_INTERVAL = "1m"
"""What Grafana would put in place of its own variable: four scrapes at least."""

_VARIABLE = re.compile(r"\$\{(\w+)(?::\w+)?\}|\$(\w+)")
_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a panel: seconds and values; one pair where the query is instant."""

    name: str
    labels: Mapping[str, str]
    ref: str
    """Which of the panel's queries it answers."""
    at: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """The time that a picture shows, in Unix seconds, and how far apart its points are."""

    start: float
    end: float
    step: float = 5.0


def board(name: str) -> dict[str, Any]:
    """A shipped dashboard, as Grafana reads it."""
    loaded: dict[str, Any] = json.loads((DASHBOARDS / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def filled(text: str, variables: Mapping[str, str]) -> str:
    """The text with Grafana's variables replaced. Raises KeyError for one without a value."""
    return _VARIABLE.sub(lambda found: variables[found[1] or found[2]], text)


def constants(dashboard: Mapping[str, Any]) -> dict[str, str]:
    """The values of the hidden variables."""
    return {v["name"]: v["query"] for v in dashboard["templating"]["list"] if v["type"] == "constant"}


def variables(dashboard: Mapping[str, Any], chosen: Mapping[str, str]) -> dict[str, str]:
    """The values of all variables: the dashboard's constants, and what a reader would choose."""
    return {"__rate_interval": RATE_INTERVAL, **constants(dashboard), **chosen}


@dataclass(frozen=True, slots=True)
class Prometheus:
    """The HTTP API of a Prometheus."""

    url: str

    def answers(self, panel: Mapping[str, Any], known: Mapping[str, str], span: Span) -> list[Series]:
        """Every series of a panel, over the span or, for instant queries, at its end.

        Raises RuntimeError with Prometheus' own words where it refuses a query.
        """
        return [
            _series(target, result, known)
            for target in panel.get("targets", ())
            for result in self._ask(filled(target["expr"], known), span, instant=bool(target.get("instant")))
        ]

    def _ask(self, expr: str, span: Span, *, instant: bool) -> list[dict[str, Any]]:
        when = {"time": span.end} if instant else {"start": span.start, "end": span.end, "step": span.step}
        kind = "query" if instant else "query_range"
        url = f"{self.url.rstrip('/')}/api/v1/{kind}?{urllib.parse.urlencode({'query': expr, **when})}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{expr}: {error.read().decode(errors='replace')}") from error
        return result


def _series(target: Mapping[str, Any], result: Mapping[str, Any], known: Mapping[str, str]) -> Series:
    labels = result["metric"]
    points = result.get("values") or [result["value"]]
    legend = filled(target.get("legendFormat") or "", known)
    name = _LABEL.sub(lambda found: labels.get(found[1], ""), legend)
    at, values = zip(*((float(second), float(value)) for second, value in points), strict=True)
    return Series(name, labels, target["refId"], at, values)
