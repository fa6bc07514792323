"""Two replicas of the operator: one acts, the other takes over, and never do two write in the same term.

The audit log names the pod that sent each request; its own writes of the Lease say when its term ran.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import pytest

from e2e import audit
from e2e.cluster import Cluster
from e2e.platform import OPERATOR_NAMESPACE, RELEASE, install_operator, merged, run_helm
from e2e.scenarios.kit import Kit, Object, changed, tier

pytestmark = [pytest.mark.e2e, pytest.mark.exchanged, pytest.mark.timeout(400)]

POD = "authentication.kubernetes.io/pod-name"
DURATION_SECONDS = 10
"""Shorter than anybody would run it, so that a death without a word costs the suite seconds only; long enough that a
leader on a machine that stands still for three seconds renews in time and no lead changes hands by itself."""
GRACEFUL_SECONDS = 8
"""Less than the term that a leader has left when it is told to end, 9 to 10 s: in this time only a Lease that was given
back changes hands (usual: 2 s)."""
STANDBY = {
    "replicas": 2,
    "leaderElection": {
        "enabled": True,
        "leaseDurationSeconds": DURATION_SECONDS,
        "renewDeadlineSeconds": 8,
        "retryPeriodSeconds": 1,
    },
    "podDisruptionBudget": {"enabled": True},
}
IN_OPERATORS = ("-n", OPERATOR_NAMESPACE)


@pytest.fixture(scope="module")
def standby(platform: Cluster) -> Iterator[None]:
    """The session's release with a standby, turned on as docs/how-to/install.md says; put back at the end."""
    values: dict[str, Any] = json.loads(run_helm(platform, "get", "values", RELEASE, "--output", "json"))
    platform.kubectl(*IN_OPERATORS, "delete", "deployment", RELEASE, "--cascade=foreground", "--timeout=60s")
    install_operator(platform, values=merged(values, STANDBY))
    yield
    install_operator(platform, values=values)


def operators(kit: Kit) -> list[Object]:
    """The operator's pods that are not on their way out."""
    selector = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=operator"
    pods = Kit(kit.cluster, OPERATOR_NAMESPACE).list("pods", selector)
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def leader(kit: Kit) -> str:
    """The pod that holds the Lease; empty while nobody does."""
    lease = Kit(kit.cluster, OPERATOR_NAMESPACE).get("leases", RELEASE)
    holder: str = lease["spec"].get("holderIdentity", "")
    return holder.rpartition("_")[0]


def says_it_leads(pod: Object) -> bool:
    page = httpx.get(f"http://{pod['status']['podIP']}:9095/metrics", trust_env=False).text
    return re.search(r"^tierkeeper_leader 1\.0$", page, re.MULTILINE) is not None


def both_are_ready_and_one_leads(kit: Kit) -> None:
    def probe() -> bool:
        pods = operators(kit)
        ready = [
            pod
            for pod in pods
            if any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
        ]
        if len(pods) != 2 or len(ready) != 2:
            return False
        return [pod["metadata"]["name"] for pod in pods if says_it_leads(pod)] == [leader(kit)]

    kit.until("two Ready operators, one of which leads", probe, seconds=60)


def new_leader_acts(kit: Kit, gone: str, cap: int, *, within: float) -> float:
    """Wait until another pod leads, and until it has carried out a change; returns the seconds to the lead."""
    began = time.monotonic()
    kit.until("another leader", lambda: leader(kit) not in ("", gone), seconds=within)
    took = time.monotonic() - began
    kit.apply(changed(tier("gold"), "spec.engine.maxNumSeqs", cap))
    kit.until(f"the cap {cap}", lambda: kit.get("configmaps", "gold-pool-limit")["data"]["max-num-seqs"] == str(cap))
    return took


def accepted_writes(lines: Iterable[str], since: str) -> list[dict[str, Any]]:
    """The operator's writes that the API server accepted, in the order in which it got them."""
    made = audit.writes(lines, since=since)
    accepted = [event for event in made if event.get("responseStatus", {}).get("code", 500) < 300]
    return sorted(accepted, key=lambda event: str(event["requestReceivedTimestamp"]))


def out_of_term(writes: Iterable[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Writes by a pod that was not the last to write the Lease: what was written, by whom, and in whose term."""
    term, found = "", []
    for event in writes:
        pod, ref = event["user"]["extra"][POD][0], event["objectRef"]
        if ref["resource"] == "leases":
            term = pod
        elif term and pod != term:
            found.append((event["verb"], f"{ref['resource']}/{ref.get('name', '')}", pod, term))
    return found


def test_the_standby_takes_over_and_two_never_write_at_once(kit: Kit, standby: None) -> None:
    both_are_ready_and_one_leads(kit)
    since = audit.log_time(time.time())
    kit.apply(tier("gold"))
    kit.until_ready("gold")

    first = leader(kit)
    kit.cluster.kubectl(*IN_OPERATORS, "delete", "pod", first, "--wait=false")
    gracefully = new_leader_acts(kit, first, 24, within=GRACEFUL_SECONDS)
    both_are_ready_and_one_leads(kit)

    second = leader(kit)
    kit.cluster.kubectl(*IN_OPERATORS, "delete", "pod", second, "--grace-period=0", "--force")
    forced = new_leader_acts(kit, second, 32, within=3 * DURATION_SECONDS)
    both_are_ready_and_one_leads(kit)

    writes = accepted_writes(kit.cluster.audit_log.read_text(encoding="utf-8").splitlines(), since)
    acted = {event["user"]["extra"][POD][0] for event in writes if event["objectRef"]["resource"] != "leases"}
    print(f"handed over in {gracefully:.1f} s when terminated, in {forced:.1f} s when deleted by force")
    print(f"{len(writes)} accepted writes, of pools and tiers by {sorted(acted)}")
    assert out_of_term(writes) == []
    assert len(acted) == 3
