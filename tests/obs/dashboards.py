"""The shipped Grafana dashboards and rules, and what may be named in their queries."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from e2e.dashboards.source import RATE_INTERVAL, filled
from tierkeeper.obs.metrics import Metrics
from tierkeeper.obs.tiers import TierCollector

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "charts/tierkeeper/files/dashboards").glob("*.json"))
RULES = ROOT / "charts/tierkeeper/files/rules/tierkeeper.yaml"
ENGINE_PAGE = ROOT / "tests/e2e_engine/data/vllm-0.32.0-metrics.txt"

PLUGIN = {
    f"tierkeeper_{name}_{what}" for name in ("max_num_seqs", "max_num_batched_tokens") for what in ("seen", "applied")
}
"""What the plugin adds to an engine's page."""
SCRAPED = {"namespace", "tier", "pod", "instance", "job"}
"""Labels that the scrape adds."""


@dataclass(frozen=True)
class PanelQuery:
    dashboard: str
    panel: str
    expr: str
    """With Grafana's variables in it."""

    def filled(self, variables: Mapping[str, str]) -> str:
        """As Prometheus gets it. Raises KeyError for a variable that has no value."""
        return filled(self.expr, {"__rate_interval": RATE_INTERVAL, **variables})

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel}: {self.expr}"


def load(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def panel_queries(path: Path) -> list[PanelQuery]:
    board = load(path)
    return [
        PanelQuery(path.stem, panel["title"], target["expr"])
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]


@cache
def own_metrics() -> dict[str, set[str]]:
    """Every series name on the operator's page with its labels."""
    found: dict[str, set[str]] = {"process_resident_memory_bytes": set(), "process_cpu_seconds_total": set()}
    for collector in Metrics().registry._collector_to_names:
        if isinstance(collector, TierCollector):
            found |= {metric.name: set(metric._labelnames) for metric in collector.describe()}
        elif hasattr(collector, "_labelnames"):
            labels = set(collector._labelnames)
            found |= {f"{collector._name}{suffix}": {*labels, *more} for suffix, more in _SUFFIXES[collector._type]}
    return found


_SUFFIXES = {
    "counter": [("_total", ())],
    "gauge": [("", ())],
    "histogram": [("_bucket", ("le",)), ("_sum", ()), ("_count", ())],
}


@cache
def engine_metrics() -> dict[str, set[str]]:
    """Every series name on a real engine's page with its labels."""
    found: dict[str, set[str]] = {name: {"engine", "model_name"} for name in PLUGIN}
    for line in ENGINE_PAGE.read_text().splitlines():
        if sample := re.match(r"([\w:]+)\{([^}]*)\} ", line):
            found.setdefault(sample[1], set()).update(re.findall(r'(\w+)="', sample[2]))
    return found


def named(expr: str) -> Iterator[tuple[str, list[str]]]:
    """Each series that a query names, with the labels that it selects by."""
    for found in re.finditer(r"\b((?:tierkeeper|vllm|process)[_:][\w:]*)(?:\{([^}]*)\})?", expr):
        yield found[1], re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*['\"]", found[2] or "")
