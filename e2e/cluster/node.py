"""A node: its bridge, kubelet and kube-proxy, and the GPUs that the scheduler is told about."""

import json

from e2e.cluster import configs, host
from e2e.cluster.controlplane import Component, kubeconfig_of
from e2e.cluster.kubectl import KubectlCall
from e2e.cluster.layout import SERVICE_RANGE, Layout, Node
from e2e.cluster.processes import Daemon, start

GPU = "nvidia.com/gpu"


def create_bridge(node: Node) -> None:
    """The bridge must carry the node's address before anything binds to it, and before the kubelet registers without
    an InternalIP."""
    host.run("ip", "link", "add", node.bridge, "type", "bridge")
    host.run("ip", "address", "add", f"{node.address}/24", "dev", node.bridge)
    host.run("ip", "link", "set", node.bridge, "up")
    if node.index == 0:
        # kube-proxy rewrites a service's address only after routing: without this route a machine that has no default
        # route could not reach services at all, and traffic to a service that is gone would leave this machine.
        host.run("ip", "route", "add", SERVICE_RANGE, "dev", node.bridge)


def start_agents(node: Node, layout: Layout, component: Component, *, dns_address: str) -> None:
    """Start the kubelet and kube-proxy. The kubelet registers the node by itself."""
    kubelet_file, proxy_file = layout.config / f"{node.name}-kubelet.json", layout.config / f"{node.name}-proxy.json"
    kubelet_file.write_text(configs.as_text(configs.kubelet_configuration(node, layout, dns_address=dns_address)))
    proxy_file.write_text(configs.as_text(configs.proxy_configuration(node, kubeconfig_of(layout, "kube-proxy"))))
    kubelet = (
        str(component("kubelet")),
        f"--config={kubelet_file}",
        f"--kubeconfig={kubeconfig_of(layout, node.name)}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        f"--root-dir={node.folder / 'kubelet'}",
    )
    start(Daemon(node.component("kubelet"), kubelet), layout)
    start(Daemon(node.component("kube-proxy"), (str(component("kube-proxy")), f"--config={proxy_file}")), layout)


def set_gpus(node: Node, kubectl: KubectlCall, count: int) -> None:
    """Tell the scheduler that the node has so many GPUs: an extended resource, patched as Kubernetes documents it.

    The kubelet leaves resources it does not manage alone, so the number stays over its restarts.
    """
    # Allocatable follows from capacity at the kubelet's next report; patching it too saves that wait.
    paths = (f"/status/{kind}/{GPU.replace('/', '~1')}" for kind in ("capacity", "allocatable"))
    patch = [{"op": "add", "path": path, "value": str(count)} for path in paths]
    kubectl("patch", "node", node.name, "--subresource=status", "--type=json", "-p", json.dumps(patch))


def gpus(node: Node, kubectl: KubectlCall) -> int:
    """How many GPUs the scheduler may hand out on the node."""
    document = json.loads(kubectl("get", "node", node.name, "-o", "json"))
    return int(document["status"].get("allocatable", {}).get(GPU, "0"))


def is_ready(node: Node, kubectl: KubectlCall) -> bool:
    query = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
    return kubectl("get", "node", node.name, "--ignore-not-found", "-o", query) == "True"
