"""The cluster as an object: up, down, status, kubectl, images, and single components ended and started again."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.artifacts import locked, say
from e2e.cluster import binaries, cleanup, controlplane, dns, host, loading, node, processes, runtime
from e2e.cluster.errors import ClusterError
from e2e.cluster.kubectl import Kubectl
from e2e.cluster.layout import Layout, first_node, layout_from_environment
from e2e.cluster.waits import wait_for

EXISTING = "TIERKEEPER_E2E_EXISTING"
DEFAULT_GPUS = 16


@dataclass(frozen=True, slots=True)
class Status:
    """What is there. `state` is running, absent, or broken (traces of a cluster that does not answer)."""

    state: str
    details: tuple[str, ...]


class Cluster:
    """One local cluster, or an existing one where KUBECONFIG and TIERKEEPER_E2E_EXISTING=1 are set.

    The data folder comes from $TIERKEEPER_CLUSTER_DIR. Every method raises ClusterError with a message for the person
    at the terminal.
    """

    def __init__(self, layout: Layout | None = None) -> None:
        self.layout = layout or layout_from_environment()
        self.node = first_node(self.layout)
        self.existing = os.environ.get(EXISTING) == "1"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        if not self.existing:
            return self.layout.kubeconfig
        path = os.environ.get("KUBECONFIG")
        if not path:
            raise ClusterError(f"{EXISTING}=1 uses the cluster of KUBECONFIG, which is not set")
        return Path(path)

    @property
    def audit_log(self) -> Path:
        """The API server's audit log, one JSON object a line."""
        if self.existing:
            raise ClusterError(f"{EXISTING}=1: the audit log of an existing cluster is not ours to read")
        return self.layout.audit_log

    @property
    def kubectl_binary(self) -> Path:
        if not self.existing:
            return binaries.component("kubectl")
        found = shutil.which("kubectl")
        if found is None:
            raise ClusterError(f"{EXISTING}=1 needs a kubectl on PATH")
        return Path(found)

    def kubectl(self, *arguments: str, input: str | None = None, timeout: float = 300) -> str:  # noqa: A002 - subprocess calls it so
        """Run kubectl as administrator and return its stdout; `input` is its stdin. Raises ClusterError with its
        stderr."""
        return Kubectl(self.kubectl_binary, self.kubeconfig)(*arguments, input=input, timeout=timeout)

    def up(self, *, gpus: int = DEFAULT_GPUS, audit_everything: bool = False) -> Status:
        """Start the cluster unless it runs. What an interrupted run left is removed first. Returns when pods can be
        scheduled and names resolve."""
        if self.existing:
            return self.status()
        host.require_root_and_packages()
        with self._lock():
            status = self.status()
            if status.state == "running":
                if node.gpus(self.node, self.kubectl) == gpus:
                    return status
                self._set_gpus(gpus)
                return self.status()
            if found := cleanup.traces(self.layout):
                say(f"removing what an earlier run left: {', '.join(found)}")
                cleanup.clean(self.layout)
            binaries.component("kubectl")
            pause = binaries.pause_image()
            self._start(pause, gpus=gpus, audit_everything=audit_everything)
            return self.status()

    def _start(self, pause: Path, *, gpus: int, audit_everything: bool) -> None:
        layout, address, component = self.layout, self.node.address, binaries.component
        host.require_free_ports()
        layout.create()
        host.save_sysctls(layout)
        controlplane.create_credentials(layout, self.node)
        node.create_bridge(self.node)
        controlplane.start_all(layout, component, address=address, audit_everything=audit_everything)
        runtime.start_runtime(self.node, layout)
        loading.load(self.node, pause)
        node.start_agents(self.node, layout, component, dns_address=address)
        kubectl = Kubectl(self.kubectl_binary, self.kubeconfig)
        dns.start_dns(layout, component, kubectl, address=address)
        log = layout.log(self.node.component("kubelet"))
        wait_for("the node to be Ready", lambda: node.is_ready(self.node, kubectl), timeout=90, log=log)
        self._set_gpus(gpus)
        account = ("get", "serviceaccount", "default", "--namespace=default", "--ignore-not-found", "-o", "name")
        wait_for(
            "the first service account",
            lambda: bool(kubectl(*account)),
            timeout=60,
            log=layout.log("kube-controller-manager"),
        )

    def _set_gpus(self, count: int) -> None:
        kubectl = Kubectl(self.kubectl_binary, self.kubeconfig)
        node.set_gpus(self.node, kubectl, count)
        wait_for(f"{count} GPUs to be allocatable", lambda: node.gpus(self.node, kubectl) == count, timeout=60)

    def down(self) -> None:
        """End everything and remove every trace; does nothing to an existing cluster, or where there is no cluster."""
        if self.existing:
            return
        host.require_root_and_packages()
        with self._lock():
            cleanup.clean(self.layout)

    def status(self) -> Status:
        """What runs, and whether it answers. Quick, and never waits for more than a few seconds."""
        if self.existing:
            return Status("running", (self.kubectl("version").strip(),))
        recorded = processes.recorded(self.layout)
        if not recorded:
            found = cleanup.traces(self.layout)
            return (
                Status("broken", (f"left by an interrupted run: {', '.join(found)}",))
                if found
                else Status("absent", ())
            )
        details = [_describe(daemon) for daemon in recorded]
        if missing := sorted(self._components() - {daemon.name for daemon in recorded if daemon.alive}):
            return Status("broken", (*details, f"not running: {', '.join(missing)}"))
        ready = f"{controlplane.server_url(self.node.address)}/readyz"
        if not controlplane.answers(ready, self.layout.pki / "ca.crt"):
            return Status("broken", (*details, f"the API server does not answer on {ready}"))
        if not node.is_ready(self.node, self.kubectl):
            return Status("broken", (*details, f"{self.node.name} is not Ready"))
        return Status("running", (*details, self._usage()))

    def _components(self) -> set[str]:
        shared = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns"}
        return shared | {self.node.component(kind) for kind in ("containerd", "kubelet", "kube-proxy")}

    def _usage(self) -> str:
        pods = json.loads(self.kubectl("get", "pods", "--all-namespaces", "-o", "json"))["items"]
        gpus, images = node.gpus(self.node, self.kubectl), loading.images(self.node)
        return f"{self.node.name}: Ready, {len(pods)} pods, {gpus} GPUs, {len(images)} images"

    def load(self, archive: Path) -> bool:
        """Bring an image archive into the cluster; returns False where it was already there."""
        if self.existing:
            raise ClusterError(f"{EXISTING}=1: {archive.name} must be pushed to a registry that the cluster pulls from")
        return loading.load(self.node, archive)

    def stop(self, component: str) -> None:
        """End one component and leave it ended, as a fault would; `start` brings it back."""
        processes.stop(self._recorded(component))

    def start(self, component: str) -> None:
        """Start a component that was ended, with the command it had. Returns at once: it becomes ready by itself."""
        found = self._recorded(component)
        if not found.alive:
            processes.start(processes.Daemon(found.name, found.command), self.layout)

    def _recorded(self, component: str) -> processes.Running:
        known = {daemon.name: daemon for daemon in processes.recorded(self.layout)}
        if component not in known:
            raise ClusterError(
                f"no component {component!r} here, only: {', '.join(known) or 'none (the cluster is not up)'}"
            )
        return known[component]

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with locked("cluster", waiting_for="another `e2e.cluster` command"):
            yield


def _describe(daemon: processes.Running) -> str:
    if not daemon.alive:
        return f"{daemon.name:24} ended (was pid {daemon.pid})"
    return f"{daemon.name:24} pid {daemon.pid:<8} {processes.resident_bytes(daemon.pid) / 1e6:5.0f} MB"
