"""``ports.LeaseLock`` over a coordination.k8s.io/v1 Lease."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tierkeeper.ports import CREATE_ONLY, Kind, KubeApi, Lease, Object

FIELD_MANAGER = "tierkeeper"


class KubernetesLease:
    """See ``ports.LeaseLock``. ``api`` should try a call once: a repeated write would not know of its first try."""

    def __init__(self, api: KubeApi, *, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name

    async def read(self) -> Lease | None:
        obj = await self._api.get(Kind.LEASE, namespace=self._namespace, name=self._name)
        return None if obj is None else _parse(obj)

    async def write(self, lease: Lease, *, over: Lease | None) -> Lease:
        # The uid, because a version alone is not compared where the Lease was deleted meanwhile: it would be made anew.
        which = {"uid": over.uid, "resourceVersion": over.version} if over else {"resourceVersion": CREATE_ONLY}
        obj = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": Kind.LEASE.value,
            "metadata": {
                "namespace": self._namespace,
                "name": self._name,
                **which,
                "labels": {"app.kubernetes.io/managed-by": "tierkeeper"},
            },
            # A field that is left out is taken away: that is how a Lease has no holder.
            "spec": {name: value for name, value in _spec(lease).items() if value is not None},
        }
        live = await self._api.apply(obj, field_manager=FIELD_MANAGER)
        return replace(lease, uid=live["metadata"]["uid"], version=live["metadata"]["resourceVersion"])


def _spec(lease: Lease) -> dict[str, Any]:
    return {
        "holderIdentity": lease.holder,
        "leaseDurationSeconds": None if lease.seconds is None else round(lease.seconds),
        "leaseTransitions": lease.transitions,
        "acquireTime": _time(lease.acquired),
        "renewTime": _time(lease.renewed),
    }


def _parse(obj: Object) -> Lease:
    spec = obj.get("spec") or {}
    return Lease(
        holder=spec.get("holderIdentity") or None,
        seconds=spec.get("leaseDurationSeconds"),
        transitions=spec.get("leaseTransitions") or 0,
        acquired=_seconds(spec.get("acquireTime")),
        renewed=_seconds(spec.get("renewTime")),
        uid=obj["metadata"]["uid"],
        version=obj["metadata"]["resourceVersion"],
    )


def _time(unix: float | None) -> str | None:
    """As a MicroTime: the API server wants all six digits."""
    return None if unix is None else datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _seconds(text: str | None) -> float | None:
    return datetime.fromisoformat(text).timestamp() if text else None
