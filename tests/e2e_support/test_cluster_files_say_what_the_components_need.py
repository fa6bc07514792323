"""The rendered configuration of the local cluster."""

import hashlib
import io
import json
import tarfile
import tomllib
from pathlib import Path

import pytest

from e2e.cluster import binaries, cluster, configs, controlplane, host, layout, loading, pki, releases
from e2e.cluster.errors import ClusterError
from e2e.images import debian_mirror

PLACE = layout.Layout(Path("/data"))
NODE = layout.first_node(PLACE)


def test_containerd_keeps_all_its_state_below_the_node() -> None:
    document = tomllib.loads(configs.containerd_toml(NODE, disabled=("a", "b")))
    cri = document["plugins"]["io.containerd.grpc.v1.cri"]
    places = [document["root"], document["state"], document["grpc"]["address"], cri["cni"]["conf_dir"]]
    places.append(cri["containerd"]["runtimes"]["runc"]["options"]["Root"])
    assert all(place.startswith("/data/node1/") for place in places)
    assert document["disabled_plugins"] == ["a", "b"]
    assert cri["netns_mounts_under_state_dir"] is True


def test_the_socket_of_a_containerd_fits_a_unix_socket_path() -> None:
    node = layout.Node("node99", 99, layout.DEFAULT_ROOT / "node99")
    assert len(f"{node.socket}.ttrpc") <= 107


def test_a_data_folder_too_long_for_sockets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERKEEPER_CLUSTER_DIR", "/var/" + "x" * 100)
    with pytest.raises(ClusterError, match="too long for Unix sockets"):
        layout.layout_from_environment()


@pytest.mark.parametrize("folder", ["/", "/var"])
def test_a_data_folder_that_down_must_not_remove_is_refused(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.setenv("TIERKEEPER_CLUSTER_DIR", folder)
    with pytest.raises(ClusterError, match="must lie deeper"):
        layout.layout_from_environment()


def test_nodes_have_addresses_and_names_of_their_own() -> None:
    second = layout.Node("node2", 1, Path("/data/node2"))
    assert (NODE.address, NODE.pod_range, NODE.bridge) == ("198.18.0.1", "198.18.0.0/24", "tkbr0")
    assert (second.address, second.pod_range, second.bridge) == ("198.18.1.1", "198.18.1.0/24", "tkbr1")
    assert NODE.component("kubelet") == "kubelet"
    assert second.component("kubelet") == "kubelet-node2"


def test_pods_ask_the_cluster_dns_and_never_the_resolver_of_the_machine() -> None:
    document = configs.kubelet_configuration(NODE, PLACE, dns_address="198.18.0.1")
    assert document["clusterDNS"] == ["198.18.0.1"]
    assert document["resolvConf"] == ""


def test_the_kubelet_keeps_its_own_refresh_and_sync_periods() -> None:
    document = configs.kubelet_configuration(NODE, PLACE, dns_address="198.18.0.1")
    assert not {"syncFrequency", "configMapAndSecretChangeDetectionStrategy", "nodeStatusUpdateFrequency"} & set(
        document
    )


def test_the_audit_policy_never_asks_for_bodies() -> None:
    for everything in (False, True):
        text = json.dumps(configs.audit_policy(everything=everything))
        assert '"Metadata"' in text
        assert '"Request"' not in text
        assert "RequestResponse" not in text


def test_the_audit_policy_logs_every_request_to_the_group_and_of_the_operator_and_no_other_read() -> None:
    rules = configs.audit_policy(everything=False)["rules"]
    assert isinstance(rules, list)
    operator = [rule for rule in rules if rule.get("userGroups") == ["system:serviceaccounts:tierkeeper-system"]]
    assert [rule["level"] for rule in operator] == ["Metadata"]
    assert not {"verbs", "resources"} & set(operator[0])
    group = [rule for rule in rules if {"group": "tierkeeper.dev"} in rule.get("resources", [])]
    assert [rule["level"] for rule in group] == ["Metadata"]
    assert "verbs" not in group[0]
    others = [rule for rule in rules if rule["level"] == "Metadata" and rule not in group + operator]
    assert all("get" not in rule["verbs"] and "watch" not in rule["verbs"] for rule in others)
    assert rules[-1] == {"level": "None"}


def test_every_listener_is_on_the_bridge_or_on_loopback() -> None:
    command = controlplane.api_server(PLACE, lambda name: Path("/bin") / name, address=NODE.address).command
    assert f"--bind-address={NODE.address}" in command
    for daemon in (controlplane.controller_manager, controlplane.scheduler):
        assert "--bind-address=127.0.0.1" in daemon(PLACE, lambda name: Path("/bin") / name).command


def test_the_scheduler_and_each_agent_has_an_identity_of_its_own() -> None:
    users = {identity.name: identity.user for identity in controlplane.identities(NODE)}
    assert users["node1"] == "system:node:node1"
    assert users["kube-proxy"] == "system:kube-proxy"
    administrators = [i.name for i in controlplane.identities(NODE) if "system:masters" in i.groups]
    assert administrators == ["apiserver-kubelet", "admin"]


def test_a_certificate_tells_addresses_from_names() -> None:
    lines = pki.extension_lines(pki.Identity("x", "x", serves=("kubernetes.default", "198.19.0.1")))
    assert "subjectAltName=DNS:kubernetes.default,IP:198.19.0.1" in lines


def test_a_kubeconfig_needs_no_other_file(tmp_path: Path) -> None:
    for name in ("ca.crt", "admin.crt", "admin.key"):
        (tmp_path / name).write_text(name)
    document = json.loads(pki.kubeconfig(tmp_path, "admin", server="https://198.18.0.1:6443"))
    assert str(tmp_path) not in json.dumps(document)
    assert document["clusters"][0]["cluster"]["server"] == "https://198.18.0.1:6443"


def test_the_release_in_go_mod_is_the_release_the_binaries_report() -> None:
    version = binaries.pinned()
    flags = releases.version_flags(version)
    major, minor = version.removeprefix("v").split(".")[:2]
    assert f"gitVersion={version}" in flags
    assert f"gitMajor={major}" in flags
    assert f"gitMinor={minor}" in flags


def test_every_package_has_a_command_that_proves_it() -> None:
    assert set(host.packages()) == set(host.PROOFS)


def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "PROOFS", {**host.PROOFS, "runc": "no-such-command-here"})
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(host, "packages", lambda: ["runc"])
    with pytest.raises(ClusterError, match="apt-get install -y --no-install-recommends runc"):
        host.require_root_and_packages()


def archive(path: Path, **members: str) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(name.replace("_", "."))
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


def test_an_archive_is_known_by_its_manifest(tmp_path: Path) -> None:
    one = loading.archive_identity(archive(tmp_path / "one.tar", manifest_json="a", layer="1"))
    again = loading.archive_identity(archive(tmp_path / "two.tar", layer="other order", manifest_json="a"))
    assert one == again == hashlib.sha256(b"a").hexdigest()
    assert loading.archive_identity(archive(tmp_path / "oci.tar", index_json="b")) != one


def test_a_file_that_is_no_image_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"x\.tar: neither a docker archive"):
        loading.archive_identity(archive(tmp_path / "x.tar", readme="hello"))
    (tmp_path / "y.tar").write_text("text")
    with pytest.raises(ClusterError, match=r"y\.tar: not a readable image archive"):
        loading.archive_identity(tmp_path / "y.tar")


def test_imported_names_are_read_from_the_output_of_ctr() -> None:
    output = "unpacking localhost/tierkeeper/pause:1 (sha256:0123)...done\n"
    assert loading.imported_names(output) == ["localhost/tierkeeper/pause:1"]


def test_the_mirror_of_this_machine_is_used_and_not_its_security_or_foreign_sources() -> None:
    deb822 = (
        "Types: deb\nURIs: http://security.example/debian-security\n\nTypes: deb\nURIs: http://mirror.example/debian/\n"
    )
    one_line = (
        "# deb http://old.example/debian x main\ndeb [signed-by=/x] https://mirror.example/debian bookworm main\n"
    )
    assert debian_mirror(deb822) == "http://mirror.example/debian"
    assert debian_mirror(one_line) == "https://mirror.example/debian"
    assert debian_mirror("") is None


def test_an_existing_cluster_is_neither_started_nor_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "kubectl"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("KUBECONFIG", "/some/kubeconfig")
    monkeypatch.setenv(cluster.EXISTING, "1")
    existing = cluster.Cluster(layout.Layout(tmp_path / "data"))
    existing.up()
    existing.down()
    assert (tmp_path / "calls").read_text() == "--kubeconfig=/some/kubeconfig version\n"
    assert not (tmp_path / "data").exists()
    with pytest.raises(ClusterError, match="pushed to a registry"):
        existing.load(tmp_path / "image.tar")
