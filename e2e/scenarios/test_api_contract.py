"""The whole contract, tried on a real API server: every bound and every rule, once kept and once broken.

The table of cases follows from the CRD (``tests/api/contract.py``); here the API server is the judge. Tries are dry
runs: the object goes through schema, defaults and rules and is not stored.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config

from e2e.cluster import Cluster
from e2e.scenarios.kit import changed
from tests.api.contract import Case, constraints, field_cases
from tests.api.full_tier import TIER
from tests.api.rule_cases import rule_cases
from tierkeeper.api import GROUP, PLURAL, VERSION

pytestmark = [pytest.mark.e2e, pytest.mark.alongside]

ROOT = Path(__file__).parents[2]
NAMESPACE = f"api-contract-{os.getpid()}"
"""A name of this run, so that none waits for the end of the one before."""
CASES = [*field_cases(), *rule_cases()]
OF_SPEC = [case for case in CASES if not case.covers.startswith("status")]
OF_STATUS = [case for case in CASES if case.covers.startswith("status")]


@dataclass(frozen=True, slots=True)
class Judge:
    """What the API server says of a ServiceTier."""

    api: client.CustomObjectsApi
    created: dict[str, Any]
    """The API server's answer to the stored tier's creation."""

    def try_tier(self, tier: dict[str, Any]) -> str | None:
        """Create it as a dry run: the refusal's message, or None where it is accepted."""
        body = {key: part for key, part in tier.items() if key != "status"}
        try:
            self.api.create_namespaced_custom_object(
                GROUP, VERSION, NAMESPACE, PLURAL, body, dry_run="All", field_validation="Strict"
            )
        except client.ApiException as refusal:
            return str(json.loads(refusal.body)["message"])
        return None

    def try_status(self, status: object) -> str | None:
        """Write the status of the stored tier as a dry run: the refusal's message, or None."""
        stored = self.api.get_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, "gold")
        body = stored | {"status": status}
        try:
            self.api.replace_namespaced_custom_object_status(
                GROUP, VERSION, NAMESPACE, PLURAL, "gold", body, dry_run="All"
            )
        except client.ApiException as refusal:
            if refusal.status == 409:  # the operator has written meanwhile
                return self.try_status(status)
            return str(json.loads(refusal.body)["message"])
        return None


@pytest.fixture(scope="module")
def judge(cluster: Cluster) -> Iterator[Judge]:
    """A namespace of this worker with one stored tier, paused so that it gets no pool; gone at the end."""
    kubectl = cluster.kubectl
    kubectl("create", "namespace", NAMESPACE)
    tier = changed(TIER | {"metadata": {"name": "gold", "namespace": NAMESPACE}}, "spec.scaling.mode", "Paused")
    created = json.loads(kubectl("create", "-o", "json", "-f", "-", input=json.dumps(tier)))
    yield Judge(client.CustomObjectsApi(config.new_client_from_config(str(cluster.kubeconfig))), created)
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.mark.parametrize("case", [c for c in OF_SPEC if c.accepted], ids=lambda c: c.id)
def test_accepted(judge: Judge, case: Case) -> None:
    assert judge.try_tier(_renamed(case)) is None


@pytest.mark.parametrize("case", [c for c in OF_SPEC if not c.accepted], ids=lambda c: c.id)
def test_refused(judge: Judge, case: Case) -> None:
    refusal = judge.try_tier(_renamed(case))
    assert refusal is not None
    assert re.search(case.says or "", refusal), refusal


@pytest.mark.parametrize("case", [c for c in OF_STATUS if c.accepted], ids=lambda c: c.id)
def test_status_accepted(judge: Judge, case: Case) -> None:
    assert judge.try_status(case.tier()["status"]) is None


@pytest.mark.parametrize("case", [c for c in OF_STATUS if not c.accepted], ids=lambda c: c.id)
def test_status_refused(judge: Judge, case: Case) -> None:
    refusal = judge.try_status(case.tier()["status"])
    assert refusal is not None
    assert re.search(case.says or "", refusal), refusal


def test_every_constraint_is_tried_both_ways() -> None:
    wanted = {name for name, _, _ in constraints()}
    assert {case.covers for case in CASES if case.accepted} == wanted
    assert {case.covers for case in CASES if not case.accepted} == wanted


def test_a_misspelt_field_is_refused(judge: Judge) -> None:
    tier = Case("", "", {"metadata.name": "other", "spec.engine.maxNumSeq": 5}).tier()
    assert 'unknown field "spec.engine.maxNumSeq"' in (judge.try_tier(tier) or "")


def test_an_unseen_tier_is_not_taken_for_ready(judge: Judge) -> None:
    assert judge.created["status"] == {"observedGeneration": -1}


def test_the_smallest_tier_gets_its_stable_defaults(cluster: Cluster, judge: Judge) -> None:
    smallest = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ServiceTier",
        "metadata": {"name": "smallest", "namespace": NAMESPACE},
        "spec": {
            "model": {"id": "m"},
            "slo": {"ttftMilliseconds": 500},
            "engine": {"image": "vllm/vllm-openai:v0.32.0", "maxNumSeqs": 8},
            "scaling": {"replicas": {"min": 1, "max": 1}, "maxNumSeqs": {"min": 8, "max": 8}},
        },
    }
    printed = cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(smallest))
    spec = json.loads(printed)["spec"]
    assert spec["slo"] == {"ttftMilliseconds": 500, "objectivePercent": 99, "windowDays": 30}
    assert spec["engine"]["tensorParallelSize"] == 1
    assert (spec["scaling"]["mode"], spec["priority"], spec["reservation"]) == ("Auto", 0, False)
    assert "rollout" not in spec


def test_all_examples_are_accepted_as_one_folder(cluster: Cluster, judge: Judge) -> None:
    tiers = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "examples").glob("*.yaml"))]
    cluster.kubectl("apply", "--dry-run=client", "-f", str(ROOT / "examples"))
    for tier in tiers[1:]:
        assert judge.try_tier({**tier, "metadata": {"name": tier["metadata"]["name"] + "-try"}}) is None


def test_nobody_scales_a_tier_by_its_scale_subresource(cluster: Cluster, judge: Judge) -> None:
    assert "servicetiers/scale" not in cluster.kubectl("get", "--raw", f"/apis/{GROUP}/{VERSION}")


def _renamed(case: Case) -> dict[str, Any]:
    """The case's tier under a free name, unless the case is about names: ``gold`` is stored already."""
    about_names = "metadata.name" in case.changes or case.changes.get("spec.overflow.degradeTo") == "gold"
    return case.tier() if about_names else case.tier() | {"metadata": {"name": "another"}}
