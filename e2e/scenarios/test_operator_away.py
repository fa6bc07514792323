"""Nothing waits for the operator, and what it wrote last stays readable."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from e2e.cluster import Cluster
from e2e.platform import OPERATOR_NAMESPACE, RELEASE, wait_for_rollout
from e2e.scenarios.kit import Kit, tier
from tests.api.full_tier import STATUS, TIER

pytestmark = [pytest.mark.e2e, pytest.mark.exchanged, pytest.mark.timeout(300)]


@contextmanager
def operator_away(cluster: Cluster) -> Iterator[None]:
    """The operator scaled to nothing, and back."""
    operator = ("-n", OPERATOR_NAMESPACE, "scale", f"deployment/{RELEASE}")
    cluster.kubectl(*operator, "--replicas=0")
    cluster.kubectl("-n", OPERATOR_NAMESPACE, "wait", "--for=delete", "pods", "--all", "--timeout=60s")
    try:
        yield
    finally:
        cluster.kubectl(*operator, "--replicas=1")
        wait_for_rollout(cluster, OPERATOR_NAMESPACE, RELEASE, timeout_seconds=60)


def the_table_shows_promise_and_state(kit: Kit) -> None:
    kit.apply(TIER | {"metadata": {"name": "shown"}})
    written = kit.get("servicetiers", "shown") | {"status": STATUS}
    kit.kubectl("replace", "--subresource=status", "-f", "-", input=json.dumps(written))
    head, row = kit.kubectl("get", "svctier", "shown").splitlines()
    assert re.split(r"\s{2,}", head.strip()) == [
        "NAME", "READY", "MET", "TTFT P99", "TPOT P99", "BURN 5M", "REPLICAS", "SEQS", "AGE",
    ]  # fmt: skip
    assert row.split()[:8] == ["shown", "True", "Unknown", "412/500ms", "31/50ms", "0.4x", "2/2→3", "64→48"]
    assert len(head) <= 100
    wide = kit.kubectl("get", "tierkeeper", "shown", "-o", "wide").splitlines()[1]
    assert re.search(r"Auto\s+63%\s+TpotLowerCap\s+PoolReady\s+2 of 2 replicas are Ready", wide)
    kit.kubectl("delete", "servicetier", "shown")  # the operator would make a pool of it


def test_tiers_are_shown_and_delete_at_once_while_the_operator_is_away(kit: Kit) -> None:
    kit.apply(tier("gold"))
    kit.until_ready("gold")
    with operator_away(kit.cluster):
        kit.kubectl("delete", "servicetier", "gold", "--timeout=20s")
        kit.until("the pool to be collected without the operator", lambda: not kit.list("deployments"))
        the_table_shows_promise_and_state(kit)
