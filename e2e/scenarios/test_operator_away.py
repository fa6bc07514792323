"""Nothing waits for the operator: no finalizer stands between a user and a deletion."""

from __future__ import annotations

import pytest

from e2e.scenarios.kit import Kit, tier

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_a_tier_deletes_at_once_while_the_operator_is_away(kit: Kit):
    kit.apply(tier("gold"))
    kit.until_ready("gold")
    operator = ("-n", "tierkeeper-system", "scale", "deployment/tierkeeper")
    kit.cluster.kubectl(*operator, "--replicas=0")
    try:
        kit.kubectl("delete", "servicetier", "gold", "--timeout=20s")
        kit.until("the pool to be collected without the operator", lambda: not kit.list("deployments"))
    finally:
        kit.cluster.kubectl(*operator, "--replicas=1")
        kit.cluster.kubectl("-n", "tierkeeper-system", "rollout", "status", "deployment/tierkeeper", "--timeout=60s")
