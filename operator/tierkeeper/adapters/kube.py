"""``ports.KubeApi`` over kubernetes.aio: fixed paths, plain dicts, server-side apply, bounded waits and retries.

The typed models of the client are not used: they drop fields that a newer API server added and cost 30 MiB.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from tierkeeper.ports import NAMESPACE_TERMINATING, ApiError, Kind, Object

API_PATHS: Mapping[Kind, tuple[str, str]] = {
    Kind.SERVICE_TIER: ("/apis/tierkeeper.dev/v1alpha1", "servicetiers"),
    Kind.DEPLOYMENT: ("/apis/apps/v1", "deployments"),
    Kind.SERVICE: ("/api/v1", "services"),
    Kind.CONFIG_MAP: ("/api/v1", "configmaps"),
    Kind.POD_DISRUPTION_BUDGET: ("/apis/policy/v1", "poddisruptionbudgets"),
    Kind.POD: ("/api/v1", "pods"),
    Kind.EVENT: ("/api/v1", "events"),
    Kind.LEASE: ("/apis/coordination.k8s.io/v1", "leases"),
}
"""Group-version prefix and plural of each kind. Fixed, so that no discovery call is ever made."""

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
UNREADABLE = "failed to create typed patch object"
"""How the API server says that what was applied has a field it does not know, or of another type. It answers so with
code 500, as if the fault were its own."""
PAGE = 500
"""Objects a list page: the chunk size that kubectl uses."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one call may take and how often it is tried again."""

    timeout_seconds: float = 10.0
    attempts: int = 4
    first_delay_seconds: float = 0.2
    longest_delay_seconds: float = 15.0
    """A Retry-After above this is handed to the caller, so that one throttled tier does not hold a worker."""


ONCE = Patience(attempts=1)
"""For calls whose repetition is their caller's own affair."""


class KubernetesApi:
    """See ``ports.KubeApi``. Close it when done: it holds a connection pool."""

    def __init__(
        self,
        client: ApiClient,
        *,
        random: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        patience: Patience = Patience(),
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._random = random
        self._sleep = sleep
        self._patience = patience
        self._may_write = may_write

    def once(self) -> KubernetesApi:
        """The same connections; each call is tried once."""
        return KubernetesApi(self._client, random=self._random, sleep=self._sleep, patience=ONCE)

    def fenced(self, may_write: Callable[[], bool]) -> KubernetesApi:
        """The same connections; nothing is sent that writes while ``may_write`` says no, and no repetition of it."""
        return KubernetesApi(
            self._client, random=self._random, sleep=self._sleep, patience=self._patience, may_write=may_write
        )

    async def close(self) -> None:
        await self._client.close()

    async def get(self, kind: Kind, *, namespace: str, name: str) -> Object | None:
        try:
            return await self._call("GET", _path(kind, namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, kind: Kind, *, namespace: str | None, label_selector: str = "") -> list[Object]:
        query = {"limit": str(PAGE)} | ({"labelSelector": label_selector} if label_selector else {})
        found: list[Object] = []
        while True:
            page = await self._call("GET", _path(kind, namespace), query=query)
            found.extend(page.get("items", ()))
            token = page.get("metadata", {}).get("continue")
            if not token:
                return found
            query = query | {"continue": token}

    async def apply(self, obj: Object, *, field_manager: str) -> Object:
        return await self._apply(obj, field_manager=field_manager)

    async def apply_status(self, obj: Object, *, field_manager: str) -> Object:
        return await self._apply(obj, field_manager=field_manager, subresource="status")

    async def scale(self, *, namespace: str, name: str, uid: str | None, replicas: int, field_manager: str) -> Object:
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": name, "namespace": namespace} | ({"uid": uid} if uid else {}),
            "spec": {"replicas": replicas},
        }
        return await self._patch(_path(Kind.DEPLOYMENT, namespace, name, "scale"), body, field_manager=field_manager)

    async def annotate_pod(self, *, namespace: str, name: str, annotations: Mapping[str, str]) -> None:
        body = {"metadata": {"annotations": dict(annotations)}}
        try:
            await self._call(
                "PATCH",
                _path(Kind.POD, namespace, name),
                query={"fieldManager": "tierkeeper"},
                body=body,
                content_type=MERGE,
            )
        except ApiError as error:
            if error.status != 404:
                raise

    async def create_event(self, event: Object) -> None:
        try:
            await self._call("POST", _path(Kind.EVENT, event["metadata"]["namespace"]), body=event)
        except ApiError as error:
            if error.status != 409:  # 409: an earlier try of this very Event, answered too late, did arrive
                raise

    async def _apply(self, obj: Object, *, field_manager: str, subresource: str = "") -> Object:
        meta = obj["metadata"]
        path = _path(Kind(obj["kind"]), meta["namespace"], meta["name"], subresource)
        return await self._patch(path, obj, field_manager=field_manager)

    async def _patch(self, path: str, body: Object, *, field_manager: str) -> Object:
        query = {"fieldManager": field_manager, "force": "true"}
        return await self._call("PATCH", path, query=query, body=body, content_type=APPLY)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """One call, tried again where that is safe: every verb here is idempotent (an Event has a fixed name)."""
        url = f"{path}?{urlencode(query)}" if query else path
        for attempt in range(1, self._patience.attempts + 1):
            try:
                return await self._once(method, url, body=body, content_type=content_type)
            except ApiError as error:
                delay = self._retry_delay(error, attempt)
                if delay is None:
                    raise
            await self._sleep(delay)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _retry_delay(self, error: ApiError, attempt: int) -> float | None:
        """Seconds to wait before the next try, or None to give up."""
        if attempt >= self._patience.attempts or not (error.status in (0, 429) or error.status >= 500):
            return None
        own = self._patience.first_delay_seconds * 2 ** (attempt - 1) * (1 + self._random())
        delay = max(own, error.retry_after or 0.0)  # never sooner than the server asked for
        return delay if delay <= self._patience.longest_delay_seconds else None

    async def _once(self, method: str, url: str, *, body: Object | None, content_type: str) -> Object:
        timeout = self._patience.timeout_seconds
        if method != "GET" and not self._may_write():
            raise ApiError(status=403, reason="NotLeading", message="another replica may lead by now: nothing is sent")
        try:
            request = await self._client.param_serialize(
                method, url, header_params={"Content-Type": content_type}, body=body, auth_settings=["BearerToken"]
            )
            response = await self._client.call_api(*request, _request_timeout=aiohttp.ClientTimeout(total=timeout))
            raw: bytes = await response.read()
        except TimeoutError as error:
            raise ApiError(status=0, reason="Timeout", message=f"no answer within {timeout:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ApiError(status=0, reason="Unreachable", message=str(error) or type(error).__name__) from error
        if not 200 <= response.status < 300:
            raise _error(response.status, response.headers, raw)
        try:
            answer = json.loads(raw)
        except (ValueError, RecursionError) as error:
            said = raw[:200].decode(errors="replace")
            raise ApiError(status=0, reason="BadAnswer", message=f"no JSON: {said}") from error
        if not isinstance(answer, dict):
            raise ApiError(status=0, reason="BadAnswer", message=f"no JSON object: {str(answer)[:200]}")
        return answer


async def connect(*, random: Callable[[], float]) -> KubernetesApi:
    """The API server of the pod's service account, or else of the kubeconfig. Raises ConfigException for neither."""
    configuration: Any = Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        # Read now: the client's own default was read from the environment when it was imported.
        await config.load_kube_config(os.environ.get("KUBECONFIG"), client_configuration=configuration)
    return KubernetesApi(ApiClient(configuration), random=random)


def _path(kind: Kind, namespace: str | None, name: str = "", subresource: str = "") -> str:
    prefix, plural = API_PATHS[kind]
    parts = ["namespaces", namespace] if namespace is not None else []
    return "/".join([prefix, *(quote(part, safe="") for part in (*parts, plural, name, subresource) if part)])


def _causes(answer: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The single causes in a Status object."""
    details = answer.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []


def _error(status: int, headers: Mapping[str, str], raw: bytes) -> ApiError:
    """The API server's Status object as an exception; a proxy's HTML page becomes a short message."""
    try:
        parsed = json.loads(raw)
        answer: Mapping[str, Any] = parsed if isinstance(parsed, dict) else {}
    except ValueError:
        answer = {}
    if UNREADABLE in str(answer.get("message")):
        return ApiError(status=422, reason="Invalid", message=str(answer["message"]))
    if status == 422 and any(cause.get("field") == "metadata.uid" for cause in _causes(answer)):
        return ApiError(status=409, reason="Conflict", message=str(answer.get("message")))  # as scale says it
    terminating = any(cause.get("reason") == NAMESPACE_TERMINATING for cause in _causes(answer))
    seconds = headers.get("Retry-After", "")
    return ApiError(
        status=status,
        reason=NAMESPACE_TERMINATING if terminating else str(answer.get("reason") or "Unknown"),
        message=str(answer.get("message") or raw[:200].decode(errors="replace")),
        retry_after=float(seconds) if seconds.isascii() and seconds.isdigit() else None,
    )
