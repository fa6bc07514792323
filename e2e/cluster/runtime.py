"""containerd: its images kept from one cluster to the next, everything else made anew.

Importing gigabytes of images, and deleting them again, would cost minutes on every `up` and `down`. So containerd's
root lies in the cache, behind a link from the node's folder. What containers an earlier cluster had are removed
before the new one's containerd offers them to the kubelet.
"""

import hashlib
import shutil
import subprocess
from pathlib import Path

from e2e.artifacts import cache_dir, say
from e2e.cluster import configs, host, processes
from e2e.cluster.errors import ClusterError
from e2e.cluster.layout import Layout, Node
from e2e.cluster.processes import Daemon, Running
from e2e.cluster.waits import wait_for

_CRI = "io.containerd.grpc.v1.cri"
_OPT = "io.containerd.internal.v1.opt"  # would create /opt/containerd


def image_store(node: Node) -> Path:
    """Where the node's images are kept between clusters."""
    return cache_dir() / f"store-{hashlib.sha256(str(node.folder).encode()).hexdigest()[:12]}"


def start_runtime(node: Node, layout: Layout) -> None:
    """Start containerd with the images it had, and wait for its socket. Needs nothing of the control plane.

    Images that an interrupted run damaged are thrown away, since they can be loaded again. Raises ClusterError with
    the end of the log.
    """
    store = image_store(node)
    for folder in ("cni", "ipam", "pod-logs", "volume-plugins", "kubelet"):
        (node.folder / folder).mkdir(parents=True, exist_ok=True)
    node.images.symlink_to(store)
    (node.folder / "cni" / "10-bridge.conflist").write_text(configs.as_text(configs.cni_conflist(node)))
    if store.exists():
        try:
            _forget_containers(node, layout)
        except ClusterError as error:
            say(f"the kept images cannot be used, starting without them: {error}")
            for running in processes.recorded(layout):
                if running.name == node.component("containerd"):
                    processes.stop(running)
            shutil.rmtree(store)
    store.mkdir(exist_ok=True)
    _start(node, layout, disabled=(_OPT,))


def _forget_containers(node: Node, layout: Layout) -> None:
    """Remove the containers of the last cluster with their file systems, by a containerd that nobody else speaks to."""
    for state in (_CRI, "io.containerd.runtime.v2.task"):
        shutil.rmtree(node.images / state, ignore_errors=True)
    running = _start(node, layout, disabled=(_OPT, _CRI))
    if containers := ctr(node, "containers", "list", "-q").split():
        ctr(node, "containers", "rm", *containers)
    processes.stop(running)


def _start(node: Node, layout: Layout, *, disabled: tuple[str, ...]) -> Running:
    name = node.component("containerd")
    config = node.folder / "containerd.toml"
    config.write_text(configs.containerd_toml(node, disabled=disabled))
    running = processes.start(Daemon(name, ("containerd", "--config", str(config))), layout)
    wait_for("containerd", lambda: answers(node), timeout=30, log=layout.log(name), alive=lambda: running.alive)
    return running


def answers(node: Node) -> bool:
    command = ["ctr", "-a", str(node.socket), "version"]
    return node.socket.exists() and subprocess.run(command, capture_output=True).returncode == 0


def ctr(node: Node, *arguments: str) -> str:
    """Run ctr in the kubelet's containerd namespace and return its stdout. Raises ClusterError with its stderr."""
    return host.run("ctr", "-a", str(node.socket), "-n", "k8s.io", *arguments)
