"""What a killed cluster leaves is recognized from the kernel's own listings, and nobody else's things are."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from e2e.cluster import cleanup
from e2e.cluster.layout import Layout
from e2e.cluster.processes import Daemon, kill_all, owned_pids, parse_start_time, recorded, root_lies_below, start, stop

ROOT = Path("/var/lib/tierkeeper-e2e")

MOUNTINFO = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
41 22 0:36 / /var/lib/tierkeeper-e2e/node1/containerd/state/sandboxes/1/shm rw - tmpfs shm rw
42 22 0:37 / /var/lib/tierkeeper-e2e/node1/with\\040blank rw - tmpfs tmpfs rw
43 22 0:38 / /var/lib/tierkeeper-e2e-other/data rw - tmpfs tmpfs rw
44 41 0:39 / /var/lib/tierkeeper-e2e/node1/containerd/state/sandboxes/1/shm rw - tmpfs again rw
"""


def test_mounts_below_the_root_come_last_mounted_first() -> None:
    shm = "/var/lib/tierkeeper-e2e/node1/containerd/state/sandboxes/1/shm"
    assert cleanup.mounts_below(MOUNTINFO, ROOT) == [shm, "/var/lib/tierkeeper-e2e/node1/with blank", shm]


def test_a_container_is_known_by_the_overlay_it_calls_its_root() -> None:
    container = (
        "500 400 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/var/lib/tierkeeper-e2e/node1/containerd/root/1/fs,"
        "upperdir=/var/lib/tierkeeper-e2e/node1/containerd/root/2/fs,workdir=/var/lib/tierkeeper-e2e/node1/containerd/root/2/work\n"
    )
    assert root_lies_below(container, ROOT)
    assert not root_lies_below(container, Path("/var/lib/other"))


def test_a_process_of_the_machine_that_merely_sees_our_mounts_is_not_ours() -> None:
    overlay = (
        "45 22 0:50 / /var/lib/tierkeeper-e2e/rootfs rw - overlay overlay rw,upperdir=/var/lib/tierkeeper-e2e/x/fs\n"
    )
    assert not root_lies_below(MOUNTINFO + overlay, ROOT)


def test_the_bridge_and_its_ports_are_ours_and_other_bridges_are_not() -> None:
    links = [
        {"ifname": "lo"},
        {"ifname": "tkbr0"},
        {"ifname": "veth1", "master": "tkbr0"},
        {"ifname": "docker0"},
        {"ifname": "veth2", "master": "docker0"},
        {"ifname": "tkbridge"},
    ]
    assert cleanup.our_links(json.dumps(links)) == ["veth1", "tkbr0"]


def test_only_kube_proxy_tables_are_removed() -> None:
    tables: list[dict[str, object]] = [{"metainfo": {"version": "1.0.6"}}]
    tables += [
        {"table": {"family": f, "name": n, "handle": 1}}
        for f, n in (("ip", "kube-proxy"), ("inet", "filter"), ("ip6", "kube-proxy"))
    ]
    assert cleanup.proxy_tables(json.dumps({"nftables": tables})) == [("ip", "kube-proxy"), ("ip6", "kube-proxy")]


def test_no_output_of_nft_means_no_tables() -> None:
    assert cleanup.proxy_tables("") == []


@pytest.mark.parametrize(
    ("stat", "expected"),
    [
        ("7 (sleep) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1", 12345),
        ("7 (a) b (c)) R 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 99 1 1", 99),
        ("7 (gone) Z 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1", None),
    ],
    ids=["plain", "name with parentheses", "zombie"],
)
def test_a_start_time_is_read_behind_any_name_and_a_zombie_has_none(stat: str, expected: int | None) -> None:
    assert parse_start_time(stat) == expected


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "cluster")
    layout.create()
    return layout


def test_a_daemon_is_recorded_runs_and_ends(layout: Layout) -> None:
    running = start(Daemon("sleeper", ("sleep", "60")), layout)
    assert recorded(layout) == [running]
    assert running.alive
    stop(running)
    assert not running.alive


def test_the_output_of_a_daemon_is_in_its_log(layout: Layout) -> None:
    running = start(Daemon("speaker", ("sh", "-c", "echo out; echo err >&2; exec sleep 60")), layout)
    for _ in range(100):
        if layout.log("speaker").read_text() == "out\nerr\n":
            break
        subprocess.run(["sleep", "0.02"], check=True)
    stop(running)
    assert layout.log("speaker").read_text() == "out\nerr\n"


def test_a_daemon_that_ignores_the_polite_signal_is_killed(layout: Layout) -> None:
    running = start(Daemon("stubborn", ("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done")), layout)
    stop(running, grace_seconds=0.2)
    assert not running.alive


def test_processes_and_their_children_are_found_without_their_records(layout: Layout) -> None:
    start(Daemon("parent", ("sh", "-c", "sleep 60 & wait")), layout)
    for record in layout.run.iterdir():
        record.unlink()
    for _ in range(100):
        if len(owned_pids(layout.root)) >= 2:
            break
        subprocess.run(["sleep", "0.02"], check=True)
    assert kill_all(layout.root) >= 2
    assert owned_pids(layout.root) == []


def test_a_person_who_exports_the_data_folder_owns_none_of_its_processes(layout: Layout) -> None:
    environment = {**os.environ, "TIERKEEPER_CLUSTER_DIR": str(layout.root)}
    shell = subprocess.Popen(["sleep", "60"], env=environment)
    try:
        assert owned_pids(layout.root) == []
    finally:
        shell.kill()
        shell.wait()
