"""Makes one tier's pool what its spec and its last decision say, and writes down what is so. The only writer."""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tierkeeper.api import API_VERSION, KIND
from tierkeeper.api.conditions import ConditionReason
from tierkeeper.api.convert import InvalidTier, to_tier
from tierkeeper.api.status import ServiceTierStatus, read_status
from tierkeeper.control import announce
from tierkeeper.control.children import Applied, Children, Live
from tierkeeper.control.desired import desired_levers
from tierkeeper.control.facts import Facts, Trouble
from tierkeeper.control.gauges import gauges, shown_by_all
from tierkeeper.control.pool import APPLY_MANAGER, PoolView, view_pool
from tierkeeper.control.record import Records, Resize, TierRecord
from tierkeeper.control.resize import LiveLimits
from tierkeeper.control.status import build_status, needs_write, rfc3339
from tierkeeper.control.store import Store
from tierkeeper.control.trail import Trail
from tierkeeper.engine.flags import live_resize
from tierkeeper.engine.limits import Limits
from tierkeeper.obs import tracing
from tierkeeper.obs.logs import carrying_out, working
from tierkeeper.obs.metrics import Metrics
from tierkeeper.ports import (
    NAMESPACE_TERMINATING,
    ApiError,
    Clock,
    EngineProbe,
    EventType,
    Kind,
    KubeApi,
    Object,
    Recorder,
    Tracer,
)
from tierkeeper.render.pool import render_pool
from tierkeeper.scaling.model import Decision, Levers
from tierkeeper.tier import Mode, TierKey, TierSpec

log = logging.getLogger(__name__)

RETRY_REFUSED_SECONDS = 60.0
"""The API server refused: what would help (a right, a quota, a fix) comes from outside, and no watch tells."""

FAILING_SECONDS = 60.0
"""A write that has failed for so long, while reads work, is worth a word: an admission webhook that is down, say."""

Announce = announce.Announcement


@dataclass(slots=True)
class _Pass:
    """One reconcile of one tier: what was read, what was done, what is to be said."""

    obj: Object
    record: TierRecord
    spec: TierSpec | None = None
    view: PoolView | None = None
    desired: Levers | None = None
    decision: Decision | None = None
    pending: Levers | None = None
    """The record's own, as they were when ``desired`` was chosen: the loop may decide anew while this pass writes."""
    applied: Applied | None = None
    """What the pool's objects needed; None until all of them are compared and written."""
    trouble: Trouble | None = None
    failure: ApiError | None = None
    """What the queue is to hear once the status is written."""
    again: float | None = None
    news: list[Announce] = field(default_factory=list)

    def look_again(self, seconds: float | None) -> None:
        """Ask to be called again after at most so long."""
        if seconds is not None:
            self.again = seconds if self.again is None else min(self.again, seconds)


class Reconciler:
    """See the module. One instance serves all tiers; the queue sees to it that one key is in one hand at a time."""

    def __init__(
        self,
        *,
        api: KubeApi,
        probe: EngineProbe,
        clock: Clock,
        recorder: Recorder,
        store: Store,
        records: Records,
        metrics: Metrics,
        plugin_source: str,
        status_interval_seconds: float,
        tracer: Tracer = tracing.NO_TRACER,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex[:8],
    ) -> None:
        self._api = api
        self._clock = clock
        self._recorder = recorder
        self._store = store
        self._records = records
        self._metrics = metrics
        self._plugin_source = plugin_source
        self._status_interval = status_interval_seconds
        self._trail = Trail(tracer)
        self._new_id = new_id
        self._children = Children(api, store, clock, metrics)
        self._live_limits = LiveLimits(api, probe, clock)

    async def reconcile(self, key: TierKey) -> float | None:
        """Bring one tier to its wanted state. Returns seconds until to look again, or None: when something changes.

        Raises ApiError where the API server is not there or overloaded; the queue then tries again.
        """
        with working(id=self._new_id(), key=key), self._metrics.reconcile_seconds.time():
            try:
                again = await self._reconcile(key)
            except ApiError as error:
                self._count(error.reason)
                log.warning("will try again: %s", error)
                raise
            except Exception as error:
                self._count(type(error).__name__)
                log.exception("will try again")
                raise
        self._metrics.reconciles.labels("ok").inc()
        return again

    def _count(self, reason: str) -> None:
        self._metrics.reconciles.labels("error").inc()
        self._metrics.reconcile_errors.labels(reason).inc()

    async def _reconcile(self, key: TierKey) -> float | None:
        obj = await self._api.get(Kind.SERVICE_TIER, namespace=key.namespace, name=key.name)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            self._records.forget(key)
            self._metrics.forget(key)
            return None  # its children carry an owner reference: the garbage collector sees to them
        self._store.catch_up(Kind.SERVICE_TIER, obj)
        run = _Pass(obj, self._records.of(key, obj["metadata"]["uid"]))
        try:
            run.spec = run.record.spec = to_tier(obj)
        except InvalidTier as error:
            run.record.spec = None
            run.trouble = Trouble(ConditionReason.INVALID_SPEC, str(error))
        else:
            try:
                await self._serve(run, run.spec)
            except ApiError as error:
                if error.reason != NAMESPACE_TERMINATING:
                    raise
                log.debug("the namespace is being deleted, and the tier with it: nothing more is done or said")
                return RETRY_REFUSED_SECONDS
        await self._write_status(run)
        run.record.looked_at = self._clock.monotonic()
        if run.failure is not None:
            raise run.failure
        return run.again

    async def _serve(self, run: _Pass, spec: TierSpec) -> None:
        """Look at the pool, and unless the tier is paused bring it to what it should be."""
        live = await self._children.look(spec)
        run.view = self._view(run, spec, live)
        if run.view.start_moved or run.record.decided_for not in (None, spec.generation):
            run.record.decision = run.record.pending = None  # it is about what the user has just replaced
        run.decision, run.pending = run.record.decision, run.record.pending
        if run.pending is None and run.record.resize is None:
            run.record.pending_id = run.record.pending_span = None
        carrying_out(run.record.pending_id)
        run.desired = desired_levers(spec, run.record, run.view)
        said = live.foreign(spec)
        if said is not None:
            run.view = None  # not our pool: nothing of it is ours to report
            run.trouble = Trouble(ConditionReason.FOREIGN_OBJECT, said)
            run.look_again(RETRY_REFUSED_SECONDS)
        elif spec.scaling.mode is not Mode.PAUSED:
            try:
                with self._trail.span(run.record, "apply", of_decision=run.pending is not None) as span:
                    span.tell(tracing.applied, run.record.key, run.record.pending_id, run.decision)
                    await self._act(run, spec, live, run.view)
            except ApiError as error:
                self._not_written(run, error)
            else:
                run.record.failing_since = None

    def _not_written(self, run: _Pass, error: ApiError) -> None:
        """What to say of a pool that could not be written. Raises ApiError where that is nothing (yet)."""
        outdated = run.applied is None
        if _refusal(error):
            log.warning("refused: %s", error)
            said = f"The API server refuses the pool: {error.message}"
            run.trouble = Trouble(ConditionReason.API_REFUSED, said, outdated=outdated)
            run.look_again(RETRY_REFUSED_SECONDS)
            return
        now, record = self._clock.monotonic(), run.record
        record.failing_since = now if record.failing_since is None else record.failing_since
        if error.reason == NAMESPACE_TERMINATING or now - record.failing_since < FAILING_SECONDS:
            raise error
        said = f"The API server fails to write the pool; this is tried again: {error.message}"
        run.trouble = Trouble(ConditionReason.API_UNAVAILABLE, said, hopeless=False, outdated=outdated)
        run.failure = error

    def _view(self, run: _Pass, spec: TierSpec, live: Live) -> PoolView:
        deployment = live.deployment(spec)
        return view_pool(
            spec,
            deployment=deployment,
            limits=live.limits(spec),
            pods=live.pods,
            rollout_generation=run.record.rollout_generation(deployment),
        )

    async def _act(self, run: _Pass, spec: TierSpec, live: Live, view: PoolView) -> None:
        desired, record = run.desired or view.levers, run.record
        wanted = Limits(desired.max_num_seqs, desired.max_num_batched_tokens)
        had = Limits(view.levers.max_num_seqs, view.levers.max_num_batched_tokens)
        supported = live_resize(spec).supported
        started_at = self._clock.monotonic()
        rendered = render_pool(spec, levers=desired, plugin_source=self._plugin_source)
        run.applied = applied = await self._children.apply(record, rendered, live)
        kept = (Kind.CONFIG_MAP, spec.limit_name) in applied.kept
        if not supported and not kept and run.pending is not None:  # start arguments: written is all there is to see
            self._trail.limits(run.record, had, wanted, seconds=self._clock.monotonic() - started_at)
        if supported and live.limits(spec) is not None and wanted != had and not kept:
            before = record.resize.before if record.resize and record.resize.before else had
            record.resize = Resize(wanted, started_at=started_at, before=before)
            record.shown = {}  # a pod that has not shown the limits before these may have taken them over by now
            if record.memory is not None and view.start_moved:  # the user's doing, not another hand's
                record.memory = dataclasses.replace(record.memory, decided=desired)
        await self._scale(run, spec, live, view, desired)
        if record.decision is not run.decision and (record.pool is None or record.pool.current != desired):
            record.decision = record.pending = None  # made meanwhile, from what was set before these writes
        self._say_what_was_done(run, spec, view, applied)
        run.view = self._view_after(run, spec, live, view.levers if kept else desired)
        if supported:
            run.look_again(await self._follow(run, run.view, had if kept else wanted))

    def _view_after(self, run: _Pass, spec: TierSpec, live: Live, levers: Levers) -> PoolView:
        """What was read, with what was written since: ``levers``, but for replicas that are somebody else's."""
        view = self._view(run, spec, live)
        kept = view.external_scaler or run.record.contested
        replicas = view.levers.replicas if kept or run.desired is None else run.desired.replicas
        return dataclasses.replace(view, exists=True, levers=dataclasses.replace(levers, replicas=replicas))

    async def _scale(self, run: _Pass, spec: TierSpec, live: Live, view: PoolView, desired: Levers) -> None:
        """Set the replicas. A new Deployment starts with the API server's default of 1, which nobody owns."""
        record = run.record
        current = view.levers.replicas if view.exists else 1
        if view.external_scaler is not None or current == desired.replicas:
            record.replicas_set = None if view.external_scaler else desired.replicas
            record.contested = None
            return
        now = self._clock.monotonic()
        if not record.guard.allows("replicas", str(desired.replicas), now=now):
            record.contested = view.replicas_set_by or "something else"
            message = f"Replicas {current} instead of {desired.replicas}: {record.contested} sets them again and again"
            self._give_up(run, message)
            return
        record.contested = None
        log.info("scale %s: %d → %d", spec.pool_name, current, desired.replicas)
        with self._trail.span(run.record, "apply replicas", of_decision=run.pending is not None) as span:
            span.tell(tracing.turned, record.key, "replicas", current, desired.replicas)
            await self._children.scale(spec, live, replicas=desired.replicas)
        record.guard.made("replicas", str(desired.replicas), now=now)
        if record.replicas_set == desired.replicas and run.pending is None:
            text = f"Replicas were {current}, set by another hand; {desired.replicas} again"
            run.news.append(Announce(EventType.NORMAL, "ReplicasCorrected", text))
        record.replicas_set = desired.replicas
        if record.memory is not None:  # ours, whether it was decided or follows from the spec: no other hand's doing
            record.memory = dataclasses.replace(record.memory, decided=desired)

    def _give_up(self, run: _Pass, what: str, *, outdated: bool = False) -> None:
        message = f"{what}; left alone for some minutes: find what writes it (two operators? a webhook?)"
        run.trouble = Trouble(ConditionReason.REWRITTEN, message, outdated=outdated)
        run.look_again(RETRY_REFUSED_SECONDS)

    def _say_what_was_done(self, run: _Pass, spec: TierSpec, view: PoolView, applied: Applied) -> None:
        run.news += [Announce(EventType.NORMAL, "Repaired", message) for message in applied.repaired]
        if applied.rewritten:
            outdated = (Kind.DEPLOYMENT, spec.pool_name) in applied.kept
            self._give_up(run, "; ".join(applied.rewritten), outdated=outdated)
        decision, pending = run.decision, run.pending
        if run.record.pending is pending:
            run.record.pending = None
        done = run.trouble is None and view.exists and spec.scaling.mode is not Mode.RECOMMEND
        if pending is not None and decision is not None and done:
            log.info("carried out: %s: %s", decision.reason, decision.message)
            run.news.append(Announce(EventType.NORMAL, decision.reason.value, decision.message))

    async def _follow(self, run: _Pass, view: PoolView, wanted: Limits) -> float | None:
        finished = run.record.resized
        again = await self._live_limits.follow(run.record, view, wanted)
        resized = run.record.resized
        if resized is not None and resized is not finished:
            news = announce.resized(resized)
            log.info("%s", news.message)
            run.news.append(news)
            self._trail.limits(run.record, resized.before, resized.after, seconds=resized.seconds, pods=resized.pods)
            key = run.record.key
            self._metrics.resize_seconds.labels(key.namespace, key.name).observe(resized.seconds)
        return again

    async def _write_status(self, run: _Pass) -> None:
        record, meta = run.record, run.obj["metadata"]
        old = read_status(run.obj)
        now = self._clock.monotonic()
        if record.resizes_before is None:
            record.resizes_before = old.live_resize.count if old.live_resize else 0
        new = build_status(self._facts(run, now), old=old, now_iso=rfc3339(self._clock.wall()))
        self._show(run, new)
        await self._tell(run, run.news)  # what was done is done, whether or not the status can be written
        if needs_write(old, new, now=now, written_at=record.status_at, interval_seconds=self._status_interval):
            body = {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {name: meta[name] for name in ("namespace", "name", "resourceVersion")},
                "status": new.to_dict(),
            }
            if await self._put_status(body):
                record.status_at = now
                await self._tell(run, announce.transitions(old, new))

    async def _tell(self, run: _Pass, news: Iterable[Announce]) -> None:
        for one in news:
            await self._recorder.record(
                run.record.key,
                uid=run.obj["metadata"]["uid"],
                event_type=one.type,
                reason=one.reason,
                message=one.message,
            )

    async def _put_status(self, body: Object) -> bool:
        """Write the status of the very object that was read: one changed or made anew since then is another story."""
        try:
            await self._api.apply_status(body, field_manager=APPLY_MANAGER)
        except ApiError as error:
            if error.status == 404:
                return False  # deleted meanwhile: there is nobody left to tell
            raise
        self._metrics.writes.labels("apply_status", KIND).inc()
        return True

    def _facts(self, run: _Pass, now: float) -> Facts:
        record, spec = run.record, run.spec
        desired = run.desired
        if spec is not None and spec.scaling.mode is Mode.RECOMMEND and record.decision is not None:
            desired = record.decision.levers
        return Facts(
            generation=run.obj["metadata"].get("generation", 0),
            now=now,
            spec=spec,
            view=run.view,
            desired=desired,
            decision=record.decision,
            decided_at=record.decided_at,
            assessment=record.assessment,
            resize=record.resize,
            resized=record.resized,
            resizes=(record.resizes_before or 0) + record.resizes,
            shown=shown_by_all(record, run.view),
            trouble=run.trouble,
        )

    def _show(self, run: _Pass, status: ServiceTierStatus) -> None:
        """The tier's own gauges on the operator's /metrics."""
        if run.view is None:
            self._metrics.forget_judged(run.record.key)
        shown = shown_by_all(run.record, run.view)
        self._metrics.show(run.record.key, gauges(status, run.view, desired=run.desired, shown=shown))


def _refusal(error: ApiError) -> bool:
    """An answer that repeating will not change: not throttling, not a conflict, not an outage."""
    if error.reason == NAMESPACE_TERMINATING:
        return False
    return 400 <= error.status < 500 and error.status not in (401, 404, 408, 409, 429)
