"""Go programs besides Kubernetes, each built once from its pinned module: Helm 4, Helm 3, Prometheus and promtool, and
one of ours that asks the libraries of Flux and Argo CD.

Beside them Debian's older Prometheus, as its package has it. `python -m e2e.tools` builds what is missing and prints
where all of it lies."""

from pathlib import Path

from e2e.artifacts import GO_NO_DEBUG, Input, cached, go_binary, run_logged

HERE = Path(__file__).parent
PROMETHEUS_VERSION = "3.16.0"  # module version v0.316.0

_DEBIAN_PROMETHEUS = "prometheus/bookworm"

# The modules do not say their own version, and Helm 3 built without one takes every cluster it cannot ask for v1.20.
_HELM4_LDFLAGS = "-X helm.sh/helm/v4/internal/version.version=v4.3.1"
_HELM3_LDFLAGS = (
    "-X helm.sh/helm/v3/internal/version.version=v3.22.0"
    " -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=36"
)
# Of 27 service discoveries only Kubernetes' is used; the others bring the SDK of every cloud.
_PROMETHEUS_TAGS = "-tags=remove_all_sd,enable_kubernetes_sd"
_PROMETHEUS_LDFLAGS = f"-ldflags=-s -w -X github.com/prometheus/common/version.Version={PROMETHEUS_VERSION}"

# Helm 4's module pins what it shares with Prometheus' at the same versions, so that it is compiled once.


def helm4() -> Path:
    """The Helm 4 binary; raises BuildError."""
    package = "helm.sh/helm/v4/cmd/helm"
    return go_binary("helm4", HERE / "helm4", package, ldflags=_HELM4_LDFLAGS, expected_seconds=190)


def helm3() -> Path:
    """The Helm 3 binary; raises BuildError."""
    package = "helm.sh/helm/v3/cmd/helm"
    return go_binary("helm3", HERE / "helm3", package, ldflags=_HELM3_LDFLAGS, expected_seconds=80)


def prometheus() -> Path:
    """The Prometheus 3 server, without the assets of its web UI (its API is complete); raises BuildError."""
    return _prometheus("prometheus")


def promtool() -> Path:
    """promtool of the same release: checks configuration and rules; raises BuildError."""
    return _prometheus("promtool")


def judge() -> Path:
    """The program that tells a tier's health as kstatus, Argo CD and Flux do, by their own libraries; raises
    BuildError."""
    return go_binary("judge", HERE / "judge", expected_seconds=60)


def debian_prometheus() -> Path:
    """Debian 12's Prometheus 2.42, unpacked from its package and not installed; raises BuildError."""

    def build(folder: Path) -> None:
        log = folder / "build.log"
        if not any(Path("/var/lib/apt/lists").glob("*_Packages*")):
            run_logged(["apt-get", "update", "-qq"], log=log)
        # The user _apt may not write into the cache folder.
        run_logged(["apt-get", "download", "-o", "APT::Sandbox::User=root", _DEBIAN_PROMETHEUS], log=log, cwd=folder)
        package = next(folder.glob("prometheus_*.deb"))
        run_logged(["dpkg-deb", "-x", str(package), str(folder / "root")], log=log)
        package.unlink()

    return cached("debian-prometheus", [_DEBIAN_PROMETHEUS], build, expected_seconds=5) / "root/usr/bin/prometheus"


def _prometheus(name: str) -> Path:
    module = HERE / "prometheus"
    command = ["nice", "-n", "5", "go", "build", "-mod=readonly", "-trimpath"]
    command += [GO_NO_DEBUG, _PROMETHEUS_TAGS, _PROMETHEUS_LDFLAGS]
    package = f"github.com/prometheus/prometheus/cmd/{name}"

    def build(folder: Path) -> None:
        whole = [*command, "-o", str(folder / name), package]
        run_logged(whole, log=folder / "build.log", cwd=module, env={"CGO_ENABLED": "0", "GOWORK": "off"})

    inputs: list[Input] = [*command, package, module / "go.mod", module / "go.sum"]
    return cached(name, inputs, build, expected_seconds=200) / name


ALL = (prometheus, promtool, helm4, helm3, judge, debian_prometheus)
