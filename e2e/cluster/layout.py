"""Where everything lies: the data folder, the addresses, and what a node is called."""

import os
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError

DEFAULT_ROOT = Path("/var/lib/tierkeeper-e2e")
# A Unix socket's path holds at most 107 bytes; the longest below the root is node1's containerd socket, and nodes may
# have two digits.
_LONGEST_ROOT = 107 - len("/node99/containerd.sock.ttrpc")

# 198.18.0.0/15 is set aside for tests of network devices (RFC 2544): it meets neither the machine's own networks nor
# the internet.
SERVICE_RANGE = "198.19.0.0/16"
API_SERVICE_ADDRESS = "198.19.0.1"
CLUSTER_DOMAIN = "cluster.local"
API_PORT = 6443
ETCD_URL = "http://127.0.0.1:2379"
ETCD_PEER_URL = "http://127.0.0.1:2380"
NETWORK_NAME = "tierkeeper-e2e"


@dataclass(frozen=True, slots=True)
class Layout:
    """The data folder of one cluster. All it writes lies below `root`, so that removing the folder removes the
    cluster's state."""

    root: Path

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def run(self) -> Path:
        """One JSON file for each daemon that was started."""
        return self.root / "run"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.root / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        return self.logs / "audit.log"

    @property
    def sysctls(self) -> Path:
        """The kernel settings as they were before the cluster came."""
        return self.root / "sysctls.json"

    def log(self, component: str) -> Path:
        return self.logs / f"{component}.log"

    def create(self) -> None:
        for folder in (self.logs, self.pki, self.run, self.config):
            folder.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o711)


@dataclass(frozen=True, slots=True)
class Node:
    """One node: a kubelet, a kube-proxy and a containerd on a bridge of their own. `index` counts from 0 and chooses
    the addresses."""

    name: str
    index: int
    folder: Path

    @property
    def address(self) -> str:
        """The node's own address, which is also its pods' gateway."""
        return f"198.18.{self.index}.1"

    @property
    def pod_range(self) -> str:
        return f"198.18.{self.index}.0/24"

    @property
    def bridge(self) -> str:
        return f"tkbr{self.index}"

    @property
    def images(self) -> Path:
        """containerd's root: a link to where images outlive the cluster."""
        return self.folder / "images"

    @property
    def socket(self) -> Path:
        """containerd's."""
        return self.folder / "containerd.sock"

    def component(self, kind: str) -> str:
        """The name of one of the node's daemons: plain on the first node, `kubelet-node2` on a further one."""
        return kind if self.index == 0 else f"{kind}-{self.name}"


def layout_from_environment() -> Layout:
    """The layout below $TIERKEEPER_CLUSTER_DIR, else /var/lib/tierkeeper-e2e. Raises ClusterError where the path is
    too long for sockets."""
    root = Path(os.environ.get("TIERKEEPER_CLUSTER_DIR") or DEFAULT_ROOT).absolute()
    if len(str(root)) > _LONGEST_ROOT:
        raise ClusterError(
            f"TIERKEEPER_CLUSTER_DIR={root} is too long for Unix sockets: choose at most {_LONGEST_ROOT} characters"
        )
    if root == Path("/") or root.parent == Path("/"):
        raise ClusterError(
            f"TIERKEEPER_CLUSTER_DIR={root}: `down` removes this folder whole, so it must lie deeper than one level"
        )
    return Layout(root)


def first_node(layout: Layout) -> Node:
    return Node(name="node1", index=0, folder=layout.root / "node1")
