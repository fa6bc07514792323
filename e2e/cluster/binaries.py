"""The binaries of the cluster, built once from pinned Go modules."""

import re
from pathlib import Path

from e2e.artifacts import go_binary
from e2e.images import binary_image

_HERE = Path(__file__).parent
COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "coredns",
    "kubectl",
)
PAUSE_TAG = "localhost/tierkeeper/pause:1"


def kubernetes_version(go_mod: str) -> str:
    """The Kubernetes release that a go.mod pins, such as `v1.36.4`. Raises ValueError where it pins none."""
    found = re.search(r"^\s*(?:require )?k8s\.io/kubernetes (v\d+\.\d+\.\d+)", go_mod, re.MULTILINE)
    if found is None:
        raise ValueError("go.mod does not require k8s.io/kubernetes")
    return found.group(1)


def version_flags(version: str) -> str:
    """Linker flags that make the binaries report their release: without them the API server calls itself v0.0.0, and
    Helm charts refuse it."""
    major, minor, _ = version.removeprefix("v").split(".")
    package = "k8s.io/component-base/version"
    return f"-X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"


def component(name: str) -> Path:
    """The path of one component, a link to the one binary that holds them all."""
    version = kubernetes_version((_HERE / "hyperkube" / "go.mod").read_text())
    binary = go_binary(
        "hyperkube", _HERE / "hyperkube", links=COMPONENTS, ldflags=version_flags(version), expected_seconds=400
    )
    return binary.with_name(name)


def pause_image() -> Path:
    """The tar of the image that holds each pod's namespaces."""
    return binary_image(PAUSE_TAG, {"/pause": go_binary("pause", _HERE / "pause")}, ["/pause"])
