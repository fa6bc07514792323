"""The cluster's DNS: CoreDNS as a process of the machine, on the node's address.

Not a Deployment: names then resolve from the first pod on, whatever happens to the pods.
"""

from e2e.cluster import configs
from e2e.cluster.controlplane import Component, answers, kubeconfig_of
from e2e.cluster.kubectl import KubectlCall
from e2e.cluster.layout import Layout
from e2e.cluster.processes import Daemon, start
from e2e.cluster.waits import wait_for

_ROLE: configs.Json = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "system:coredns"},
    "rules": [
        {"apiGroups": [""], "resources": ["services", "namespaces", "pods", "endpoints"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ],
}
_BINDING: configs.Json = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "system:coredns"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:coredns"}],
}


def start_dns(layout: Layout, component: Component, kubectl: KubectlCall, *, address: str) -> None:
    """Grant CoreDNS its rights, start it and wait until it has seen every Service. Raises ClusterError with the end
    of its log."""
    kubectl("apply", "-f", "-", input=configs.as_text({"apiVersion": "v1", "kind": "List", "items": [_ROLE, _BINDING]}))
    corefile = layout.config / "Corefile"
    corefile.write_text(configs.corefile(address=address, kubeconfig=kubeconfig_of(layout, "coredns")))
    running = start(Daemon("coredns", (str(component("coredns")), str(corefile))), layout)
    ready = f"http://{address}:8181/ready"
    wait_for(
        "the cluster's DNS", lambda: answers(ready), timeout=30, log=layout.log("coredns"), alive=lambda: running.alive
    )
