"""What is tried: per release a few steps, each of which says how it went in a few words or fails."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e import tools
from e2e.artifacts import say
from e2e.cluster import Cluster, ClusterError, binaries, releases
from e2e.compat import vllm_flags

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "build/compat"

KUBERNETES = {"1.34": "v1.34.4", "1.35": "v1.35.4", "1.36": binaries.pinned(), "1.37": "v1.37.2"}
"""The newest patch of each minor that the Go module proxy served; 1.36 is the one of `make e2e`."""


class CheckError(Exception):
    """A step failed; the message says what, or where to read it."""


Step = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Target:
    """One release of one of the three."""

    product: str
    name: str
    """What --only takes."""
    release: str
    steps: Mapping[str, Step]
    """By column of the table. A step that fails ends its target."""
    cluster: bool = False
    """Whether the steps bring up a local cluster of this release, which is ended after them."""


def targets() -> list[Target]:
    """All that `make compat` tries, in its order."""
    return [
        *(_kubernetes(minor, release) for minor, release in KUBERNETES.items()),
        _prometheus("prometheus-2", "2.42.0", "debian-prometheus-2"),
        _prometheus("prometheus-3", tools.PROMETHEUS_VERSION, "prometheus-3"),
        *(_vllm(release) for release in vllm_flags.RELEASES),
    ]


@contextmanager
def surroundings(target: Target) -> Iterator[None]:
    """Around a target's steps: its Kubernetes release is chosen, and no cluster is up before or after.

    Raises ClusterError where one is up already.
    """
    if not target.cluster:
        yield
        return
    require_no_cluster()
    before = os.environ.get(releases.VARIABLE, "")
    os.environ[releases.VARIABLE] = "" if target.release == binaries.pinned() else target.release
    try:
        yield
    finally:
        Cluster().down()
        os.environ[releases.VARIABLE] = before


def require_no_cluster() -> None:
    """Raises ClusterError where a cluster would be used or replaced that somebody else brought up."""
    cluster = Cluster()
    if cluster.existing:
        raise ClusterError("TIERKEEPER_E2E_EXISTING=1 names a cluster, but each release here needs one of its own")
    if (state := cluster.status().state) != "absent":
        raise ClusterError(f"a local cluster is there ({state}), and each release needs its place: `make down` first")


def _kubernetes(minor: str, release: str) -> Target:
    def build() -> str:
        answer = json.loads(_output(binaries.component("kubectl"), "version", "--client", "-o", "json"))
        return _same(release, answer["clientVersion"]["gitVersion"])

    def contract() -> str:
        """Every bound and every rule of the CRD, kept and broken; the scenario brings the cluster up."""
        result = _pytest(f"{minor}-crd", "e2e/scenarios/test_api_contract.py")
        answer = json.loads(Cluster().kubectl("version", "-o", "json"))
        _same(release, answer["serverVersion"]["gitVersion"])
        return result

    def lifecycle() -> str:
        return _pytest(f"{minor}-lifecycle", "e2e/scenarios/test_pool_lifecycle.py")

    steps = {"build": build, "CRD": contract, "lifecycle": lifecycle}
    return Target("Kubernetes", minor, release, steps, cluster=True)


def _prometheus(name: str, release: str, parameter: str) -> Target:
    def build() -> str:
        binary = tools.debian_prometheus() if name == "prometheus-2" else tools.prometheus()
        found = re.search(r"version (\d+\.\d+\.\d+)", _output(binary, "--version"))
        return _same(release, found.group(1) if found else "a version that it does not tell")

    def rules() -> str:
        return _pytest(f"{name}-rules", "tests/rules", "-k", parameter)

    def queries() -> str:
        return _pytest(f"{name}-queries", "tests/adapters/test_promql_on_real_prometheus.py", "-k", parameter)

    return Target("Prometheus", name, release, {"build": build, "rules": rules, "queries": queries})


def _vllm(release: str) -> Target:
    def flags() -> str:
        """The parser's flags, read anew from the wheel, are those that the tests compare with."""
        found = vllm_flags.read(vllm_flags.sources(release))
        kept = json.loads((vllm_flags.DATA / f"{release}.json").read_text())["flags"]
        if differing := sorted(name for name in {*found, *kept} if found.get(name) != kept.get(name)):
            raise CheckError(f"the wheel says otherwise of {', '.join(differing)}: python -m e2e.compat.vllm_flags")
        return f"{len(found)} as kept"

    def rendered() -> str:
        short = release.removesuffix(".0")
        tests = "tests/engine/test_flags_are_those_of_the_releases.py"
        return _pytest(f"vllm-{short}", tests, "-k", f"{short}-auto or {short}-disabled or {release}")

    return Target("vLLM", f"vllm-{release.removesuffix('.0')}", release, {"flags": flags, "rendered": rendered})


def _same(wanted: str, found: str) -> str:
    if found != wanted:
        raise CheckError(f"it is {found}, not {wanted}")
    return "ok"


def _output(binary: Path, *arguments: str) -> str:
    return subprocess.run([binary, *arguments], capture_output=True, text=True, check=True, timeout=60).stdout


def _pytest(name: str, *arguments: str) -> str:
    """Run tests with their output in a log; returns how many passed. Raises CheckError naming the log."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{name}.log"
    say(f"{name}: pytest {' '.join(arguments)} ...")
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    with log.open("w") as output:
        code = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output).returncode
    end = log.read_text().rstrip().splitlines()
    if code != 0:
        say("\n".join(end[-20:]))
        raise CheckError(f"see {log.relative_to(ROOT)}")
    counted = re.search(r"\d+ passed", end[-1])
    return counted.group() if counted else "nothing ran"
