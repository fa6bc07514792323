"""Move this module to another Kubernetes release: rewrite go.mod and go.sum here.

k8s.io/kubernetes requires its staging modules at v0.0.0 and replaces them with ./staging, a folder that no module
proxy carries. The published k8s.io/* modules of the same release stand in for it: Kubernetes v1.36.4 is k8s.io/api
v0.36.4, and so on.

Usage: python3 e2e/cluster/hyperkube/make_gomod.py v1.36.4 v1.14.2      (Kubernetes and CoreDNS; needs the Go module
proxy)

Choose a CoreDNS release whose own go.mod asks for an etcd client and k8s.io/client-go no newer than that Kubernetes
release does: the whole module builds with the newest version any part asks for, and the Kubernetes side must stay as
it was released.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
MODULE = "tierkeeper.dev/e2e/hyperkube"


def render(kubernetes: str, coredns: str | None, upstream: str) -> str:
    """Return go.mod's text from the text of Kubernetes' own go.mod; releases are spelled `v1.36.4`.

    Without `coredns` the module has neither the DNS server nor etcd. Raises ValueError where the etcd client's release,
    which the etcd server must share, is not to be found there.
    """
    staging_version = "v0." + kubernetes.split(".", 1)[1]
    staging = re.findall(r"^\s+(k8s\.io/\S+) => \./staging", upstream, re.MULTILINE)
    wanted = dict(re.findall(r"^\s+(\S+) (v\S+)", upstream, re.MULTILINE))
    beside: dict[str, str] = {}
    if coredns is not None:
        etcd = wanted.get("go.etcd.io/etcd/client/v3")
        if etcd is None:
            raise ValueError(f"k8s.io/kubernetes {kubernetes} does not require go.etcd.io/etcd/client/v3")
        beside = {"github.com/coredns/coredns": coredns, "go.etcd.io/etcd/server/v3": etcd}
    go = re.search(r"^go (\S+)$", upstream, re.MULTILINE)
    godebug = re.search(r"^godebug default=(\S+)$", upstream, re.MULTILINE)
    lines = [f"module {MODULE}", "", f"go {go.group(1) if go else '1.26.0'}", ""]
    if godebug:
        lines += [f"godebug default={godebug.group(1)}", ""]
    required = {
        "k8s.io/kubernetes": kubernetes,
        **beside,
        **{module: staging_version if module in staging else version for module, version in wanted.items()},
    }
    lines += ["require (", *(f"\t{module} {version}" for module, version in required.items()), ")", ""]
    lines += ["replace (", *(f"\t{module} => {module} {staging_version}" for module in staging), ")", ""]
    return "\n".join(lines)


def upstream_go_mod(kubernetes: str) -> str:
    """Kubernetes' own go.mod, through the module proxy. Raises subprocess.CalledProcessError where it has none."""
    command = ["go", "list", "-m", "-json", f"k8s.io/kubernetes@{kubernetes}"]
    return Path(json.loads(subprocess.check_output(command, text=True, cwd="/"))["GoMod"]).read_text()


def main(kubernetes: str, coredns: str) -> None:
    """Fetch Kubernetes' go.mod, write ours, and let `go mod tidy` settle the rest."""
    (HERE / "go.sum").unlink(missing_ok=True)
    (HERE / "go.mod").write_text(render(kubernetes, coredns, upstream_go_mod(kubernetes)))
    subprocess.run(["go", "mod", "tidy"], cwd=HERE, check=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
