"""A steady pool costs the API server nothing: no write, no Event, no mark on the user's object.

The steady tiers are set up early, left alone while the demo runs beside them, and judged after it (conftest.py orders
it so).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import pytest

from e2e import audit
from e2e.cluster import Cluster
from e2e.scenarios.kit import Kit, Object, changed, tier

STEADY_SECONDS = 300
REST_SECONDS = 45
"""Longer than a new tier waits for anything: samples, no traffic, and 30 s of it until nothing is to be given back."""
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


def writes_since(kit: Kit, since: float) -> list[Object]:
    """The operator's writes in the namespace from a wall time on."""
    with kit.cluster.audit_log.open(encoding="utf-8") as lines:
        return audit.writes(lines, since=audit.log_time(since), namespace=kit.namespace)


def seconds_at_rest(steady: Steady) -> float:
    """Since the operator's last write for the tiers."""
    times = [str(event["requestReceivedTimestamp"]) for event in writes_since(steady.kit, steady.applied)]
    return time.time() - datetime.fromisoformat(max(times)).timestamp()


@pytest.mark.e2e
def test_steady_tiers_are_set_up(steady: Steady) -> None:
    assert len(steady.kit.list("servicetiers")) == 3


@pytest.mark.e2e
@pytest.mark.timeout(400)
def test_steady_tiers_come_to_rest(steady: Steady) -> None:
    names = ("alpha", "beta", "gamma")
    steady.kit.until_ready(*names)
    for name in names:
        steady.kit.until_condition(name, "MetricsAvailable", "True", seconds=90)
    until = time.time() + 180
    while (rest := seconds_at_rest(steady)) < REST_SECONDS:
        assert time.time() < until, f"the operator wrote {rest:.0f} s ago\n{steady.kit.explain()}"
        time.sleep(REST_SECONDS - rest)
    steady.since = time.time()


@pytest.mark.e2e
@pytest.mark.timeout(STEADY_SECONDS + 200)
def test_five_steady_minutes_pass_without_a_write_an_event_or_a_mark(steady: Steady) -> None:
    kit, began = steady.kit, steady.since
    time.sleep(max(0.0, began + STEADY_SECONDS - time.time()))
    shown = [
        (w["verb"], w["objectRef"]["resource"], w["objectRef"].get("subresource"), w["objectRef"]["name"])
        for w in writes_since(kit, began)
    ]
    print(f"operator writes in {time.time() - began:.0f} s: {shown}")
    assert shown == []
    events = [e for name in ("alpha", "beta", "gamma") for e in kit.events(name)]
    assert [e for e in events if e["metadata"]["creationTimestamp"] > audit.log_time(began)] == []
    for obj in kit.list("servicetiers"):
        assert "finalizers" not in obj["metadata"]
        assert set(obj["metadata"]["annotations"]) == {"kubectl.kubernetes.io/last-applied-configuration"}
