"""Reads and writes the objects of one pool: compared first, never adopted, never fought over."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tierkeeper.control.pool import APPLY_MANAGER, SCALE_MANAGER
from tierkeeper.control.record import TierRecord
from tierkeeper.control.store import TIER_LABEL, Store, project
from tierkeeper.obs.metrics import Metrics
from tierkeeper.ports import CREATE_ONLY, Clock, Kind, KubeApi, Object
from tierkeeper.render.drift import Drift, DriftReason, is_foreign, needs_apply
from tierkeeper.render.names import HASH_ANNOTATION, TEMPLATE_HASH_ANNOTATION
from tierkeeper.tier import TierSpec

log = logging.getLogger(__name__)

Ref = tuple[Kind, str]


@dataclass(frozen=True, slots=True)
class Live:
    """The pool's objects as the API server has them now."""

    objects: Mapping[Ref, Object | None]
    pods: Sequence[Object]

    def deployment(self, spec: TierSpec) -> Object | None:
        return self.objects.get((Kind.DEPLOYMENT, spec.pool_name))

    def limits(self, spec: TierSpec) -> Object | None:
        return self.objects.get((Kind.CONFIG_MAP, spec.limit_name))

    def foreign(self, spec: TierSpec) -> str | None:
        """What object is in the way, and what to do about it; None where all are ours or absent."""
        words = (is_foreign(obj, spec.uid) for obj in self.objects.values() if obj is not None)
        return next((said for said in words if said is not None), None)


@dataclass(slots=True)
class Applied:
    """What one pass wrote, and what it left alone because it is written back each time."""

    repaired: list[str] = field(default_factory=list)
    rewritten: list[str] = field(default_factory=list)
    kept: set[Ref] = field(default_factory=set)
    """The objects that were left alone."""


@dataclass(frozen=True, slots=True)
class Children:
    """The pool of a tier, through the API."""

    api: KubeApi
    store: Store
    clock: Clock
    metrics: Metrics

    async def look(self, spec: TierSpec) -> Live:
        """Read every object of the pool. Raises ApiError."""
        refs = (
            (Kind.DEPLOYMENT, spec.pool_name),
            (Kind.SERVICE, spec.pool_name),
            (Kind.POD_DISRUPTION_BUDGET, spec.pool_name),
            (Kind.CONFIG_MAP, spec.limit_name),
            (Kind.CONFIG_MAP, spec.plugin_name),
        )
        namespace = spec.key.namespace
        found = await asyncio.gather(*(self.api.get(kind, namespace=namespace, name=name) for kind, name in refs))
        selector = f"{TIER_LABEL}={spec.key.name}"
        pods = await self.api.list(Kind.POD, namespace=namespace, label_selector=selector)
        return Live(dict(zip(refs, found, strict=True)), pods)

    async def apply(self, record: TierRecord, rendered: Sequence[Object], live: Live) -> Applied:
        """Write what differs, in the given order. Raises ApiError; what was written before stays and is found again."""
        done = Applied()
        for obj in rendered:
            ref = Kind(obj["kind"]), obj["metadata"]["name"]
            before = live.objects.get(ref)
            drift = needs_apply(obj, before)
            if drift is not None:
                await self._write(record, obj, before, drift, done)
            if before is not None:
                record.children.add(ref)
        return done

    async def _write(self, record: TierRecord, obj: Object, before: Object | None, drift: Drift, done: Applied) -> None:
        ref = Kind(obj["kind"]), obj["metadata"]["name"]
        now, content = self.clock.monotonic(), obj["metadata"]["annotations"][HASH_ANNOTATION]
        if not record.guard.allows(ref, content, now=now):
            done.rewritten.append(drift.message)
            done.kept.add(ref)
            return
        new = drift.reason is DriftReason.MISSING
        log.info("create %s %s", *ref) if new else log.info("apply: %s", drift.message)
        after = await self.api.apply(_that_one(obj, before), field_manager=APPLY_MANAGER)
        self.metrics.writes.labels("apply", ref[0].value).inc()
        self.store.put(ref[0], project(ref[0], after))
        record.guard.made(ref, content, now=now)
        if drift.reason is DriftReason.EDITED:
            done.repaired.append(drift.message)
        elif new and ref in record.children:
            done.repaired.append(f"{ref[0]} {ref[1]} was deleted by someone else and is made again")
        if ref[0] is Kind.DEPLOYMENT and before is not None and _template(before) != _template(after):
            record.rollout = after["metadata"]["uid"], after["metadata"]["generation"]

    async def scale(self, spec: TierSpec, live: Live, *, replicas: int) -> None:
        """Set the replicas of the Deployment that was looked at, as their own field manager. Raises ApiError."""
        seen = live.deployment(spec)
        scale = await self.api.scale(
            namespace=spec.key.namespace,
            name=spec.pool_name,
            uid=seen["metadata"]["uid"] if seen else None,
            replicas=replicas,
            field_manager=SCALE_MANAGER,
        )
        self.metrics.writes.labels("scale", Kind.DEPLOYMENT.value).inc()
        known = self.store.child(spec.key, Kind.DEPLOYMENT, spec.pool_name)
        if known is not None:  # the watch will say so too; until then a decision must not see the old number
            changed = copy.deepcopy(known)
            changed["spec"]["replicas"] = replicas
            changed["metadata"]["resourceVersion"] = scale["metadata"].get("resourceVersion")
            self.store.put(Kind.DEPLOYMENT, changed)


def _that_one(obj: Object, before: Object | None) -> Object:
    """The object so that its apply touches what was looked at and nothing else.

    A stranger that came under its name since then would else be adopted, and later collected with the tier.
    """
    only = {"uid": before["metadata"]["uid"]} if before else {"resourceVersion": CREATE_ONLY}
    return obj | {"metadata": obj["metadata"] | only}


def _template(deployment: Object) -> str | None:
    annotations: Mapping[str, str] = deployment["metadata"].get("annotations") or {}
    return annotations.get(TEMPLATE_HASH_ANNOTATION)
