"""The configuration files of the components, as text. Pure: nothing here touches the machine."""

import json
from pathlib import Path

from e2e.cluster.binaries import PAUSE_TAG
from e2e.cluster.layout import CLUSTER_DOMAIN, NETWORK_NAME, Layout, Node

Json = dict[str, object]


def containerd_toml(node: Node, *, disabled: tuple[str, ...] = ()) -> str:
    """containerd's configuration: all state below the node's folder; `disabled` are plugins it shall not load."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE runc cannot lower oom_score_adj, and every sandbox fails with
    # "can't get final child's PID". netns_mounts_under_state_dir and the runc root: else network namespaces and
    # runc's state lie in /run, where `down` could not tell whose they are.
    return f"""\
version = 2
root = "{node.images}"
state = "{node.folder}/containerd"
disabled_plugins = {json.dumps(disabled)}
[grpc]
  address = "{node.socket}"
[{cri}]
  sandbox_image = "{PAUSE_TAG}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [{cri}.cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{node.folder}/cni"
  [{cri}.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [{cri}.containerd.runtimes.runc.options]
      Root = "{node.folder}/runc"
"""


def cni_conflist(node: Node) -> Json:
    """Pods are ports of the node's bridge. No masquerading: pods speak to each other, to services and to this
    machine, to nothing else."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": node.pod_range}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(node.folder / "ipam"),
    }
    bridge = {
        "type": "bridge",
        "bridge": node.bridge,
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": ipam,
    }
    return {"cniVersion": "0.4.0", "name": NETWORK_NAME, "plugins": [bridge]}


def kubelet_configuration(node: Node, layout: Layout, *, dns_address: str) -> Json:
    """The kubelet's configuration; everything not named is the kubelet's own default, so that what is measured here
    holds elsewhere."""
    pki = layout.pki
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "healthzBindAddress": node.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        # Without pod cgroups the kubelet of 1.36 panics (nil pointer in doPodResizeAction) once a container that has a
        # CPU or memory request waits for a missing Secret.
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,  # from 1.35 on the kubelet refuses cgroup v1 otherwise
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,  # kube-proxy speaks nftables; nothing here reads iptables chains
        "clusterDNS": [dns_address],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": "",  # the machine's resolver is none of the pods' business
        "containerRuntimeEndpoint": f"unix://{node.socket}",
        "podLogsDir": str(node.folder / "pod-logs"),
        "volumePluginDir": str(node.folder / "volume-plugins"),
        "tlsCertFile": str(pki / f"{node.name}.crt"),
        "tlsPrivateKeyFile": str(pki / f"{node.name}.key"),
        # A development machine's disk is often fuller than 85 %; images and pods must not vanish for that.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }


def proxy_configuration(node: Node, kubeconfig: Path) -> Json:
    """kube-proxy's configuration: nftables, and no change to the machine's connection tracking settings (the zeros)."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "clusterCIDR": "198.18.0.0/16",
        "hostnameOverride": node.name,
        "healthzBindAddress": f"{node.address}:10256",
        "metricsBindAddress": "",
        "nodePortAddresses": [f"{node.address}/32"],
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def corefile(*, address: str, kubeconfig: Path) -> str:
    """The DNS server's configuration: the cluster's names from the API server, and a clean "no such name" for all
    others.

    The records live 5 s, CoreDNS's own default, so that a headless Service shows a new pod soon.
    """
    return f"""\
{CLUSTER_DOMAIN}:53 in-addr.arpa:53 {{
    bind {address}
    errors
    ready {address}:8181
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig}
        ttl 5
    }}
    cache 5
}}
.:53 {{
    bind {address}
    errors
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""


def audit_policy(*, everything: bool) -> Json:
    """What the API server's audit log holds, always as metadata (who, verb, object, code) and never as request or
    response bodies.

    By default every request to our own API group and of the operator, and every write to the kinds of
    objects that a controller has under it; with `everything` all requests, reads and the control plane's own included.
    """
    metadata: Json = {"level": "Metadata", "omitStages": ["RequestReceived"]}
    if everything:
        rules: list[Json] = [metadata]
    else:
        writes = ["create", "update", "patch", "delete", "deletecollection"]
        children = [
            {
                "group": "",
                "resources": ["services", "configmaps", "pods", "pods/*", "events", "secrets", "serviceaccounts"],
            },
            {"group": "apps", "resources": ["deployments", "deployments/*"]},
            {"group": "autoscaling"},
            {"group": "coordination.k8s.io"},
            {"group": "events.k8s.io"},
            {"group": "gateway.networking.k8s.io"},
            {"group": "policy"},
            {"group": "scheduling.k8s.io"},
        ]
        # The control plane and the node renew their own leases all the time; they would bury what is looked for.
        own = {"level": "None", "resources": [{"group": "coordination.k8s.io"}, {"group": "", "resources": ["events"]}]}
        components = ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"]
        rules = [
            {**own, "userGroups": ["system:nodes"]},
            {**own, "users": components},
            {**metadata, "userGroups": ["system:serviceaccounts:tierkeeper-system"]},
            {**metadata, "resources": [{"group": "tierkeeper.dev"}]},
            {**metadata, "verbs": writes, "resources": children},
            {"level": "None"},
        ]
    return {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}


def as_text(document: Json) -> str:
    """JSON, which every YAML reader of Kubernetes takes."""
    return json.dumps(document, indent=1) + "\n"
