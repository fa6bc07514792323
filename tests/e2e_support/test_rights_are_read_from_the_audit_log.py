"""Which rights the operator used, which it asked for in vain, and which it was given for nothing."""

import json
from typing import Any

from e2e.audit import OPERATOR_USER
from e2e.rights import Request, Right, beyond, granted, requests, unused

GET = Right("apps", "deployments", "get", everywhere=False)
RULE = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}


def line(
    verb: str = "get",
    *,
    by: str = 'ClusterRoleBinding "tierkeeper" of ClusterRole "tierkeeper" to ServiceAccount "tierkeeper/x"',
    decision: str = "allow",
    reference: dict[str, str] | None = None,
    code: int = 200,
    message: str = "",
    **change: Any,
) -> str:
    user = {"username": OPERATOR_USER, "extra": {"authentication.kubernetes.io/pod-uid": ["p"]}}
    usual = {"resource": "deployments", "namespace": "llm", "name": "gold-pool", "apiGroup": "apps"}
    annotations = {
        "authorization.k8s.io/decision": decision,
        "authorization.k8s.io/reason": f"RBAC: allowed by {by}" if decision == "allow" else "",
    }
    event = {
        "stage": "ResponseComplete",
        "verb": verb,
        "user": user,
        "requestURI": "/apis",
        "objectRef": usual if reference is None else reference,
        "responseStatus": {"code": code} | ({"message": message} if message else {}),
        "annotations": annotations,
    }
    return json.dumps(event | change)


def read(*lines: str) -> list[Request]:
    return list(requests(lines))


def by_role(verb: str = "get", **more: Any) -> str:
    return line(verb, by='RoleBinding "tierkeeper/llm" of Role "tierkeeper" to ServiceAccount "tierkeeper/x"', **more)


def test_a_request_is_a_verb_on_a_resource_in_its_group_and_place() -> None:
    status = {"resource": "servicetiers", "subresource": "status", "namespace": "llm", "apiGroup": "tierkeeper.dev"}
    everywhere = {"resource": "pods", "apiVersion": "v1"}
    assert [request.right for request in read(line(), line("patch", reference=status), line(reference=everywhere))] == [
        GET,
        Right("tierkeeper.dev", "servicetiers/status", "patch", everywhere=False),
        Right("", "pods", "get"),
    ]


def test_other_users_pages_without_a_resource_and_announcements_are_left_out() -> None:
    somebody = line(user={"username": "admin"}, requestURI=f"/apis?fieldManager={OPERATOR_USER}")
    assert read(somebody, line(objectRef=None), line(stage="RequestReceived")) == []


def test_a_watch_counts_from_its_first_answer_on() -> None:
    assert len(read(line("watch", stage="ResponseStarted"))) == 1


def test_a_patch_that_makes_an_object_uses_the_right_to_create_it_and_one_that_changes_it_does_not() -> None:
    assert [request.right.verb for request in read(line("patch", code=201))] == ["patch", "create"]
    assert [request.right.verb for request in read(line("patch"))] == ["patch"]


def test_a_patch_that_may_not_create_has_asked_for_it() -> None:
    said = f'deployments.apps "gold-pool" is forbidden: User "{OPERATOR_USER}" cannot create resource "deployments"'
    patch, create = read(line("patch", code=403, message=said))
    assert (patch.right.verb, bool(patch.allowed_by)) == ("patch", True)
    assert (create.right.verb, bool(create.allowed_by)) == ("create", False)


def test_a_role_is_every_verb_on_every_resource_of_its_rules() -> None:
    rules = [{"apiGroups": ["", "apps"], "resources": ["a", "b"], "verbs": ["get", "list"]}]
    assert len(granted([{"kind": "ClusterRole", "rules": rules}])) == 8
    assert granted([{"kind": "Role", "rules": [RULE]}]) == {GET}
    assert granted([{"kind": "Role", "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}]) == set()


def test_a_right_is_used_wherever_it_is_used() -> None:
    cluster_wide, one = (
        granted([{"kind": "ClusterRole", "rules": [RULE]}]),
        granted([{"kind": "Role", "rules": [RULE]}]),
    )
    assert unused(cluster_wide | one, read(line())) == set()
    assert unused(cluster_wide | one, read(line("list"))) == cluster_wide | one


def test_a_right_that_was_refused_was_not_used() -> None:
    assert unused({GET}, read(line(decision="forbid", code=403))) == {GET}


def test_a_request_that_no_rule_covers_is_found_whatever_its_answer() -> None:
    secret = {"resource": "secrets", "namespace": "llm", "name": "token"}
    allowed = line(reference=secret, by='ClusterRoleBinding "other" of ClusterRole "reader" to User "x"')
    refused = line(reference=secret, decision="forbid", code=403)
    for each in (allowed, refused):
        found = beyond({everywhere_too(GET)}, read(line(), each), role="tierkeeper")
        assert {str(request.right) for request in found} == {"get secrets in a namespace"}


def test_a_pod_that_works_by_a_role_may_ask_for_nothing_everywhere() -> None:
    everywhere = {"resource": "deployments", "apiGroup": "apps"}
    rights = {GET, everywhere_too(GET)}
    outside = line(reference=everywhere, decision="forbid", code=403)
    (found,) = beyond(rights, read(by_role(), outside), role="tierkeeper")
    assert found.right == everywhere_too(GET)
    assert beyond(rights, read(line(), line(reference=everywhere)), role="tierkeeper") == set()


def test_a_right_that_arrives_after_its_pod_is_no_request_beyond_it() -> None:
    everywhere = {"resource": "deployments", "apiGroup": "apps"}
    early = line(reference=everywhere, decision="forbid", code=403)
    assert beyond({everywhere_too(GET)}, read(early, line()), role="tierkeeper") == set()


def everywhere_too(right: Right) -> Right:
    return Right(right.group, right.resource, right.verb)
