"""A pool where the namespace takes restricted pods alone, and its engine as a user that no image knows."""

from __future__ import annotations

import pytest

from e2e.scenarios.kit import Kit, tier

pytestmark = [pytest.mark.e2e, pytest.mark.alongside, pytest.mark.timeout(300)]

ANY_USER = 1000800000
"""As OpenShift hands them out: no name, no home, no group of the image's."""


def test_a_pool_serves_in_a_restricted_namespace_and_its_engine_runs_as_any_user(kit: Kit) -> None:
    kit.cluster.kubectl("label", "namespace", kit.namespace, "pod-security.kubernetes.io/enforce=restricted")
    kit.apply(tier("gold"))
    kit.until_ready("gold")
    spec = kit.get("deployments", "gold-pool")["spec"]["template"]["spec"]
    other = spec | {"securityContext": spec["securityContext"] | {"runAsUser": ANY_USER}}
    kit.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any-user"}, "spec": other})
    kit.kubectl("wait", "--for=condition=Ready", "pod/any-user", "--timeout=60s")
    (status,) = kit.get("pods", "any-user")["status"]["containerStatuses"]
    assert status["restartCount"] == 0
