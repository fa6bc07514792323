"""What Helm 4 and Prometheus both need is pinned alike, so that a first build compiles it once."""

import re
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "e2e/tools"


def modules(program: str) -> dict[str, str]:
    text = (TOOLS / program / "go.mod").read_text(encoding="utf-8")
    return dict(re.findall(r"^\s*(?:require )?(\S+) (v\S+)", text, re.MULTILINE))


def test_helm_and_prometheus_pin_what_they_share_at_the_same_versions() -> None:
    helm, prometheus = modules("helm4"), modules("prometheus")
    shared = helm.keys() & prometheus.keys()
    assert len(shared) > 50
    assert {name: (helm[name], prometheus[name]) for name in shared if helm[name] != prometheus[name]} == {}
