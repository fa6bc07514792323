"""Who may do what once the chart is installed: the operator, and people by the roles that every cluster has."""

from collections.abc import Iterable
from typing import Any

import pytest

from tests.charts.cases import CASES

pytestmark = [pytest.mark.built, pytest.mark.timeout(1800)]

FOREIGN = {"*", "secrets", "nodes", "namespaces", "customresourcedefinitions", "servicetiers/finalizers"}
EVERYTHING_BUT_CLASSES: dict[str, Any] = {
    **CASES["monitors"],
    **CASES["network-policies"],
    **CASES["disruption-budget"],
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
    "userRoles": {"create": True},
}


def allowed(role: dict[str, Any]) -> set[tuple[str, str]]:
    """Every (resource, verb) of a role."""
    rules: Iterable[dict[str, Any]] = role["rules"]
    return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


@pytest.mark.parametrize("more", [{}, EVERYTHING_BUT_CLASSES], ids=["by default", "with everything on"])
def test_namespaced_release_without_crd_has_no_cluster_wide_object(more: dict[str, Any], objects: Any) -> None:
    found = objects(CASES["namespaced"] | more)
    assert not [key for key in found if key[1].startswith("/")]
    assert not [key for key in found if key[0].startswith("Cluster")]
    assert {name for kind, name in found if kind == "RoleBinding"} == {"llm-a/tierkeeper", "llm-b/tierkeeper"}


def test_namespaced_rights_equal_the_cluster_wide_ones(objects: Any) -> None:
    everywhere = objects()["ClusterRole", "/tierkeeper"]["rules"]
    assert objects(CASES["namespaced"])["Role", "llm-a/tierkeeper"]["rules"] == everywhere


def test_operator_can_neither_read_secrets_nor_write_what_users_own(objects: Any) -> None:
    rights = allowed(objects()["ClusterRole", "/tierkeeper"])
    assert not {resource for resource, _ in rights} & FOREIGN
    assert not {verb for _, verb in rights} & {"*", "delete", "deletecollection", "update"}
    assert {verb for resource, verb in rights if resource == "servicetiers"} == {"get", "list", "watch"}


def test_a_token_for_prometheus_is_mounted_and_gives_no_right_to_read_secrets(objects: Any) -> None:
    with_token = objects(CASES["prometheus-token"])
    assert with_token["ClusterRole", "/tierkeeper"] == objects()["ClusterRole", "/tierkeeper"]


def test_a_lease_may_be_written_by_one_name_in_the_operators_namespace_and_only_where_it_is_asked_for(
    objects: Any,
) -> None:
    usual, standby = objects(), objects(CASES["standby"])
    assert standby["ClusterRole", "/tierkeeper"] == usual["ClusterRole", "/tierkeeper"]
    added = {key for key in standby.keys() - usual.keys() if "Role" in key[0]}
    assert added == {(kind, "tierkeeper-system/tierkeeper-lease") for kind in ("Role", "RoleBinding")}
    (rule,) = standby["Role", "tierkeeper-system/tierkeeper-lease"]["rules"]
    assert (rule["resources"], rule["resourceNames"]) == (["leases"], ["tierkeeper"])
    assert set(rule["verbs"]) == {"get", "create", "patch"}


def test_people_get_tiers_with_the_roles_they_have(objects: Any) -> None:
    found = objects()
    roles = {name: found["ClusterRole", f"/tierkeeper-{name}"] for name in ("view", "edit", "admin")}
    rights = {name: allowed(role) for name, role in roles.items()}
    assert rights["view"] < rights["edit"] < rights["admin"]
    assert {verb for _, verb in rights["view"]} == {"get", "list", "watch"}
    assert {resource for resource, _ in rights["admin"]} == {"servicetiers", "servicetiers/status"}
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    aggregated = {
        name: {label.removeprefix(prefix) for label in role["metadata"]["labels"] if label.startswith(prefix)}
        for name, role in roles.items()
    }
    assert aggregated == {"view": {"view", "edit", "admin"}, "edit": {"edit", "admin"}, "admin": {"admin"}}


def test_nobody_but_the_operator_may_write_a_status(objects: Any) -> None:
    found = objects()
    writers = {
        name
        for (kind, name), role in found.items()
        if kind == "ClusterRole" and {v for r, v in allowed(role) if r == "servicetiers/status"} - {"get"}
    }
    assert writers == {"/tierkeeper"}
