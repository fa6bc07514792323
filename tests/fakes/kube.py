"""An in-memory API server: the part of Kubernetes that the operator leans on, and no more.

Server-side apply with field managers (maps merge, lists are atomic), server defaults, generation and resourceVersion
that move only on change, the scale and status subresources, owner garbage collection, and a deployment controller that
turns replicas into pods when told to. Calls can be made to fail, before or after they took effect.
"""

import itertools
import marshal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tierkeeper.ports import ApiError, Kind, Object

WRITES = ("apply", "apply_status", "scale", "annotate_pod")
TEMPLATE_HASH = "pod-template-hash"


class Crash(BaseException):
    """The operator's process dies here: nothing may catch it."""


@dataclass(frozen=True)
class Call:
    verb: str
    kind: Kind
    namespace: str | None
    name: str
    manager: str = ""


@dataclass
class FakeKube:
    """See ``ports.KubeApi``. Everything handed out is a copy."""

    objects: dict[tuple[Kind, str, str], Object] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    events: list[Object] = field(default_factory=list)
    on_change: Callable[[Kind, Object, bool], None] = lambda _kind, _obj, _deleted: None
    crash_before: int | None = None
    """Die at the nth call (from 1), before it takes effect."""
    crash_after: int | None = None
    fail: Callable[[Call], ApiError | None] = lambda _: None
    mutate: Callable[[Object], None] = lambda _: None
    """A mutating webhook: changes what is about to be stored."""
    _owned: dict[tuple[Kind, str, str], dict[tuple[str, str], set[tuple[str, ...]]]] = field(default_factory=dict)
    _uids: itertools.count = field(default_factory=lambda: itertools.count(1))
    _versions: itertools.count = field(default_factory=lambda: itertools.count(100))

    # ── what the operator calls ────────────────────────────────────────────────────────────────

    async def get(self, kind, *, namespace, name):
        with self._call(Call("get", kind, namespace, name)):
            return copied(self.objects.get((kind, namespace, name)))

    async def list(self, kind, *, namespace, label_selector=""):
        with self._call(Call("list", kind, namespace, label_selector)):
            return [
                copied(obj)
                for (k, ns, _), obj in sorted(self.objects.items())
                if k == kind and namespace in (None, ns) and _selected(obj, label_selector)
            ]

    async def apply(self, obj, *, field_manager):
        kind, meta = Kind(obj["kind"]), obj["metadata"]
        with self._call(Call("apply", kind, meta["namespace"], meta["name"], field_manager)):
            wanted = copied(obj)
            self._require(kind, wanted["metadata"])
            self.mutate(wanted)
            return self._apply(kind, wanted, (field_manager, ""))

    async def apply_status(self, obj, *, field_manager):
        kind, meta = Kind(obj["kind"]), obj["metadata"]
        with self._call(Call("apply_status", kind, meta["namespace"], meta["name"], field_manager)):
            if (kind, meta["namespace"], meta["name"]) not in self.objects:
                raise not_found(kind, meta["name"])
            meta = copied(meta)
            self._require(kind, meta)
            return self._apply(kind, {"metadata": meta, "status": copied(obj["status"])}, (field_manager, "status"))

    async def scale(self, *, namespace, name, replicas, field_manager, uid=None):
        with self._call(Call("scale", Kind.DEPLOYMENT, namespace, name, field_manager)):
            if (Kind.DEPLOYMENT, namespace, name) not in self.objects:
                raise not_found(Kind.DEPLOYMENT, name)
            meta = {"namespace": namespace, "name": name}
            self._require(Kind.DEPLOYMENT, meta | ({"uid": uid} if uid else {}))
            wanted = {"metadata": meta, "spec": {"replicas": replicas}}
            live = self._apply(Kind.DEPLOYMENT, wanted, (field_manager, "scale"))
            return wanted | {"metadata": meta | {"resourceVersion": live["metadata"]["resourceVersion"]}}

    async def annotate_pod(self, *, namespace, name, annotations):
        with self._call(Call("annotate_pod", Kind.POD, namespace, name)):
            if (pod := self.objects.get((Kind.POD, namespace, name))) is not None:
                self._store(Kind.POD, _merged(pod, {"metadata": {"annotations": dict(annotations)}}))

    async def create_event(self, event):
        with self._call(Call("create_event", Kind.EVENT, event["metadata"]["namespace"], event["metadata"]["name"])):
            self.events.append(copied(event))

    # ── what people and other controllers do ───────────────────────────────────────────────────

    def put(self, obj: Object) -> Object:
        """Create or replace an object as a user would (kubectl replace)."""
        kind, new = Kind(obj["kind"]), copied(obj)
        old = self.objects.get(self._key(kind, new))
        new["metadata"] = {"uid": f"uid-{next(self._uids)}"} | (old or {}).get("metadata", {}) | new["metadata"]
        if old and kind == Kind.SERVICE_TIER:
            new.setdefault("status", old.get("status", {}))
        return copied(self._store(kind, new))

    def edit(self, kind: Kind, namespace: str, name: str, change: Mapping, *, manager: str = "kubectl-edit") -> Object:
        """Merge a change into a live object, as another field manager that takes ownership of what it sets."""
        partial = {"metadata": {"namespace": namespace, "name": name}} | dict(change)
        return self._apply(kind, partial, (manager, ""))

    def delete(self, kind: Kind, namespace: str, name: str) -> None:
        """Delete an object and, as the garbage collector does, whatever it owns."""
        gone = self.objects.pop((kind, namespace, name))
        self._owned.pop((kind, namespace, name), None)
        self.on_change(kind, copied(gone), True)
        uid = gone["metadata"]["uid"]
        for key, obj in list(self.objects.items()):
            if key in self.objects and any(owner["uid"] == uid for owner in obj["metadata"].get("ownerReferences", [])):
                self.delete(*key)

    def run_deployments(self, *, ready: bool = True, pod: Mapping | None = None) -> None:
        """Be the deployment controller for a moment: every Deployment gets its pods, of its present template.

        Pods are ``ready`` at once, or as ``pod`` (a status) says. Old pods are replaced.
        """
        for (kind, namespace, name), deployment in list(self.objects.items()):
            if kind != Kind.DEPLOYMENT:
                continue
            wanted = deployment["spec"].get("replicas", 1)
            template = f"{abs(hash(repr(deployment['spec']['template']))) % 10**8:08d}"
            mine = self.pods_of(namespace, name)
            keep = [p for p in mine if p["metadata"]["labels"][TEMPLATE_HASH] == template][:wanted]
            for old in mine:
                if old["metadata"]["name"] not in {p["metadata"]["name"] for p in keep}:
                    self.delete(Kind.POD, namespace, old["metadata"]["name"])
            for number in range(wanted - len(keep)):
                self.put(_pod(deployment, template, f"{next(self._uids)}-{number}"))
            for live in self.pods_of(namespace, name):
                self._store(Kind.POD, live | {"status": dict(pod) if pod else pod_status(ready=ready)})
            status = {
                "replicas": wanted,
                "updatedReplicas": wanted,
                "readyReplicas": wanted if ready and not pod else 0,
            }
            current = self.objects[kind, namespace, name]
            status["observedGeneration"] = current["metadata"]["generation"]
            self._store(kind, current | {"status": current.get("status", {}) | status})

    def pods_of(self, namespace: str, deployment: str) -> Sequence[Object]:
        return [
            obj
            for (kind, ns, _), obj in self.objects.items()
            if kind == Kind.POD
            and ns == namespace
            and obj["metadata"]["ownerReferences"][0]["name"].rpartition("-")[0] == deployment
        ]

    def set_pod_status(self, namespace: str, name: str, status: Mapping) -> None:
        self._store(Kind.POD, self.objects[Kind.POD, namespace, name] | {"status": dict(status)})

    @property
    def writes(self) -> Sequence[Call]:
        return [call for call in self.calls if call.verb in WRITES]

    def settled(self) -> dict:
        """Everything that matters of the final state: specs and data, without versions, times or status."""
        return {
            (kind.value, ns, name): {part: obj.get(part) for part in ("spec", "data")}
            for (kind, ns, name), obj in self.objects.items()
            if kind not in (Kind.POD, Kind.EVENT)
        }

    # ── inside ─────────────────────────────────────────────────────────────────────────────────

    def _call(self, call: Call):
        return _Attempt(self, call)

    def _key(self, kind: Kind, obj: Object) -> tuple[Kind, str, str]:
        return kind, obj["metadata"]["namespace"], obj["metadata"]["name"]

    def _require(self, kind: Kind, meta: Object) -> None:
        """The preconditions in an apply, as a real API server holds them (a version is not compared where nothing is;
        the status subresource of a custom resource compares no uid). They are no part of what is stored."""
        uid, version = meta.pop("uid", None), meta.pop("resourceVersion", None)
        live = self.objects.get((kind, meta["namespace"], meta["name"]))
        have = live["metadata"] if live else {"uid": None, "resourceVersion": version}
        if (uid and uid != have["uid"]) or (version and version != have["resourceVersion"]):
            raise ApiError(status=409, reason="Conflict", message=f"{kind} {meta['name']} is not the one named")

    def _apply(self, kind: Kind, wanted: Object, manager: tuple[str, str]) -> Object:
        key = self._key(kind, wanted)
        live = self.objects.get(key) or {
            "apiVersion": wanted.get("apiVersion"),
            "kind": kind.value,
            "metadata": {"uid": f"uid-{next(self._uids)}"},
        }
        owned = self._owned.setdefault(key, {})
        sets = _leaves({part: value for part, value in wanted.items() if part not in ("apiVersion", "kind")})
        for other, paths in owned.items():
            if other != manager:
                paths -= {path for path in sets if _at(live, path) != _at(wanted, path)}  # force takes it over
        let_go = owned.get(manager, set()) - sets - set().union(*(p for m, p in owned.items() if m != manager))
        merged = _merged(live, wanted)
        for path in let_go:
            _remove(merged, path)
        owned[manager] = sets
        merged["metadata"]["managedFields"] = [
            {
                "manager": name,
                "operation": "Apply" if name.startswith("tierkeeper") else "Update",
                "subresource": sub,
                "fieldsV1": _fields(paths),
            }
            for (name, sub), paths in sorted(owned.items())
            if paths
        ]
        return copied(self._store(kind, merged))

    def _store(self, kind: Kind, obj: Object) -> Object:
        key = self._key(kind, obj)
        old, new = self.objects.get(key), copied(obj)
        if kind == Kind.DEPLOYMENT:
            new["spec"].setdefault("replicas", 1)
            new["spec"].setdefault("progressDeadlineSeconds", 600)
            new["spec"].setdefault("revisionHistoryLimit", 10)
        meta = new["metadata"]
        meta["generation"] = (old or {}).get("metadata", {}).get("generation", 0)
        if old is None or old.get("spec") != new.get("spec"):
            meta["generation"] += 1
        if old is not None and _without_version(old) == _without_version(new):
            return old
        meta["resourceVersion"] = str(next(self._versions))
        self.objects[key] = new
        self.on_change(kind, copied(new), False)
        return new


@dataclass
class _Attempt:
    kube: FakeKube
    call: Call

    def __enter__(self):
        self.kube.calls.append(self.call)
        if self.kube.crash_before == len(self.kube.calls):
            raise Crash
        if (error := self.kube.fail(self.call)) is not None:
            raise error

    def __exit__(self, kind, error, trace):
        if error is None and self.kube.crash_after == len(self.kube.calls):
            raise Crash


def copied(value):
    """A deep copy of plain types, and proof that they are: many times faster than copy.deepcopy."""
    return marshal.loads(marshal.dumps(value))  # noqa: S302 - bytes of its own making


def not_found(kind: Kind, name: str) -> ApiError:
    return ApiError(status=404, reason="NotFound", message=f"{kind} {name!r} not found")


def pod_status(*, ready: bool = True, ip: str = "10.0.0.1") -> Object:
    return {
        "phase": "Running",
        "podIP": ip,
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": "True" if ready else "False"},
        ],
        "containerStatuses": [{"name": "vllm", "ready": ready, "restartCount": 0, "state": {"running": {}}}],
    }


def _pod(deployment: Object, template_hash: str, suffix: str) -> Object:
    meta = deployment["metadata"]
    template = copied(deployment["spec"]["template"])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{meta['name']}-{template_hash}-{suffix}",
            "namespace": meta["namespace"],
            "labels": template["metadata"].get("labels", {}) | {TEMPLATE_HASH: template_hash},
            "annotations": template["metadata"].get("annotations", {}),
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{meta['name']}-{template_hash}",
                    "uid": meta["uid"],  # one step short: the fake has no ReplicaSets
                    "controller": True,
                }
            ],
        },
        "spec": template["spec"],
        "status": {"phase": "Pending"},
    }


def _selected(obj: Object, selector: str) -> bool:
    labels = obj["metadata"].get("labels", {})
    terms = [term for term in selector.split(",") if term]
    return all(
        labels.get(term.partition("=")[0]) == term.partition("=")[2] if "=" in term else term in labels
        for term in terms
    )


def _merged(live, wanted):
    if isinstance(live, dict) and isinstance(wanted, dict):
        return live | {key: _merged(live.get(key), value) for key, value in wanted.items()}
    return copied(wanted)


def _leaves(value, path=()) -> set[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        return set().union(*(_leaves(item, (*path, key)) for key, item in value.items()))
    return {path}


def _at(obj, path):
    for step in path:
        if not isinstance(obj, dict) or step not in obj:
            return None
        obj = obj[step]
    return obj


def _remove(obj, path) -> None:
    for step in path[:-1]:
        if not isinstance(obj := obj.get(step, {}), dict):
            return
    obj.pop(path[-1], None)


def _fields(paths: set[tuple[str, ...]]) -> Object:
    tree: Object = {}
    for path in paths:
        node = tree
        for step in path:
            node = node.setdefault(f"f:{step}", {})
    return tree


def _without_version(obj: Object) -> Object:
    """To be compared, so it is no copy."""
    moving = ("resourceVersion", "managedFields", "generation")
    return obj | {"metadata": {key: value for key, value in obj["metadata"].items() if key not in moving}}
