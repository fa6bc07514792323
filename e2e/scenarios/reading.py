"""Objects read straight from the API server: a scenario asks twice a second, and a kubectl each time would take a third
of a core (0.24 CPU seconds a call)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes import client, config

from e2e.cluster.errors import ClusterError

#: Where the API server has a resource.
APIS = {
    "configmaps": "/api/v1",
    "deployments": "/apis/apps/v1",
    "events": "/api/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "pods": "/api/v1",
    "services": "/api/v1",
    "servicetiers": "/apis/tierkeeper.dev/v1alpha1",
}


class Reader:
    """Reads as one kubeconfig's user, over one connection."""

    def __init__(self, kubeconfig: Path) -> None:
        self._api = config.new_client_from_config(str(kubeconfig))

    def get(self, namespace: str, resource: str, name: str) -> dict[str, Any]:
        """One object. Raises ClusterError with the API server's words where there is none."""
        return _shown(self._read(_path(namespace, resource, name)))

    def list(self, namespace: str, resource: str, selector: str = "") -> list[dict[str, Any]]:
        """A namespace's objects that a label selector picks. Raises ClusterError with the API server's words."""
        found = self._read(_path(namespace, resource) + "?" + urlencode({"labelSelector": selector}))
        kind = found["kind"].removesuffix("List")  # which the API server leaves out of a list's items
        return [_shown({"kind": kind} | item) for item in found["items"]]

    def _read(self, path: str) -> dict[str, Any]:
        try:
            answer = self._api.call_api("GET", f"{self._api.configuration.host}{path}", _request_timeout=30)
            said = answer.read()
        except (urllib3.exceptions.HTTPError, client.ApiException) as error:
            raise ClusterError(f"GET {path} failed: {error}") from error
        if answer.status != 200:
            raise ClusterError(f"GET {path} failed: {_words(said)}")
        found: dict[str, Any] = json.loads(said)
        return found


reader = cache(Reader)
"""One for each kubeconfig: a scenario makes a kit wherever it asks, and a read takes 4 ms, on a new connection 21."""


def _words(refusal: bytes) -> str:
    """A Status' message. What the API server says before it knows the resource, or under load, is plain text."""
    try:
        return str(json.loads(refusal)["message"])
    except ValueError:
        return refusal.decode(errors="replace").strip()


def _shown(obj: dict[str, Any]) -> dict[str, Any]:
    """As kubectl shows it: without who wrote which field."""
    obj["metadata"].pop("managedFields", None)
    return obj


def _path(namespace: str, resource: str, name: str = "") -> str:
    """The path of a namespaced resource. Raises ClusterError for one that APIS lacks."""
    if resource not in APIS:
        raise ClusterError(f"resource {resource!r}: its path is not known; there are: {', '.join(APIS)}")
    return "/".join(filter(None, (f"{APIS[resource]}/namespaces/{namespace}/{resource}", name)))
