"""A tier that a GitOps tool applies every five seconds while the loop scales: no drift, no fight, no write to spec.

Two minutes by default; TIERKEEPER_E2E_GITOPS_SECONDS=600 makes it ten.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from e2e import audit
from e2e.cluster import ClusterError
from e2e.demo.checks import footprint
from e2e.load.plan import LoadPlan, Phase, TargetPlan
from e2e.load.runner import run
from e2e.load.trace import EXCERPT, Trace
from e2e.scenarios.kit import Kit, Object, changed, tier

SECONDS = int(os.environ.get("TIERKEEPER_E2E_GITOPS_SECONDS", "90"))
EVERY_SECONDS = 5.0

pytestmark = [pytest.mark.e2e, pytest.mark.alongside, pytest.mark.timeout(SECONDS + 200)]

NAME = "gold"

#: Two slots of the profile ``demo`` carry two requests a second: a step of 24 + 2 x 0.7 = 25 ms, times 32 tokens, is
#: 0.8 s, and 2 / 0.8 = 2.5. Four a second make a queue that only levers end; the quiet after it lets them go back.
BUSY = Phase(duration_s=45, rate_per_s=4, max_prompt_tokens=128, max_output_tokens=32, name="busy")
QUIET = Phase(duration_s=45, rate_per_s=0.2, max_prompt_tokens=128, max_output_tokens=32, name="quiet")


def wanted() -> Object:
    """The manifest in Git."""
    obj = changed(tier(NAME), "spec.scaling.maxNumSeqs", {"min": 2, "max": 16})
    return changed(obj, "spec.engine.maxNumSeqs", 2)


@dataclass
class GitOps:
    """A tool that applies the manifest again and again, as field manager ``argocd``, and notes what it gets back."""

    kit: Kit
    began: float = field(default_factory=time.time)
    answers: list[Object] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def apply(self) -> Object:
        options = ("--server-side", "--field-manager=argocd", "-o", "json", "-f", "-")
        answer: Object = json.loads(self.kit.kubectl("apply", *options, input=json.dumps(wanted())))
        return answer

    def keep_applying(self) -> None:
        while not self._over.wait(EVERY_SECONDS) and time.time() < self.began + SECONDS:
            try:
                self.answers.append(self.apply())
            except ClusterError as error:
                self.failures.append(str(error))

    def load(self) -> None:
        phases = [BUSY, QUIET] * max(1, SECONDS // 90)
        plan = LoadPlan(trace=Trace.read(EXCERPT), targets=[TargetPlan(NAME, self.kit.url(NAME), NAME, phases)], seed=5)
        asyncio.run(run(plan))

    def stop(self) -> None:
        self._over.set()

    @property
    def levers(self) -> set[tuple[int, int]]:
        """Every pair of replicas and max-num-seqs that was in force when the manifest was applied."""
        seen = [answer["status"] for answer in self.answers]
        return {(status["replicas"]["current"], status["maxNumSeqs"]["current"]) for status in seen}


@pytest.fixture
def gitops(kit: Kit) -> Iterator[GitOps]:
    """The tool at work, and traffic that makes the loop move its levers."""
    tool = GitOps(kit)
    tool.apply()
    kit.until_ready(NAME)
    kit.until_condition(NAME, "MetricsAvailable", "True", seconds=90)
    tool.began = time.time()
    threads = [threading.Thread(target=work, daemon=True) for work in (tool.keep_applying, tool.load)]
    for thread in threads:
        thread.start()
    yield tool
    tool.stop()
    threads[0].join(timeout=60)


def test_continuous_apply_sees_no_drift_and_no_fight_while_the_loop_scales(gitops: GitOps) -> None:
    kit = gitops.kit
    time.sleep(max(0.0, gitops.began + SECONDS - time.time()))
    gitops.stop()
    print(f"applied {len(gitops.answers)} times in {time.time() - gitops.began:.0f} s; levers seen {gitops.levers}")
    assert gitops.failures == []
    assert len(gitops.levers) > 1, f"the loop moved nothing, so this proves nothing\n{kit.explain()}"

    # No write to spec: every apply found the object as it had left it, and nobody else owns a field of it.
    assert {answer["metadata"]["generation"] for answer in gitops.answers} == {1}
    final = json.loads(kit.kubectl("get", "servicetier", NAME, "-o", "json", "--show-managed-fields"))
    owners = {(entry["manager"], entry.get("subresource", "")) for entry in final["metadata"]["managedFields"]}
    assert owners == {("argocd", ""), ("tierkeeper", "status")}
    assert footprint([final]) == 0

    # No drift: what the tool would write now is what is there. kubectl diff ends with code 1 where it is not.
    options = ("--server-side", "--field-manager=argocd", "-f", "-")
    assert kit.kubectl("diff", *options, input=json.dumps(wanted())) == ""

    # No fight: the operator put nothing back, and found nothing put back.
    assert {event["reason"] for event in kit.events(NAME)}.isdisjoint({"Repaired", "ReplicasCorrected", "Rewritten"})
    assert kit.condition(NAME, "Stalled")["status"] == "False"
    lines = kit.cluster.audit_log.read_text(encoding="utf-8").splitlines()
    on_tiers = [
        write["objectRef"].get("subresource")
        for write in audit.writes(lines, since=audit.log_time(gitops.began), namespace=kit.namespace)
        if write["objectRef"]["resource"] == "servicetiers"
    ]
    assert set(on_tiers) == {"status"}
