"""Every query of the shipped dashboards has data in the cluster's Prometheus, and every rule is evaluated.

The tier that is looked at is set up early, so that its budget is known when it is judged: the period's query steps by
the minute and wants two of them. conftest.py orders it so; alone, the second test waits.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster import Cluster
from e2e.dashboards.source import constants
from e2e.load.trace import EXCERPT
from e2e.scenarios.kit import Kit, Object, changed, tier
from tests.obs.dashboards import DASHBOARDS, ROOT, RULES, load, panel_queries

NAMESPACE = "e2e-dashboards"

BURST = {"duration_s": 25, "rate_per_s": 14, "max_prompt_tokens": 256, "max_output_tokens": 64}
"""More than four slots serve, so that the loop raises the cap; and the 300 requests that a budget of 1 % takes."""
REST = {"duration_s": 900, "rate_per_s": 1, "max_prompt_tokens": 256, "max_output_tokens": 16}
"""So little that it disturbs no other scenario, and enough that no mean is 0/0."""


@pytest.fixture(scope="session")
def shown(platform: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """A tier that shows everything a tier can show, under load until the session ends."""
    kit = Kit(platform, NAMESPACE)
    kit.create_namespace()
    kit.apply(wanted(mode="Auto", seqs=4))
    kit.until_ready("shown")
    with sending(kit, tmp_path_factory.mktemp("dashboards"), BURST, REST):
        yield kit
    kit.delete_namespace(wait=False)


@contextmanager
def sending(kit: Kit, folder: Path, *phases: Mapping[str, float]) -> Iterator[None]:
    """Load on the tier for these phases, or until the end of the block."""
    plan = folder / "plan.json"
    plan.write_text(json.dumps([{"name": "shown", "url": kit.url("shown"), "model": "shown", "phases": phases}]))
    command = [sys.executable, "-m", "e2e.load", "replay", "--trace", str(EXCERPT), "--plan", str(plan)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT) as sender:
        try:
            yield
        finally:
            sender.terminate()


def wanted(*, mode: str, seqs: int) -> Object:
    slo = {"objectivePercent": 99, "ttftMilliseconds": 1000, "tpotMilliseconds": 100, "windowDays": 1}
    scaling = {
        "mode": mode,
        "replicas": {"min": 1, "max": 2},
        "maxNumSeqs": {"min": 4, "max": 32},
        "maxNumBatchedTokens": {"min": 512, "max": 8192},
    }
    return changed(tier("shown", slo=slo, scaling=scaling), "spec.engine.maxNumSeqs", seqs)


def ask(kit: Kit, expr: str) -> list[dict[str, Any]]:
    """An instant query to the cluster's Prometheus. Raises AssertionError with its words where it refuses."""
    service = Kit(kit.cluster, "monitoring").get("services", "prometheus")
    url = f"http://{service['spec']['clusterIP']}:9090/api/v1/query?" + urllib.parse.urlencode({"query": expr})
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{expr}: {error.read().decode()}") from error
    return result


def has_data(kit: Kit, expr: str) -> bool:
    return any(not math.isnan(float(sample["value"][1])) for sample in ask(kit, expr))


def expressions(path: Path) -> dict[str, str]:
    """What Prometheus is asked for each query of a dashboard, by what the query is called."""
    chosen = constants(load(path)) | {"namespace": NAMESPACE, "tier": "shown"}
    return {str(query): query.filled(chosen) for query in panel_queries(path)}


@pytest.mark.e2e
def test_a_tier_to_show_is_set_up(shown: Kit) -> None:
    shown.until_condition("shown", "MetricsAvailable", "True", seconds=60)


@pytest.mark.e2e
@pytest.mark.timeout(400)
def test_every_query_of_the_dashboards_has_data(shown: Kit, tmp_path: Path) -> None:
    # The operator's counters begin with its process, which other scenarios end: a decision and a resize anew, by few
    # slots and another burst.
    shown.apply(wanted(mode="Fixed", seqs=5))
    shown.until("five slots", lambda: shown.get("servicetiers", "shown")["status"].get("seqs") == "5")
    shown.apply(wanted(mode="Auto", seqs=5))
    missing = {name: expr for path in DASHBOARDS for name, expr in expressions(path).items()}
    total = len(missing)

    def all_have_data() -> bool:
        for name in [name for name, expr in missing.items() if has_data(shown, expr)]:
            del missing[name]
        return not missing

    with sending(shown, tmp_path, BURST):
        try:
            shown.until("every query to have data", all_have_data, seconds=300)
        except AssertionError as error:
            raise AssertionError("without data:\n" + "\n".join(missing)) from error
    print(f"{total} queries of {len(DASHBOARDS)} dashboards have data")


@pytest.mark.e2e
def test_every_rule_is_evaluated_without_an_error(shown: Kit) -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    for rule in rules:
        ask(shown, rule["expr"])
    recorded = {rule["record"]: rule["expr"] for rule in rules if "record" in rule}
    # What is recorded from another record has data only where the rules are loaded.
    for name in ("tierkeeper:slo_requests:1h", "tierkeeper:slo_bad_requests:1h", "tierkeeper:error_budget_ratio"):
        assert has_data(shown, recorded[name]), name
