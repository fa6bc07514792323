"""The command line: `python -m e2e.cluster COMMAND`."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from e2e.artifacts import BuildError
from e2e.cluster.cluster import DEFAULT_GPUS, Cluster, Status
from e2e.cluster.errors import ClusterError

_EPILOG = """\
examples:
  python -m e2e.cluster up                       # the first time builds Kubernetes (minutes), later ~20 s
  python -m e2e.cluster kubectl get pods -A
  export KUBECONFIG=$(python -m e2e.cluster kubeconfig)
  python -m e2e.cluster load IMAGE.tar           # pods then use it by a tag other than :latest
  python -m e2e.cluster stop kube-apiserver      # a fault, for real; `start kube-apiserver` ends it
  python -m e2e.cluster down

environment:
  TIERKEEPER_CACHE         built binaries and images (default ~/.cache/tierkeeper); deleting it costs only time
  TIERKEEPER_CLUSTER_DIR   the cluster's data (default /var/lib/tierkeeper-e2e), removed by `down`
  TIERKEEPER_E2E_KUBERNETES   another Kubernetes release, such as v1.34.4: built once, which takes minutes
  KUBECONFIG with TIERKEEPER_E2E_EXISTING=1   use that cluster: nothing is built, started or removed
"""


# Each command's summary, and what its own --help says besides.
_COMMANDS = {
    "up": (
        "start the cluster and wait until pods can run",
        "What an interrupted run left is removed first. Where the cluster runs, nothing is started again.",
    ),
    "down": (
        "end the cluster and remove every trace of it",
        "Ends all processes, containers included; removes mounts, links, firewall tables and data. Safe at any time. "
        "Built binaries and loaded images stay in the cache.",
    ),
    "status": ("show each component", "Exit code 0: running; 1: not there, or broken."),
    "kubeconfig": ("print the path of the administrator's kubeconfig", ""),
    "logs": ("show the end of a component's log", "Without a component: list the logs."),
    "load": ("bring docker or OCI image archives into the cluster", "One that is already there is skipped."),
    "stop": ("end one component, as a fault would", ""),
    "start": ("start a component that was ended", "It becomes ready by itself."),
    "kubectl": ("run kubectl as administrator", "Everything after it is kubectl's own; try `kubectl --help` there."),
}


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="python -m e2e.cluster",
        description="A whole real Kubernetes on this machine, without Docker. Needs Linux and root.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    added = {
        name: commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}. {more}".strip())
        for name, (summary, more) in _COMMANDS.items()
    }
    gpus = "nvidia.com/gpu that the scheduler may hand out (default %(default)s)"
    added["up"].add_argument("--gpus", type=int, default=DEFAULT_GPUS, metavar="N", help=gpus)
    audit = (
        "audit every request, not only those to our API group and writes to a controller's children; "
        "takes effect when the cluster starts"
    )
    added["up"].add_argument("--audit", action="store_true", help=audit)
    logs = added["logs"]
    logs.add_argument("component", nargs="?", help="such as kube-apiserver, kubelet, containerd, or audit")
    logs.add_argument("--lines", type=int, default=100, metavar="N", help="how many lines (default %(default)s)")
    added["load"].add_argument("archives", nargs="+", type=Path, metavar="TAR")
    for name in ("stop", "start"):
        added[name].add_argument("component", help="such as kube-apiserver; `status` lists them")
    return root


def main(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    if arguments[:1] == ["kubectl"]:  # whole: argparse would take the options for its own
        return _guarded(lambda: _kubectl(arguments[1:]))
    options = parser().parse_args(arguments)
    return _guarded(lambda: _run(options))


def _guarded(command: Callable[[], int]) -> int:
    try:
        return command()
    except (ClusterError, BuildError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; `up` starts afresh and `down` removes what is there", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    cluster = Cluster()
    match options.command:
        case "up":
            started = time.monotonic()
            status = cluster.up(gpus=options.gpus, audit_everything=options.audit)
            print(f"up after {time.monotonic() - started:.1f} s", file=sys.stderr)
            return _show(cluster, status)
        case "down":
            cluster.down()
            return 0
        case "status":
            return _show(cluster, cluster.status())
        case "kubeconfig":
            print(cluster.kubeconfig)
            return 0
        case "logs":
            return _logs(cluster, options.component, options.lines)
        case "load":
            for archive in options.archives:
                print(f"{archive}: {'loaded' if cluster.load(archive) else 'already there'}")
            return 0
        case "stop":
            cluster.stop(options.component)
            return 0
        case _:
            cluster.start(options.component)
            return 0


def _show(cluster: Cluster, status: Status) -> int:
    print(status.state)
    for line in status.details:
        print(f"  {line}")
    if status.state == "running":
        print(f"  KUBECONFIG={cluster.kubeconfig}")
    return 0 if status.state == "running" else 1


def _logs(cluster: Cluster, component: str | None, lines: int) -> int:
    folder = cluster.layout.logs
    known = sorted(path.stem for path in folder.glob("*.log"))
    if component is None:
        print("\n".join(known) or f"no logs in {folder}: the cluster is not up")
        return 0
    if component not in known:
        raise ClusterError(f"no log of {component!r}, only: {', '.join(known) or 'none (the cluster is not up)'}")
    return subprocess.run(["tail", "-n", str(lines), folder / f"{component}.log"]).returncode


def _kubectl(arguments: list[str]) -> NoReturn:
    cluster = Cluster()
    if not cluster.existing and not cluster.kubeconfig.exists() and "--help" not in arguments:
        raise ClusterError("no cluster is up: python -m e2e.cluster up")
    os.execv(cluster.kubectl_binary, ["kubectl", f"--kubeconfig={cluster.kubeconfig}", *arguments])  # noqa: S606 - becomes kubectl
