"""Other Kubernetes releases for the local cluster, each built once from its own published modules.

Only what is Kubernetes is built: etcd, CoreDNS, containerd and runc stay the cluster's own, since nothing above the API
server meets them. The module's go.mod and go.sum are written into the artifact, beside the binary.
"""

import shutil
import subprocess
from pathlib import Path

from e2e.artifacts import BuildError, Input, cached, go_version, run_logged
from e2e.cluster.hyperkube import make_gomod

_HERE = Path(__file__).parent / "hyperkube"
VARIABLE = "TIERKEEPER_E2E_KUBERNETES"
"""The environment variable that chooses the release of the local cluster, such as v1.34.4; unset: the pinned one."""


def version_flags(version: str) -> str:
    """Linker flags that make the binaries report their release: without them the API server calls itself v0.0.0, and
    Helm charts refuse it."""
    major, minor, _ = version.removeprefix("v").split(".")
    package = "k8s.io/component-base/version"
    return f"-X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"


def kubernetes(release: str, components: tuple[str, ...]) -> Path:
    """The binary of this release, with `components` as links beside it. Raises BuildError."""
    command = ["nice", "-n", "5", "go", "build", "-mod=mod", "-trimpath", f"-ldflags=-s -w {version_flags(release)}"]
    command += ["-o", "hyperkube", "."]

    def build(folder: Path) -> None:
        (folder / "go.mod").write_text(_go_mod(release))
        shutil.copy2(_HERE / "main.go", folder)
        environment = {"CGO_ENABLED": "0", "GOWORK": "off"}
        run_logged(command, log=folder / "build.log", cwd=folder, env=environment)
        for name in components:
            (folder / name).symlink_to("hyperkube")

    inputs: list[Input] = [*command, *components, go_version(), _HERE / "main.go", Path(make_gomod.__file__)]
    return cached(f"hyperkube-{release}", inputs, build, expected_seconds=900) / "hyperkube"


def _go_mod(release: str) -> str:
    try:
        return make_gomod.render(release, None, make_gomod.upstream_go_mod(release))
    except subprocess.CalledProcessError as error:
        raise BuildError(f"the Go module proxy has no k8s.io/kubernetes {release}") from error
