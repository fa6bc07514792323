"""What the watch has shown: tiers and their children, in memory. Never the truth for a write, good for a decision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tierkeeper.engine.limits import MAX_NUM_BATCHED_TOKENS_KEY, MAX_NUM_SEQS_KEY
from tierkeeper.ports import Kind, Object
from tierkeeper.tier import TierKey

TIER_LABEL = "tierkeeper.dev/tier"
"""On every child, with the tier's name as value."""

CHILD_KINDS = (Kind.DEPLOYMENT, Kind.SERVICE, Kind.CONFIG_MAP, Kind.POD_DISRUPTION_BUDGET, Kind.POD)

_Ref = tuple[Kind, str, str]


def tier_of(kind: Kind, obj: Object) -> TierKey | None:
    """The tier that an object is or belongs to, None for a stranger."""
    meta = obj["metadata"]
    name = meta["name"] if kind == Kind.SERVICE_TIER else (meta.get("labels") or {}).get(TIER_LABEL)
    return TierKey(meta["namespace"], name) if name else None


def project(kind: Kind, obj: Object) -> Object:
    """The part of an object that is worth its memory: whole pods and managed fields would be most of the process."""
    meta = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    kept: Object = {"kind": kind.value, "metadata": meta}
    match kind:
        case Kind.SERVICE_TIER:
            return kept | {"apiVersion": obj.get("apiVersion"), "spec": obj.get("spec")}
        case Kind.DEPLOYMENT:
            # Its managed fields tell whether something else scales it.
            kept["metadata"] = obj["metadata"]
            return kept | {"spec": {"replicas": obj["spec"].get("replicas", 1)}, "status": obj.get("status")}
        case Kind.CONFIG_MAP:
            return kept | {"data": limit_data} if (limit_data := _limits(obj)) else kept
        case Kind.POD:
            # Its gates tell whether the scheduler is asked at all, its init containers which of them run on beside it.
            spec = obj.get("spec") or {}
            inits = [_of(one, "name", "restartPolicy") for one in spec.get("initContainers") or ()]
            kept_spec = _of(spec, "schedulingGates") | {"initContainers": inits}
            return kept | {"spec": kept_spec, "status": obj.get("status")}
        case _:
            return kept


def _limits(obj: Object) -> Object:
    """The live limits in a ConfigMap, if it holds any; the plugin's text is not kept."""
    return _of(obj.get("data"), MAX_NUM_SEQS_KEY, MAX_NUM_BATCHED_TOKENS_KEY)


def _of(part: Object | None, *names: str) -> Object:
    """These fields of a part of an object, where it has them."""
    return {name: part[name] for name in names if name in part} if part else {}


@dataclass(slots=True)
class Store:
    """Fed by watch events and, for what a broken watch missed, by whole lists.

    What arrives is taken only where it is no older than what is known: an event that was under way while this process
    wrote shows the object as it was before. A whole list may be older than the events that arrived while it was under
    way; those win.
    """

    _objects: dict[_Ref, Object] = field(default_factory=dict)
    _tiers: dict[_Ref, TierKey] = field(default_factory=dict)
    _members: dict[TierKey, set[_Ref]] = field(default_factory=dict)
    _touched: dict[_Ref, int] = field(default_factory=dict)
    _moment: int = 0
    complete: bool = False
    """True once every kind was listed in full."""

    def put(self, kind: Kind, obj: Object) -> TierKey | None:
        """Remember an object; the tier it belongs to."""
        ref = _ref(kind, obj)
        if self._outdated(ref, obj):
            return self._tiers.get(ref)
        self._touch(ref)
        return self._keep(ref, obj)

    def drop(self, kind: Kind, obj: Object) -> TierKey | None:
        """Forget an object; the tier it belonged to. One made anew under the name since then stays."""
        ref = _ref(kind, obj)
        if self._outdated(ref, obj):
            return self._tiers.get(ref)
        self._touch(ref)
        return self._discard(ref)

    def catch_up(self, kind: Kind, obj: Object) -> None:
        """Take over a newer state of a known object, read elsewhere: a watch that hangs must not hold the loop back."""
        if _ref(kind, obj) in self._objects:
            self.put(kind, project(kind, obj))

    def moment(self) -> int:
        """Marks the start of a list, for ``replace``."""
        return self._moment

    def replace(self, kind: Kind, objects: Iterable[Object], *, since: int) -> None:
        """Make a whole list, begun at the moment ``since``, the content for that kind."""
        listed = {_ref(kind, obj): obj for obj in objects}
        stale = [ref for ref in self._objects if ref[0] == kind and ref not in listed]
        for ref in stale:
            if self._touched.get(ref, 0) <= since:
                self._discard(ref)
        for ref, obj in listed.items():
            if self._touched.get(ref, 0) <= since:
                self._keep(ref, obj)
        for ref in [ref for ref in self._touched if ref[0] == kind and ref not in self._objects]:
            del self._touched[ref]

    def tier(self, key: TierKey) -> Object | None:
        return self._objects.get((Kind.SERVICE_TIER, key.namespace, key.name))

    def tiers(self) -> Sequence[TierKey]:
        """Every tier that exists, in a stable order."""
        return sorted(TierKey(ns, name) for kind, ns, name in self._objects if kind == Kind.SERVICE_TIER)

    def child(self, key: TierKey, kind: Kind, name: str) -> Object | None:
        return self._objects.get((kind, key.namespace, name))

    def children(self, key: TierKey, kind: Kind) -> Sequence[Object]:
        """Children of one kind that carry the tier's label."""
        return [self._objects[ref] for ref in sorted(self._members.get(key, ())) if ref[0] == kind]

    def _outdated(self, ref: _Ref, obj: Object) -> bool:
        known, new = _version(self._objects.get(ref)), _version(obj)
        return known is not None and new is not None and new < known

    def _touch(self, ref: _Ref) -> None:
        self._moment += 1
        self._touched[ref] = self._moment

    def _keep(self, ref: _Ref, obj: Object) -> TierKey | None:
        self._discard(ref)
        key = tier_of(ref[0], obj)
        self._objects[ref] = obj
        if key is not None:
            self._tiers[ref] = key
            self._members.setdefault(key, set()).add(ref)
        return key

    def _discard(self, ref: _Ref) -> TierKey | None:
        self._objects.pop(ref, None)
        key = self._tiers.pop(ref, None)
        if key is not None:
            members = self._members[key]
            members.discard(ref)
            if not members:
                del self._members[key]
        return key


def _version(obj: Object | None) -> int | None:
    """The resourceVersion, which grows with each write to a kind; None where it is none that can be compared."""
    version = str(obj["metadata"].get("resourceVersion")) if obj else ""
    return int(version) if version.isascii() and version.isdigit() else None


def _ref(kind: Kind, obj: Object) -> _Ref:
    return kind, obj["metadata"]["namespace"], obj["metadata"]["name"]
