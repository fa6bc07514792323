"""The operator may do what it does and nothing else: the chart's roles beside the API server's audit log.

The log holds all scenarios since the cluster was started, so this one comes last; alone it has nothing to look at.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from e2e.cluster import Cluster
from e2e.platform import CHART, RELEASE, run_helm
from e2e.rights import beyond, granted, requests, unused
from tests.charts.cases import CASES

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

#: Values by which the chart grants other rights, or elsewhere.
SHAPING = {"watch", "leaderElection"}


def roles(cluster: Cluster, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The roles that the chart binds to the operator; those for people are bound to nobody."""
    text = run_helm(cluster, "template", RELEASE, str(CHART), "--values", "-", stdin=json.dumps(values))
    objects = [document for document in yaml.safe_load_all(text) if document]
    bound = {(o["roleRef"]["kind"], o["roleRef"]["name"]) for o in objects if o["kind"].endswith("RoleBinding")}
    return [document for document in objects if (document["kind"], document["metadata"]["name"]) in bound]


def test_nothing_is_granted_that_is_not_used_and_nothing_asked_for_that_is_not_granted(cluster: Cluster) -> None:
    shapes = [values for values in CASES.values() if not values or values.keys() & SHAPING]
    rights = granted(role for values in shapes for role in roles(cluster, values))
    with cluster.audit_log.open(encoding="utf-8") as lines:
        made = list(requests(lines))
    print(f"{len(made)} requests of the operator by {len({request.right for request in made})} rights")
    assert {f"{request.right}: {request.uri}" for request in beyond(rights, made, role=RELEASE)} == set()
    spare = {str(right) for right in unused(rights, made)}
    assert spare == set(), (
        "no scenario since the cluster was started needed these: take them from the chart's _rules.tpl, or write the "
        "scenario. A cluster that was up before its audit policy logged the operator's reads is ended by `make down`."
    )
    assert not [request for request in made if request.right.resource == "secrets"]
