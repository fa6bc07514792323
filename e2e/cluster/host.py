"""The machine: what must be there before the cluster can start, and the kernel settings it will change."""

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from e2e.cluster.errors import ClusterError
from e2e.cluster.layout import ETCD_PEER_URL, ETCD_URL, Layout

# The command that shows that a Debian package of packages.txt is there.
PROOFS = {
    "buildah": "buildah",
    "ca-certificates": "update-ca-certificates",
    "containerd": "containerd",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "debootstrap": "debootstrap",
    "iproute2": "ip",
    "nftables": "nft",
    "openssl": "openssl",
    "runc": "runc",
    "util-linux": "mount",
}
# What kubelet, kube-proxy and the bridge plugin set on their own; `down` sets them back.
SYSCTLS = (
    "net/ipv4/ip_forward",
    "net/ipv4/vs/conntrack",
    "net/netfilter/nf_conntrack_tcp_be_liberal",
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
_SYS = Path("/proc/sys")


def packages() -> list[str]:
    """The Debian packages the cluster and its images need, from packages.txt."""
    return Path(__file__).with_name("packages.txt").read_text().split()


def missing_packages() -> list[str]:
    """Those whose command is not on this machine."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [name for name in packages() if shutil.which(PROOFS[name], path=path) is None]


def require_root_and_packages() -> None:
    """Raises ClusterError naming what is missing, with the line that remedies it."""
    if os.geteuid() != 0:
        raise ClusterError(
            "a cluster needs root (network namespaces, mounts): run this as root, "
            "or point KUBECONFIG at a cluster and set TIERKEEPER_E2E_EXISTING=1"
        )
    missing = missing_packages()
    if missing:
        remedy = f"apt-get install -y --no-install-recommends {' '.join(missing)}"
        raise ClusterError(f"missing Debian packages: {', '.join(missing)}. Install them: {remedy}")


def require_free_ports() -> None:
    """Raises ClusterError where something else listens on etcd's ports."""
    for url in (ETCD_URL, ETCD_PEER_URL):
        parts = urlsplit(url)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((parts.hostname, parts.port))
            except OSError as error:
                remedy = f"end it: `ss -ltnp 'sport = :{parts.port}'` shows which"
                raise ClusterError(
                    f"{parts.netloc} is taken by another process ({error.strerror}); {remedy}"
                ) from error


def save_sysctls(layout: Layout) -> None:
    """Record the settings as they are now, before anything of ours runs."""
    current = {name: (_SYS / name).read_text().strip() for name in SYSCTLS if (_SYS / name).exists()}
    layout.sysctls.write_text(json.dumps(current))


def restore_sysctls(layout: Layout) -> None:
    """Set them back as recorded; nothing recorded, nothing done."""
    if not layout.sysctls.exists():
        return
    for name, value in json.loads(layout.sysctls.read_text()).items():
        path = _SYS / name
        if path.exists() and path.read_text().strip() != value:
            path.write_text(value)


def run(*command: str, check: bool = True) -> str:
    """Run a command of the machine and return its stdout. Raises ClusterError with its stderr, unless `check` is
    false."""
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise ClusterError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout
