"""Nothing waits for the operator: a namespace full of tiers goes while the operator still writes to them."""

from __future__ import annotations

import json

import pytest

from e2e.scenarios.kit import Kit, changed, tier

pytestmark = [pytest.mark.e2e, pytest.mark.alongside, pytest.mark.timeout(300)]

TIERS = 50


def test_a_namespace_with_fifty_tiers_is_gone_within_two_minutes(kit: Kit) -> None:
    """Paused, so that they have a status but no pods: what is tried is the race of deletion and status writes."""
    tiers = [changed(tier(f"t{number}"), "spec.scaling.mode", "Paused") for number in range(TIERS)]
    kit.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": tiers}))
    kit.until("the operator to begin", lambda: kit.condition("t0", "Ready")["status"])
    assert all("finalizers" not in obj["metadata"] for obj in kit.list("servicetiers"))
    kit.delete_namespace()  # raises after 120 s
    assert kit.cluster.kubectl("get", "namespace", kit.namespace, "--ignore-not-found") == ""
