"""etcd, the API server, the controller manager and the scheduler."""

import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from e2e.cluster import configs, pki
from e2e.cluster.layout import API_PORT, API_SERVICE_ADDRESS, ETCD_PEER_URL, ETCD_URL, SERVICE_RANGE, Layout, Node
from e2e.cluster.processes import Daemon, start
from e2e.cluster.waits import wait_for

Component = Callable[[str], Path]


def server_url(address: str) -> str:
    return f"https://{address}:{API_PORT}"


def identities(node: Node) -> list[pki.Identity]:
    """Everyone who needs a certificate, the node's two included."""
    names = (
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
    )
    return [
        pki.Identity("apiserver", "kube-apiserver", serves=(*names, "127.0.0.1", API_SERVICE_ADDRESS, node.address)),
        pki.Identity("apiserver-kubelet", "kube-apiserver-kubelet-client", ("system:masters",)),
        pki.Identity("apiserver-front-proxy", "front-proxy-client"),
        pki.Identity("admin", "admin", ("system:masters",)),
        pki.Identity("kube-controller-manager", "system:kube-controller-manager"),
        pki.Identity("kube-scheduler", "system:kube-scheduler"),
        pki.Identity("kube-proxy", "system:kube-proxy"),
        pki.Identity("coredns", "system:coredns"),
        pki.Identity(node.name, f"system:node:{node.name}", ("system:nodes",), serves=(node.name, node.address)),
    ]


def create_credentials(layout: Layout, node: Node) -> None:
    """Write all certificates and kubeconfigs. The administrator's kubeconfig lies at the root of the data folder."""
    pki.create_authority(layout.pki)
    for identity in identities(node):
        pki.issue(layout.pki, identity)
        if not identity.name.startswith("apiserver"):
            path = layout.kubeconfig if identity.name == "admin" else kubeconfig_of(layout, identity.name)
            path.touch(mode=0o600)
            path.write_text(pki.kubeconfig(layout.pki, identity.name, server=server_url(node.address)))


def kubeconfig_of(layout: Layout, name: str) -> Path:
    return layout.config / f"{name}.kubeconfig"


def etcd(layout: Layout, component: Component) -> Daemon:
    urls = ("--listen-client-urls", ETCD_URL, "--advertise-client-urls", ETCD_URL, "--listen-peer-urls", ETCD_PEER_URL)
    peers = ("--initial-advertise-peer-urls", ETCD_PEER_URL, "--initial-cluster", f"default={ETCD_PEER_URL}")
    # --unsafe-no-fsync: the data does not outlive the cluster, and a slow disk must not look like a slow API server.
    return Daemon(
        "etcd", (str(component("etcd")), "--data-dir", str(layout.root / "etcd"), *urls, *peers, "--unsafe-no-fsync")
    )


def api_server(layout: Layout, component: Component, *, address: str) -> Daemon:
    folder = layout.pki
    return Daemon(
        "kube-apiserver",
        (
            str(component("kube-apiserver")),
            f"--etcd-servers={ETCD_URL}",
            f"--bind-address={address}",
            f"--advertise-address={address}",
            f"--secure-port={API_PORT}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--tls-cert-file={folder}/apiserver.crt",
            f"--tls-private-key-file={folder}/apiserver.key",
            f"--client-ca-file={folder}/ca.crt",
            f"--service-account-key-file={folder}/sa.pub",
            f"--service-account-signing-key-file={folder}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--kubelet-certificate-authority={folder}/ca.crt",
            f"--kubelet-client-certificate={folder}/apiserver-kubelet.crt",
            f"--kubelet-client-key={folder}/apiserver-kubelet.key",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
            *_aggregation(folder),
            f"--audit-policy-file={layout.config}/audit-policy.json",
            f"--audit-log-path={layout.audit_log}",
            "--audit-log-mode=blocking",  # a request that was answered is in the log: a test may read it at once
        ),
    )


def _aggregation(folder: Path) -> tuple[str, ...]:
    """What lets the API server pass requests on to APIs served from pods, such as a metrics adapter's."""
    return (
        f"--requestheader-client-ca-file={folder}/ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={folder}/apiserver-front-proxy.crt",
        f"--proxy-client-key-file={folder}/apiserver-front-proxy.key",
        "--enable-aggregator-routing",  # to the endpoints: the control plane need not go through kube-proxy
    )


def controller_manager(layout: Layout, component: Component) -> Daemon:
    kubeconfig = kubeconfig_of(layout, "kube-controller-manager")
    return Daemon(
        "kube-controller-manager",
        (
            str(component("kube-controller-manager")),
            *_delegated(kubeconfig),
            f"--service-account-private-key-file={layout.pki}/sa.key",
            f"--root-ca-file={layout.pki}/ca.crt",
            f"--cluster-signing-cert-file={layout.pki}/ca.crt",
            f"--cluster-signing-key-file={layout.pki}/ca.key",
            "--use-service-account-credentials",
            f"--flex-volume-plugin-dir={layout.root}/volume-plugins",  # the default is created in /usr
        ),
    )


def scheduler(layout: Layout, component: Component) -> Daemon:
    return Daemon(
        "kube-scheduler", (str(component("kube-scheduler")), *_delegated(kubeconfig_of(layout, "kube-scheduler")))
    )


def _delegated(kubeconfig: Path) -> tuple[str, ...]:
    files = tuple(
        f"--{flag}={kubeconfig}" for flag in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    )
    return (*files, "--leader-elect=false", "--bind-address=127.0.0.1")


def start_all(layout: Layout, component: Component, *, address: str, audit_everything: bool) -> None:
    """Start the control plane and wait until the API server is ready. Raises ClusterError with the end of the log
    that explains it."""
    policy = configs.as_text(configs.audit_policy(everything=audit_everything))
    (layout.config / "audit-policy.json").write_text(policy)
    running = start(etcd(layout, component), layout)
    wait_for(
        "etcd", lambda: answers(f"{ETCD_URL}/health"), timeout=30, log=layout.log("etcd"), alive=lambda: running.alive
    )
    api = start(api_server(layout, component, address=address), layout)
    ready = f"{server_url(address)}/readyz"
    authority = layout.pki / "ca.crt"
    wait_for(
        "the API server",
        lambda: answers(ready, authority),
        timeout=90,
        log=layout.log("kube-apiserver"),
        alive=lambda: api.alive,
    )
    for daemon in (controller_manager(layout, component), scheduler(layout, component)):
        start(daemon, layout)


def answers(url: str, authority: Path | None = None) -> bool:
    """Whether a GET is answered with 200 within two seconds. No proxy of the environment is used: these are addresses
    of this machine."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if authority is not None:
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(authority))))
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
