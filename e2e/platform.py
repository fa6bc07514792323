"""What the local cluster runs besides Kubernetes: the images, Prometheus, and the operator installed by its chart."""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from e2e import tools
from e2e.artifacts import BuildError, Input, cache_dir, cached, run_logged, say
from e2e.cluster import Cluster, ClusterError
from e2e.images import BASE_TAG, binary_image, build_image

ROOT = Path(__file__).resolve().parents[1]
OPERATOR_TAG = "localhost/tierkeeper/operator:dev"
ENGINE_TAG = "localhost/tierkeeper/engine:dev"
PROMETHEUS_TAG = "localhost/tierkeeper/prometheus:dev"
VLLM_CPU_TAG = "localhost/tierkeeper/vllm-cpu:0.32.0"

CHART = ROOT / "charts/tierkeeper"
RELEASE = "tierkeeper"
OPERATOR_NAMESPACE = "tierkeeper-system"
PROMETHEUS_URL = "http://prometheus.monitoring.svc:9090"
_REVISION = "tierkeeper.dev/revision"


def wheelhouse(name: str, lock: Path) -> Path:
    """Download what a hashed requirements file names and return the folder of wheels.

    Downloaded here, through this machine's pip settings, because an image build has none of them. Raises BuildError.
    """

    def build(folder: Path) -> None:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--require-hashes",
            "--no-deps",
            "--only-binary=:all:",
        ]
        run_logged([*command, "--dest", folder / "wheels", "-r", lock], log=folder / "download.log")

    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return cached(f"wheels-{name}", [python, lock], build) / "wheels"


@contextmanager
def _context(files: Mapping[str, Path], wheels: Path) -> Iterator[Path]:
    """A build context with the given files and folders and the wheels, linked and not copied: vLLM's are 790 MB."""
    with tempfile.TemporaryDirectory(prefix=".context-", dir=cache_dir()) as name:
        folder = Path(name)
        for target, source in files.items():
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, folder / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, folder / target)
        shutil.copytree(wheels, folder / "wheels", copy_function=_link)
        yield folder


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


def _python_image(name: str, tag: str, dockerfile: Path, lock: Path, files: Mapping[str, Path]) -> Path:
    """Build a Dockerfile that installs `lock` from a wheelhouse; `files` is what it finds in its context.

    A stage named dependencies is kept as an image of its own, so that a change of the sources installs nothing again.
    """
    inputs: list[Input] = [lock]
    for target, source in sorted(files.items()):
        inputs += [target, source]
    arguments = {"BASE": BASE_TAG, "PIP_OPTIONS": "--no-index --find-links=/context/wheels"}
    parents: dict[str, Path] = {}
    with _context(files, wheelhouse(name, lock)) as folder:
        if "AS dependencies" in dockerfile.read_text(encoding="utf-8"):
            stage = f"localhost/tierkeeper/{name}-dependencies:dev"
            parents[stage] = build_image(stage, folder, dockerfile, arguments, [lock], target="dependencies")
            arguments["DEPENDENCIES"] = stage
        return build_image(tag, folder, dockerfile, arguments, inputs, parents=parents)


def operator_image() -> Path:
    """The operator, from the Dockerfile at the root."""
    lock = ROOT / "requirements.txt"
    files = {"requirements.txt": lock, "operator/tierkeeper": ROOT / "operator/tierkeeper"}
    return _python_image("operator", OPERATOR_TAG, ROOT / "Dockerfile", lock, files)


def engine_image() -> Path:
    """The vLLM-shaped engine, from the Dockerfile in e2e/engine."""
    here = ROOT / "e2e/engine"
    files = {"e2e/__init__.py": ROOT / "e2e/__init__.py", "e2e/engine": here}
    return _python_image("engine", ENGINE_TAG, here / "Dockerfile", here / "requirements.txt", files)


def vllm_cpu_image() -> Path:
    """Real vLLM on CPU with a small model; 790 MB to download and 2.5 GB on disk the first time."""
    here = ROOT / "e2e/vllm_cpu"
    files = {name: here / name for name in ("requirements.lock", "cuda_stubs.py", "make_model.py")}
    return _python_image("vllm-cpu", VLLM_CPU_TAG, here / "Dockerfile", here / "requirements.lock", files)


def prometheus_image() -> Path:
    """Prometheus 3: one static binary and nothing else."""
    return binary_image(PROMETHEUS_TAG, {"bin/prometheus": tools.prometheus()}, ["/bin/prometheus"])


IMAGES: dict[str, Callable[[], Path]] = {
    "operator": operator_image,
    "engine": engine_image,
    "prometheus": prometheus_image,
    "vllm-cpu": vllm_cpu_image,
}


def images(names: Iterable[str] = tuple(IMAGES)) -> list[Path]:
    """The tars of these images, built where the cache lacks them. Raises BuildError, also for an unknown name."""
    chosen = list(names)
    if unknown := sorted(set(chosen) - set(IMAGES)):
        raise BuildError(f"no image {', '.join(unknown)}; there are: {', '.join(IMAGES)}")
    return [IMAGES[name]() for name in chosen]


def load(cluster: Cluster, names: Iterable[str]) -> list[Path]:
    """Build these images and bring them into the cluster; one that is there already is not loaded again."""
    archives = images(names)
    for archive in archives:
        cluster.load(archive)
    return archives


def wait_for_rollout(cluster: Cluster, namespace: str, deployment: str, *, timeout_seconds: int = 120) -> None:
    """Wait until every pod of a Deployment is of its newest revision and Ready; on failure show why it is not.

    Raises ClusterError with the pods, their Events and the end of their logs.
    """
    say(f"waiting for deployment {namespace}/{deployment} ...")
    within = f"--timeout={timeout_seconds}s"
    try:
        cluster.kubectl(
            "-n", namespace, "rollout", "status", f"deployment/{deployment}", within, timeout=timeout_seconds + 10
        )
    except ClusterError as error:
        raise ClusterError(f"{error}\n{_explain(cluster, namespace, deployment)}") from error


def _explain(cluster: Cluster, namespace: str, deployment: str) -> str:
    """What a person would look at next; a command that fails says so in its place."""
    questions = (
        ("get", "pods", "-o", "wide"),
        ("get", "events", "--sort-by=.lastTimestamp", "--field-selector=type=Warning"),
        ("logs", f"deployment/{deployment}", "--tail=30"),
    )
    answers = []
    for question in questions:
        try:
            answers.append(cluster.kubectl("-n", namespace, *question).rstrip())
        except ClusterError as error:
            answers.append(str(error))
    return "\n".join(filter(None, answers))


def prometheus_objects(image: Path) -> list[dict[str, Any]]:
    """The manifests of e2e/prometheus, as they are applied.

    The pod template names image and configuration by content, so that a change of either rolls the pod.
    """
    text = (ROOT / "e2e/prometheus/manifests.yaml").read_text()
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    configuration = next(each["data"]["prometheus.yml"] for each in objects if each["kind"] == "ConfigMap")
    template = next(each["spec"]["template"] for each in objects if each["kind"] == "Deployment")
    revision = f"{image.parent.name}-{hashlib.sha256(configuration.encode()).hexdigest()[:16]}"
    template["metadata"]["annotations"] = {_REVISION: revision}
    return objects


def install_prometheus(cluster: Cluster) -> None:
    """Bring Prometheus 3 to monitoring/prometheus and wait until it answers; does nothing where it already runs so."""
    (image,) = load(cluster, ["prometheus"])
    documents = yaml.safe_dump_all(prometheus_objects(image))
    cluster.kubectl("apply", "--server-side", "--field-manager=e2e", "-f", "-", input=documents)
    wait_for_rollout(cluster, "monitoring", "prometheus")


def install_operator(cluster: Cluster, *, helm: int = 4, values: Mapping[str, Any] | None = None) -> None:
    """Install or upgrade the operator by its chart with Helm 4 or 3, and wait until it is Ready.

    `values` go over the ones that the local cluster needs. A rebuilt image rolls the pod although its tag stays.
    Raises ClusterError with Helm's own words.
    """
    (image,) = load(cluster, ["operator"])
    repository, tag = OPERATOR_TAG.rsplit(":", 1)
    needed = {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "prometheus": {"url": PROMETHEUS_URL, "scrapeIntervalSeconds": 5, "timeoutSeconds": 2},
        "tickSeconds": 5,
        # Real vLLM on two cores must not starve the operator: pods share the CPU by their requests.
        "resources": {"requests": {"cpu": "300m"}},
        "log": {"format": "text"},
        "podAnnotations": {_REVISION: image.parent.name},
    }
    text = json.dumps(merged(needed, values or {}))
    # A CRD that was applied by hand, by the contract tests for example, is taken over as the chart's README describes.
    take_over = ("--take-ownership", "--force-conflicts") if helm == 4 else ("--take-ownership",)
    arguments = ("upgrade", "--install", RELEASE, str(CHART), "--create-namespace", *take_over, "--values", "-")
    run_helm(cluster, *arguments, helm=helm, stdin=text)
    wait_for_rollout(cluster, OPERATOR_NAMESPACE, RELEASE)


def uninstall_operator(cluster: Cluster, *, helm: int = 4) -> None:
    """Remove the release where there is one; the CRD and the tiers stay, as the chart promises."""
    run_helm(cluster, "uninstall", RELEASE, "--ignore-not-found", "--wait", helm=helm)


def bring_up(cluster: Cluster, names: Iterable[str] = IMAGES) -> None:
    """What scenarios and demo stand on: these images in the cluster, Prometheus, and the operator, which says its
    figures every 5 s here. Does nothing where all of it is there."""
    load(cluster, names)
    install_prometheus(cluster)
    install_operator(cluster, values={"extraEnv": [{"name": "TIERKEEPER_STATUS_INTERVAL_SECONDS", "value": "5"}]})


def forget_tiers(cluster: Cluster, namespace: str) -> None:
    """Remove a namespace's tiers, and all that Prometheus remembers: tiers that come under the same names begin anew.

    Does nothing where there is no such namespace.
    """
    if not cluster.kubectl("get", "namespace", namespace, "--ignore-not-found"):
        return
    say(f"removing the tiers of {namespace} and their samples (pods drain for up to half a minute) ...")
    cluster.kubectl("delete", "namespace", namespace, "--timeout=120s", timeout=130)
    cluster.kubectl("delete", "pod", "-n", "monitoring", "--all", "--ignore-not-found", timeout=130)


def run_helm(cluster: Cluster, *arguments: str, helm: int = 4, stdin: str | None = None) -> str:
    """Run Helm in the operator's namespace and return its stdout. Raises ClusterError with what it says on stderr."""
    binary = {3: tools.helm3, 4: tools.helm4}[helm]()
    command = [str(binary), "--kubeconfig", str(cluster.kubeconfig), "--namespace", OPERATOR_NAMESPACE, *arguments]
    say(f"helm {arguments[0]} (Helm {helm}) ...")
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise ClusterError(f"`helm {' '.join(arguments)}` (Helm {helm}) failed: {done.stderr.strip()}")
    return done.stdout


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Two trees of Helm values as one: `over` wins, maps are merged, anything else is replaced whole."""
    result = dict(base)
    for name, value in over.items():
        below = result.get(name)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        result[name] = merged(below, value) if both and below is not None else value
    return result


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="python -m e2e.platform",
        description="Build and install what the local cluster runs besides Kubernetes. The cluster must be up.",
    )
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    build = commands.add_parser("images", help="build images and print their tars")
    build.add_argument("names", nargs="*", metavar="NAME", help=f"which (default all): {', '.join(IMAGES)}")
    build.add_argument("--load", action="store_true", help="bring them into the cluster too")
    commands.add_parser("up", help="bring up what the scenarios stand on: all images, Prometheus and the operator")
    commands.add_parser("prometheus", help="install Prometheus 3 at prometheus.monitoring:9090")
    operator = commands.add_parser("operator", help="install or upgrade the operator by its chart")
    operator.add_argument("--helm", type=int, choices=(3, 4), default=4, help="which Helm (default %(default)s)")
    operator.add_argument("--values", type=Path, metavar="FILE", help="more chart values, as YAML")
    operator.add_argument("--uninstall", action="store_true", help="remove it instead")
    return root


def _run(options: argparse.Namespace) -> None:
    cluster = Cluster()
    match options.command:
        case "images":
            names = options.names or list(IMAGES)
            print(*(load(cluster, names) if options.load else images(names)), sep="\n")
        case "up":
            bring_up(cluster)
        case "prometheus":
            install_prometheus(cluster)
        case _ if options.uninstall:
            uninstall_operator(cluster, helm=options.helm)
        case _:
            values = yaml.safe_load(options.values.read_text()) if options.values else None
            install_operator(cluster, helm=options.helm, values=values)


def main(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    try:
        _run(parser().parse_args(arguments))
    except (BuildError, ClusterError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
