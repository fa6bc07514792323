"""The operator's pod meets Pod Security "restricted" field by field, whatever values are set."""

from typing import Any

import pytest

from tests.charts.cases import CASES
from tests.pod_security import RESTRICTED_VOLUMES

pytestmark = [pytest.mark.built, pytest.mark.timeout(1800)]

SHARED_WITH_THE_NODE = ("hostNetwork", "hostPID", "hostIPC", "hostUsers", "shareProcessNamespace", "hostAliases")


@pytest.mark.parametrize(
    "case", ["defaults", "namespaced", "every-value-of-the-pod", "user-of-the-platform", "prometheus-token"]
)
def test_pod_is_restricted(case: str, objects: Any) -> None:
    pod = objects(CASES[case])["Deployment", "tierkeeper-system/tierkeeper"]["spec"]["template"]["spec"]
    assert not [field for field in SHARED_WITH_THE_NODE if field in pod]
    security = pod["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security.get("runAsUser", 1) > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not security.keys() - {"runAsNonRoot", "runAsUser", "runAsGroup", "seccompProfile"}
    (container,) = pod["containers"]
    assert "initContainers" not in pod
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not [port for port in container["ports"] if "hostPort" in port]
    kinds = {kind for volume in pod["volumes"] for kind in volume if kind != "name"}
    assert kinds <= RESTRICTED_VOLUMES
    assert pod["enableServiceLinks"] is False


def test_no_other_pod_is_made(objects: Any) -> None:
    found = objects(CASES["monitors"] | CASES["network-policies"])
    assert [kind for kind, _ in found if kind in {"Job", "CronJob", "DaemonSet", "StatefulSet", "Pod"}] == []
