"""max-num-seqs and the token budget change in running engines: no restart, no cut stream, read back from every pod."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from e2e.load.plan import LoadPlan, Phase, TargetPlan
from e2e.load.report import LoadReport, Status
from e2e.load.runner import run
from e2e.load.trace import EXCERPT, Trace
from e2e.scenarios.kit import PORT, Kit, Object, changed, tier

pytestmark = [pytest.mark.e2e, pytest.mark.alongside, pytest.mark.timeout(300)]


def gauge(pod: Object, name: str) -> float:
    """One gauge from a pod's own page."""
    ip = pod["status"]["podIP"]
    page = httpx.get(f"http://{ip}:{PORT}/metrics", timeout=5).text
    return next(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name))


def test_a_new_cap_reaches_every_pod_under_load_without_a_restart_or_a_cut_stream(kit: Kit) -> None:
    wanted = changed(tier("gold"), "spec.scaling.replicas", {"min": 2, "max": 2})
    wanted = changed(wanted, "spec.scaling.mode", "Fixed")
    kit.apply(wanted)
    kit.until("two Ready pods", lambda: kit.get("deployments", "gold-pool")["status"].get("readyReplicas") == 2)
    uids = {pod["metadata"]["uid"] for pod in kit.pods("gold")}

    phase = Phase(duration_s=20, rate_per_s=4, max_output_tokens=64, max_prompt_tokens=512)
    plan = LoadPlan(trace=Trace.read(EXCERPT), targets=[TargetPlan("gold", kit.url("gold"), "gold", [phase])])

    async def resize_under_load() -> LoadReport:
        load = asyncio.create_task(run(plan))
        await asyncio.sleep(5)
        await asyncio.to_thread(kit.apply, changed(wanted, "spec.engine.maxNumSeqs", 6))
        return await load

    report = asyncio.run(resize_under_load())
    records = report.targets["gold"]
    assert records.count(Status.OK) == len(records), records.errors

    kit.until(
        "every pod to apply 6",
        lambda: all(gauge(pod, "tierkeeper_max_num_seqs_seen") == 6 for pod in kit.pods("gold")),
    )

    def confirmed() -> Object | None:
        status = kit.get("servicetiers", "gold")["status"]
        return status["liveResize"] if status["maxNumSeqs"].get("applied") == 6 else None

    live = kit.until("the resize to be confirmed", confirmed)
    print(f"confirmed on every pod after {live['lastApplyMilliseconds']} ms")
    kit.until_condition("gold", "Resizing", "False")
    assert {pod["metadata"]["uid"] for pod in kit.pods("gold")} == uids
    assert all(c["restartCount"] == 0 for pod in kit.pods("gold") for c in pod["status"]["containerStatuses"])


def test_an_unknown_engine_version_takes_the_restart_path_and_status_says_so(kit: Kit) -> None:
    unknown = tier("gold")
    del unknown["spec"]["engine"]["version"]  # the tag "dev" does not tell
    kit.apply(unknown)
    kit.until_ready("gold")
    live = kit.get("servicetiers", "gold")["status"]["liveResize"]
    assert live["supported"] is False
    assert "spec.engine.version" in live["message"]
    before = {pod["metadata"]["uid"] for pod in kit.pods("gold")}
    kit.apply(changed(unknown, "spec.engine.maxNumSeqs", 8))
    kit.until(
        "new pods", lambda: before.isdisjoint({p["metadata"]["uid"] for p in kit.pods("gold")}) and kit.pods("gold")
    )
