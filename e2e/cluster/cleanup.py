"""Finding and removing all that a cluster leaves on a machine, however it ended.

Nothing here trusts records: the processes may have been killed, so what is left is found in /proc, the mount table
and the network.
"""

import json
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from e2e.cluster import host, runtime
from e2e.cluster.errors import ClusterError
from e2e.cluster.layout import NETWORK_NAME, Layout, first_node
from e2e.cluster.processes import kill_all, owned_pids

_CNI_CACHE = Path("/var/lib/cni/results")
_SHIM_SOCKETS = Path("/run/containerd/s")
_CONTAINER_LOGS = Path("/var/log/containers")
# The kubelet's socket for device plugins lies here, whatever its root folder is.
_DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
_CGROUPS = Path("/sys/fs/cgroup")
_BRIDGE = re.compile(r"^tkbr\d+$")


def traces(layout: Layout) -> list[str]:
    """What of a cluster is on this machine, in words; empty where there is nothing."""
    found = []
    if pids := owned_pids(layout.root):
        found.append(f"{len(pids)} processes")
    if mounts := _mounts(layout):
        found.append(f"{len(mounts)} mounts")
    if links := our_links(host.run("ip", "-json", "-details", "link", "show")):
        found.append(f"{len(links)} network links")
    if layout.root.exists():
        found.append(f"the folder {layout.root}")
    return found


def clean(layout: Layout) -> None:
    """Remove the cluster at the layout's root: processes, mounts, links, firewall tables, sockets, cgroups, kernel
    settings, data.

    Safe to call again at any point, also after it was interrupted itself. Raises ClusterError naming what does not go
    away.
    """
    kill_all(layout.root)
    sockets = _shim_sockets(layout)
    _unmount(layout)
    _remove_links()
    _remove_tables()
    for path in [*sockets, *_cni_results(), *_log_links(layout), *_device_plugin_files()]:
        path.unlink(missing_ok=True)
    _remove_cgroups()
    host.restore_sysctls(layout)
    _remove_data(layout)
    for folder in (
        _DEVICE_PLUGINS,
        _DEVICE_PLUGINS.parent,
        _SHIM_SOCKETS,
        _SHIM_SOCKETS.parent / "fifo",
        _SHIM_SOCKETS.parent,
        _CNI_CACHE,
        _CNI_CACHE.parent,
        _CONTAINER_LOGS,
    ):
        _remove_if_empty(folder)


def mounts_below(mountinfo: str, root: Path) -> list[str]:
    """Mount points at or below `root`, the last mounted first, from the text of /proc/self/mountinfo (which escapes
    blanks in octal)."""
    points = [re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), line.split(" ")[4]) for line in mountinfo.splitlines()]
    return [point for point in reversed(points) if point == str(root) or point.startswith(f"{root}/")]


def our_links(listing: str) -> list[str]:
    """Our bridges, and every link that is a port of one, from the output of `ip -json link show`; ports first."""
    links = json.loads(listing or "[]")
    ports = [link["ifname"] for link in links if _BRIDGE.match(link.get("master", ""))]
    return ports + [link["ifname"] for link in links if _BRIDGE.match(link["ifname"])]


def proxy_tables(listing: str) -> list[tuple[str, str]]:
    """kube-proxy's nftables tables as (family, name), from the output of `nft --json list tables`."""
    entries = [entry["table"] for entry in json.loads(listing or '{"nftables": []}')["nftables"] if "table" in entry]
    return [(table["family"], table["name"]) for table in entries if table["name"] == "kube-proxy"]


def _mounts(layout: Layout) -> list[str]:
    """In the data folder, and where an interrupted import left the layer it was unpacking in the image store."""
    table = Path("/proc/self/mountinfo").read_text()
    return mounts_below(table, layout.root) + mounts_below(table, runtime.image_store(first_node(layout)))


def _unmount(layout: Layout) -> None:
    for _ in range(5):  # mounts may lie on each other, and each round takes the top one
        mounts = _mounts(layout)
        if not mounts:
            return
        host.run("umount", "--lazy", *mounts, check=False)
    raise ClusterError(f"still mounted: {', '.join(mounts)}")


def _remove_links() -> None:
    # A port vanishes by itself when the kernel gets round to its network namespace, hence no check; a bridge that
    # stays is noticed.
    for link in our_links(host.run("ip", "-json", "-details", "link", "show")):
        host.run("ip", "link", "delete", link, check=False)
    bridges = [link for link in our_links(host.run("ip", "-json", "-details", "link", "show")) if _BRIDGE.match(link)]
    if bridges:
        raise ClusterError(f"network bridges that cannot be deleted: {', '.join(bridges)}")


def _remove_tables() -> None:
    for family, name in proxy_tables(host.run("nft", "--json", "list", "tables", check=False)):
        host.run("nft", "delete", "table", family, name)


def _shim_sockets(layout: Layout) -> list[Path]:
    """containerd's shims keep their sockets in /run/containerd/s under a hash; each task's folder says which is its
    own."""
    addresses = layout.root.glob("*/containerd/io.containerd.runtime.v2.task/*/*/address")
    return [Path(address.read_text().removeprefix("unix://")) for address in addresses]


def _cni_results() -> list[Path]:
    """What the CNI library noted of our pods: one file for each network a pod is on, the loopback network included."""
    pods = [path.name.removeprefix(f"{NETWORK_NAME}-").split("-")[0] for path in _CNI_CACHE.glob(f"{NETWORK_NAME}-*")]
    return [path for pod in pods for path in _CNI_CACHE.glob(f"*-{pod}-*")]


def _device_plugin_files() -> list[Path]:
    return [_DEVICE_PLUGINS / name for name in ("kubelet.sock", "kubelet_internal_checkpoint")]


def _log_links(layout: Layout) -> list[Path]:
    """The kubelet links every container's log into /var/log/containers, whatever its configuration says."""
    links = _CONTAINER_LOGS.glob("*.log")
    return [link for link in links if link.is_symlink() and str(link.readlink()).startswith(f"{layout.root}/")]


def _remove_cgroups() -> None:
    """Remove the emptied cgroups of containers, children first; one with a process in it is not empty, and stays."""
    names = ("k8s.io", "kubepods")
    parents = [path for name in names for path in (*_CGROUPS.glob(f"*/{name}"), *_CGROUPS.glob(name))]
    folders = [Path(path) for parent in parents for path, _, _ in os.walk(parent)]
    for folder in sorted(folders, key=lambda path: len(path.parts), reverse=True):
        _remove_if_empty(folder)


def _remove_data(layout: Layout) -> None:
    if layout.root.exists():
        shutil.rmtree(layout.root)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # not there, or somebody else uses it
        folder.rmdir()
