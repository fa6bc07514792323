"""Everything that runs while the operator runs: workers, SLO loop, resync. It ends as a whole or not at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from tierkeeper.control.queue import KeyedQueue
from tierkeeper.control.reconciler import Reconciler
from tierkeeper.control.record import Records
from tierkeeper.control.slo_loop import SloLoop
from tierkeeper.control.store import CHILD_KINDS, TIER_LABEL, Store, project
from tierkeeper.obs.health import Health
from tierkeeper.obs.metrics import Metrics
from tierkeeper.ports import ApiError, Kind, KubeApi, Object
from tierkeeper.tier import TierKey

log = logging.getLogger(__name__)

CHILD_EVENT_SECONDS = 0.2
"""Events of children come in bursts, many a second during a rollout: one look serves them all."""
FIRST_LIST_RETRY_SECONDS = 2.0
DRAIN_SECONDS = 10.0
"""How long a reconcile under way may take to end when the operator stops."""


class MissingCrdError(RuntimeError):
    """The cluster does not know ServiceTiers."""


@dataclass(slots=True)
class Runtime:
    """The operator's heart, without any watching of its own: ``seen`` is called for each watch event."""

    api: KubeApi
    store: Store
    records: Records
    queue: KeyedQueue[TierKey]
    reconciler: Reconciler
    loop: SloLoop
    health: Health
    metrics: Metrics
    namespaces: Sequence[str]
    """Empty: the whole cluster."""
    workers: int
    resync_seconds: float
    random: Callable[[], float]
    end: Callable[[], None]
    """Called when a part has died, and when all parts have ended: the process is to end."""
    stopped: Callable[[], Awaitable[None]] | None = None
    """Awaited when the last write has been made: another replica may begin."""
    failure: BaseException | None = None
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def seen(self, kind: Kind, obj: Object, *, deleted: bool) -> None:
        """A watch event: remember the object, and wake its tier if that can matter."""
        if kind is Kind.SERVICE_TIER:
            self._seen_tier(obj, deleted=deleted)
            return
        key = self.store.drop(kind, obj) if deleted else self.store.put(kind, project(kind, obj))
        if key is not None and self.store.tier(key) is not None:
            self.queue.add_after(key, CHILD_EVENT_SECONDS)

    def _seen_tier(self, obj: Object, *, deleted: bool) -> None:
        meta = obj["metadata"]
        key = TierKey(meta["namespace"], meta["name"])
        if deleted:
            self.store.drop(Kind.SERVICE_TIER, obj)
            self.queue.forget(key)
            self.queue.add(key)  # once more, so that its record and metrics go too
            return
        before = self.store.tier(key)
        self.store.put(Kind.SERVICE_TIER, project(Kind.SERVICE_TIER, obj))
        if before is None or _identity(before) != _identity(obj):
            self.queue.add(key)  # our own status writes come back as events too, and wake nobody

    def start(self) -> None:
        """Start all parts. Must be called inside a running event loop."""
        self.metrics.queue_depth.set_function(lambda: self.queue.depth)
        self._spawn("resync", self._resync_for_ever())
        self._spawn("slo loop", self.loop.run())
        for number in range(self.workers):
            self._spawn(f"worker {number}", self.queue.worker(self.reconciler.reconcile))

    async def stop(self) -> None:
        """End all parts; a reconcile under way may end first, within the drain time."""
        self.queue.close()
        for task in self._tasks:
            if not task.get_name().startswith("worker"):
                task.cancel()
        deadline = asyncio.get_running_loop().time() + DRAIN_SECONDS
        while self.queue.busy and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.stopped is not None:
            await self.stopped()
        self.end()

    def _spawn(self, name: str, part: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(part, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """No part ever ends by itself: a process with a dead part would look alive and do nothing."""
        if task.cancelled():
            return
        error = task.exception() or RuntimeError(f"{task.get_name()} ended")
        log.error("%s died: %s", task.get_name(), error)
        if self.failure is None:
            self.failure = error
            self.end()

    async def _resync_for_ever(self) -> None:
        """List everything at the start, and then now and again: what a broken watch has missed is found here."""
        while not self.store.complete:
            try:
                await self.resync()
            except ApiError as error:
                log.warning("listing the cluster failed: %s", error)
                await asyncio.sleep(FIRST_LIST_RETRY_SECONDS)
        while True:
            await asyncio.sleep(self.resync_seconds * (0.9 + 0.2 * self.random()))
            try:
                await self.resync()
            except ApiError as error:
                log.warning("resync failed, next try in %.0f s: %s", self.resync_seconds, error)

    async def resync(self) -> None:
        """One full list of every kind. Raises ApiError, or MissingCrdError where ServiceTiers are unknown."""
        for kind in (Kind.SERVICE_TIER, *CHILD_KINDS):
            since = self.store.moment()
            self.store.replace(kind, [project(kind, obj) for obj in await self._list(kind)], since=since)
        self.store.complete = self.health.populated = True
        known = set(self.store.tiers())
        for key in known | {record.key for record in self.records}:
            self.queue.add(key)

    async def _list(self, kind: Kind) -> list[Object]:
        selector = "" if kind is Kind.SERVICE_TIER else TIER_LABEL
        found: list[Object] = []
        for namespace in self.namespaces or (None,):
            try:
                found += await self.api.list(kind, namespace=namespace, label_selector=selector)
            except ApiError as error:
                if kind is Kind.SERVICE_TIER and error.status == 404:
                    text = "ServiceTiers are unknown to this cluster: apply crds/servicetiers.yaml (`tierkeeper crd`)"
                    raise MissingCrdError(text) from error
                raise
        return found


def _identity(obj: Object) -> tuple[object, ...]:
    """What of a ServiceTier can ask for work: not its status."""
    meta = obj["metadata"]
    return meta.get("uid"), meta.get("generation"), meta.get("deletionTimestamp")
