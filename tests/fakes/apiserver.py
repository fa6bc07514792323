"""FakeKube behind HTTP, for the real kopf and client: discovery, list, watch, and the operator's patches."""

import asyncio
import contextlib
import json
from dataclasses import dataclass, field

import yaml
from aiohttp import web

from tests.fakes.kube import FakeKube
from tierkeeper.adapters.kube import API_PATHS
from tierkeeper.ports import ApiError, Kind

APPLY = "application/apply-patch+yaml"
GROUPS = {"tierkeeper.dev": "v1alpha1", "apps": "v1", "policy": "v1", "apiextensions.k8s.io": "v1"}
UNUSED = {
    "/api/v1": ("namespaces", "Namespace"),
    "/apis/apiextensions.k8s.io/v1": ("customresourcedefinitions", "CustomResourceDefinition"),
}
"""Known to discovery only: kopf waits for them, and must not ask for more."""


@dataclass
class Request:
    method: str
    path: str
    query: dict
    content_type: str


@dataclass
class ApiServer:
    """``refuse`` gives a status code for a request, or None to let it through; where ``ignore`` says so it is never
    answered."""

    kube: FakeKube = field(default_factory=FakeKube)
    requests: list[Request] = field(default_factory=list)
    refuse: object = staticmethod(lambda _: None)
    ignore: object = staticmethod(lambda _: False)
    port: int = 0
    _watchers: list[tuple[Kind, str, asyncio.Queue]] = field(default_factory=list)
    _history: list[tuple[Kind, dict]] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def serving(self):
        self.kube.on_change = self._changed
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            for _, _, queue in self._watchers:
                queue.put_nowait(None)
            await runner.cleanup()

    def kubeconfig(self, folder):
        """Path of a kubeconfig for this server."""
        path = folder / "kubeconfig"
        config = {
            "current-context": "fake",
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
            "clusters": [{"name": "fake", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "fake", "user": {"token": "s3cret"}}],
        }
        path.write_text(yaml.safe_dump(config))
        return path

    @property
    def patches(self):
        return [r for r in self.requests if r.method in ("PATCH", "POST", "PUT", "DELETE")]

    def end_watches(self):
        """Break every watch, as a restart of the API server does."""
        for _, _, queue in self._watchers:
            queue.put_nowait(None)

    def silence_watches(self):
        """Leave every watch open and never say a word on it again, as a network does that drops packets."""
        self._watchers.clear()

    def _changed(self, kind, obj, deleted):
        known = obj["metadata"]["resourceVersion"] if not deleted else str(next(self.kube._versions))
        event = {"type": "DELETED" if deleted else "MODIFIED", "object": obj}
        event["object"]["metadata"]["resourceVersion"] = known
        self._history.append((kind, event))
        for watched, selector, queue in self._watchers:
            if watched is kind and _selected(event, selector):
                queue.put_nowait(event)

    async def _handle(self, request):
        seen = Request(request.method, request.path, dict(request.query), request.headers.get("Content-Type", ""))
        self.requests.append(seen)
        if self.ignore(seen):
            await asyncio.sleep(3600)
        code = self.refuse(seen)
        if code is not None:
            return _status(code, "Refused", "the test refuses this")
        if (page := _discovery(request.path)) is not None:
            return web.json_response(page)
        try:
            return await self._api(request)
        except ApiError as error:
            return _status(error.status, error.reason, error.message)

    async def _api(self, request):
        kind, namespace, name, sub = _parse(request.path)
        if request.method == "GET" and name:
            obj = await self.kube.get(kind, namespace=namespace, name=name)
            return web.json_response(obj) if obj else _status(404, "NotFound", f"{name} not found")
        selector = request.query.get("labelSelector", "")
        if request.method == "GET" and request.query.get("watch") == "true":
            return await self._watch(request, kind, selector)
        if request.method == "GET":
            items = await self.kube.list(kind, namespace=namespace, label_selector=selector)
            version = str(next(self.kube._versions))
            return web.json_response({"metadata": {"resourceVersion": version}, "items": items})
        body = json.loads(await request.text())
        if request.method == "POST":
            await self.kube.create_event(body)
            return web.json_response(body, status=201)
        return web.json_response(await self._patch(request, namespace, name, sub, body))

    async def _patch(self, request, namespace, name, sub, body):
        manager = request.query.get("fieldManager", "unknown")
        if request.content_type != APPLY:
            annotations = body["metadata"]["annotations"]
            await self.kube.annotate_pod(namespace=namespace, name=name, annotations=annotations)
            return {}
        if sub == "scale":
            replicas = body["spec"]["replicas"]
            return await self.kube.scale(
                namespace=namespace,
                name=name,
                uid=body["metadata"].get("uid"),
                replicas=replicas,
                field_manager=manager,
            )
        apply = self.kube.apply_status if sub == "status" else self.kube.apply
        return await apply(body, field_manager=manager)

    async def _watch(self, request, kind, selector):
        response = web.StreamResponse()
        await response.prepare(request)
        queue = asyncio.Queue()
        since = int(request.query.get("resourceVersion", 0))
        for known, event in self._history:
            if (
                known is kind
                and int(event["object"]["metadata"]["resourceVersion"]) > since
                and _selected(event, selector)
            ):
                queue.put_nowait(event)
        entry = (kind, selector, queue)
        self._watchers.append(entry)
        try:
            with contextlib.suppress(ConnectionError):  # who watched went
                while (event := await queue.get()) is not None:
                    await response.write(json.dumps(event).encode() + b"\n")
        finally:
            with contextlib.suppress(ValueError):  # it was silenced
                self._watchers.remove(entry)
        return response


def _selected(event, selector):
    return not selector or selector in event["object"]["metadata"].get("labels", {})


def _parse(path):
    """Kind, namespace, name and subresource of a resource path."""
    for kind, (prefix, plural) in API_PATHS.items():
        rest = path.removeprefix(prefix + "/")
        if rest == path:
            continue
        parts = rest.split("/")
        namespace = None
        if parts[0] == "namespaces":
            namespace, parts = parts[1], parts[2:]
        if parts and parts[0] == plural:
            return kind, namespace, parts[1] if len(parts) > 1 else "", parts[2] if len(parts) > 2 else ""
    raise ApiError(status=404, reason="NotFound", message=path)


def _discovery(path):
    if path == "/api":
        return {"versions": ["v1"]}
    if path == "/apis":
        groups = [
            {"name": group, "versions": [{"version": version}], "preferredVersion": {"version": version}}
            for group, version in GROUPS.items()
        ]
        return {"groups": groups}
    if path == "/version":
        return {"major": "1", "minor": "36"}
    resources = [_resource(plural, kind.value) for kind, (prefix, plural) in API_PATHS.items() if prefix == path]
    if path in UNUSED:
        resources.append(_resource(*UNUSED[path], namespaced=False))
    return {"resources": resources} if resources else None


def _resource(plural, kind, *, namespaced=True):
    verbs = ["get", "list", "watch", "create", "patch"]
    return {"name": plural, "singularName": kind.lower(), "kind": kind, "namespaced": namespaced, "verbs": verbs}


def _status(code, reason, message):
    return web.json_response({"kind": "Status", "code": code, "reason": reason, "message": message}, status=code)
