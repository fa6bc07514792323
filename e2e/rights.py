"""What the operator may do beside what it does: the chart's roles, and the API server's audit log. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from e2e.audit import answered

_BY_CLUSTER_ROLE = re.compile(r'allowed by ClusterRoleBinding "[^"]*" of ClusterRole "([^"]*)"')
_BY_ROLE = re.compile(r'allowed by RoleBinding "[^"]*" of (?:Cluster)?Role "([^"]*)"')


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource, as RBAC knows it."""

    group: str
    """API group; empty: core."""
    resource: str
    """Plural, with its subresource: ``deployments/scale``."""
    verb: str
    everywhere: bool = True
    """Across all namespaces; else within one."""

    def __str__(self) -> str:
        where = "everywhere" if self.everywhere else "in a namespace"
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group} {where}"


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the operator."""

    right: Right
    pod: str
    """Uid of the pod whose token it carried; empty for a token that is bound to none."""
    allowed_by: str
    """``ClusterRole NAME`` or ``Role NAME`` that allowed it; empty where nothing did."""
    uri: str


def granted(roles: Iterable[Mapping[str, Any]]) -> set[Right]:
    """What Roles and ClusterRoles allow. The names that a rule may be narrowed to are left out."""
    return {
        Right(group, resource, verb, everywhere=role["kind"] == "ClusterRole")
        for role in roles
        for rule in role["rules"]
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
    }


def requests(audit_lines: Iterable[str]) -> Iterator[Request]:
    """The operator's requests for resources, from the audit log.

    A patch that makes an object asks for ``create`` too: the API server looks that up apart, and logs one event.
    """
    for event in answered(audit_lines):
        reference = event.get("objectRef")
        if not reference:
            continue
        resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
        right = Right(reference.get("apiGroup", ""), resource, event["verb"], everywhere="namespace" not in reference)
        pods = event["user"].get("extra", {}).get("authentication.kubernetes.io/pod-uid", [""])
        request = Request(right, pods[0], _allowed_by(event.get("annotations", {})), event["requestURI"])
        yield request
        answer = event.get("responseStatus", {})
        made, refused = answer.get("code") == 201, "cannot create resource" in answer.get("message", "")
        if right.verb == "patch" and (made or refused):
            yield replace(request, right=replace(right, verb="create"), allowed_by=request.allowed_by if made else "")


def _allowed_by(annotations: Mapping[str, str]) -> str:
    """What the authorizer wrote beside the request."""
    reason = annotations.get("authorization.k8s.io/reason", "")
    if annotations.get("authorization.k8s.io/decision") != "allow":
        return ""
    if found := _BY_CLUSTER_ROLE.search(reason):
        return f"ClusterRole {found[1]}"
    found = _BY_ROLE.search(reason)
    return f"Role {found[1]}" if found else reason


def unused(rights: Iterable[Right], made: Iterable[Request]) -> set[Right]:
    """What is granted and never done, wherever: a right that is given namespace by namespace is the same right."""
    done = {replace(request.right, everywhere=True) for request in made if request.allowed_by}
    return {right for right in rights if replace(right, everywhere=True) not in done}


def beyond(rights: Iterable[Right], made: Iterable[Request], *, role: str) -> set[Request]:
    """Requests that the pod's role does not cover, whatever the answer: refused, or allowed by somebody else's role.

    A pod that has worked by a Role alone has no right everywhere. One that asks for what it has in the moment before
    its binding arrives, or after an uninstall took it, is refused as well, and that is not of interest here.
    """
    of_pods: dict[str, list[Request]] = defaultdict(list)
    for request in made:
        of_pods[request.pod].append(request)
    have = set(rights)
    within = have | {replace(right, everywhere=False) for right in have}
    found: set[Request] = set()
    for sent in of_pods.values():
        by = {request.allowed_by for request in sent}
        namespaced = f"Role {role}" in by and f"ClusterRole {role}" not in by
        covered = {right for right in within if not right.everywhere} if namespaced else within
        found.update(request for request in sent if request.right not in covered)
    return found
