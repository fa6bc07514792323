"""The binaries of the cluster, built once from pinned Go modules."""

import os
import re
from pathlib import Path

from e2e.artifacts import go_binary
from e2e.cluster import releases
from e2e.images import binary_image

_HERE = Path(__file__).parent
KUBERNETES = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
)
COMPONENTS = ("etcd", "coredns", *KUBERNETES)
PAUSE_TAG = "localhost/tierkeeper/pause:1"


def kubernetes_version(go_mod: str) -> str:
    """The Kubernetes release that a go.mod pins, such as `v1.36.4`. Raises ValueError where it pins none."""
    found = re.search(r"^\s*(?:require )?k8s\.io/kubernetes (v\d+\.\d+\.\d+)", go_mod, re.MULTILINE)
    if found is None:
        raise ValueError("go.mod does not require k8s.io/kubernetes")
    return found.group(1)


def pinned() -> str:
    """The release that the local cluster is built at."""
    return kubernetes_version((_HERE / "hyperkube" / "go.mod").read_text())


def component(name: str) -> Path:
    """The path of one component, a link to the one binary that holds them all.

    Those of Kubernetes are of the release that $TIERKEEPER_E2E_KUBERNETES names, where it is set.
    """
    chosen = os.environ.get(releases.VARIABLE, "")
    if chosen and name in KUBERNETES:
        return releases.kubernetes(chosen, KUBERNETES).with_name(name)
    flags = releases.version_flags(pinned())
    binary = go_binary("hyperkube", _HERE / "hyperkube", links=COMPONENTS, ldflags=flags, expected_seconds=400)
    return binary.with_name(name)


def pause_image() -> Path:
    """The tar of the image that holds each pod's namespaces."""
    return binary_image(PAUSE_TAG, {"/pause": go_binary("pause", _HERE / "pause")}, ["/pause"])
