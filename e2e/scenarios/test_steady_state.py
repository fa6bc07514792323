"""A steady pool costs the API server nothing: no write, no Event, no mark on the user's object.

The steady tiers are set up early, left alone while the demo runs beside them, and judged after it (conftest.py orders
it so).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from e2e.cluster import Cluster
from e2e.demo.checks import OPERATOR_USER
from e2e.scenarios.kit import Kit, changed, tier

STEADY_SECONDS = 300
SETTLE_SECONDS = 45
NAMESPACE = "e2e-steady"


@dataclass
class Steady:
    """Three tiers at rest."""

    kit: Kit
    applied: float
    """Wall time of their apply."""
    since: float = math.inf
    """Wall time from which on nothing may be written."""


@pytest.fixture(scope="session")
def steady(platform: Cluster) -> Iterator[Steady]:
    kit = Kit(platform, NAMESPACE)
    kit.create_namespace()
    kit.apply(tier("alpha"), changed(tier("beta"), "spec.scaling.mode", "Fixed"), tier("gamma"))
    yield Steady(kit, time.time())
    kit.delete_namespace(wait=False)


def writes_since(lines: list[str], since: str, namespace: str) -> list[dict[str, Any]]:
    """The operator's writes in a namespace, from the audit log."""
    found = []
    for line in lines:
        event = json.loads(line)
        if (
            event.get("stage") == "ResponseComplete"
            and event.get("user", {}).get("username") == OPERATOR_USER
            and event.get("verb") in ("create", "update", "patch", "delete")
            and event.get("objectRef", {}).get("namespace") == namespace
            and event["requestReceivedTimestamp"] > since
        ):
            found.append(event)
    return found


@pytest.mark.e2e
def test_steady_tiers_are_set_up(steady: Steady):
    assert len(steady.kit.list("servicetiers")) == 3


@pytest.mark.e2e
def test_steady_tiers_come_to_rest(steady: Steady):
    names = ("alpha", "beta", "gamma")
    steady.kit.until_ready(*names)
    for name in names:
        steady.kit.until_condition(name, "MetricsAvailable", "True", seconds=90)
    # The first minute's numbers settle: from no samples to no traffic.
    time.sleep(max(0.0, steady.applied + SETTLE_SECONDS - time.time()))
    steady.since = time.time()


@pytest.mark.e2e
@pytest.mark.timeout(STEADY_SECONDS + 200)
def test_five_steady_minutes_pass_without_a_write_an_event_or_a_mark(steady: Steady):
    kit, began = steady.kit, steady.since
    time.sleep(max(0.0, began + STEADY_SECONDS - time.time()))
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(began))
    lines = kit.cluster.audit_log.read_text(encoding="utf-8").splitlines()
    writes = writes_since(lines, since, NAMESPACE)
    shown = [
        (w["verb"], w["objectRef"]["resource"], w["objectRef"].get("subresource"), w["objectRef"]["name"])
        for w in writes
    ]
    print(f"operator writes in {time.time() - began:.0f} s: {shown}")
    assert shown == []
    events = [e for name in ("alpha", "beta", "gamma") for e in kit.events(name)]
    assert [e for e in events if e["metadata"]["creationTimestamp"] > since] == []
    for obj in kit.list("servicetiers"):
        assert "finalizers" not in obj["metadata"]
        assert set(obj["metadata"]["annotations"]) == {"kubectl.kubernetes.io/last-applied-configuration"}
