"""A steady pool costs the API server nothing: no write, no Event, no mark on the user's object.

The steady tiers are set up, left alone while the demo runs beside them, and judged after it (conftest.py orders it so).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import pytest

from e2e import audit
from e2e.cluster import Cluster
from e2e.scenarios.kit import Kit, Object, changed, tier

STEADY_SECONDS = 300
SETTLING_SECONDS = 180
"""A new tier waits for samples, then for half a minute without traffic, and for the machine: then it is at rest."""
NAMESPACE = "e2e-steady"
NAMES = ("alpha", "beta", "gamma")


@dataclass
class Steady:
    """Three tiers that nobody asks for anything."""

    kit: Kit
    applied: float
    """Wall time of their apply."""


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


def last_write(steady: Steady) -> float:
    """Wall time of the operator's last write for the tiers."""
    times = [str(event["requestReceivedTimestamp"]) for event in writes_since(steady.kit, steady.applied)]
    return datetime.fromisoformat(max(times)).timestamp()


def settled(steady: Steady, last: float) -> bool:
    return last - steady.applied < SETTLING_SECONDS


@pytest.mark.e2e
def test_steady_tiers_are_set_up(steady: Steady) -> None:
    assert len(steady.kit.list("servicetiers")) == len(NAMES)


@pytest.mark.e2e
@pytest.mark.timeout(STEADY_SECONDS + SETTLING_SECONDS + 100)
def test_five_steady_minutes_pass_without_a_write_an_event_or_a_mark(steady: Steady) -> None:
    kit = steady.kit
    while (quiet := time.time() - (began := last_write(steady))) < STEADY_SECONDS and settled(steady, began):
        time.sleep(STEADY_SECONDS - quiet)
    assert settled(steady, began), f"the operator wrote {began - steady.applied:.0f} s after the apply\n{kit.explain()}"
    print(f"operator writes in {quiet:.0f} s: none")
    for name in NAMES:
        assert kit.condition(name, "Ready")["status"] == "True"
        assert kit.condition(name, "MetricsAvailable")["status"] == "True"
    told = [event for name in NAMES for event in kit.events(name)]
    assert [one for one in told if one["metadata"]["creationTimestamp"] > audit.log_time(began + 1.0)] == []
    for obj in kit.list("servicetiers"):
        assert "finalizers" not in obj["metadata"]
        assert set(obj["metadata"]["annotations"]) == {"kubectl.kubernetes.io/last-applied-configuration"}
