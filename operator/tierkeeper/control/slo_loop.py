"""Every tick: one snapshot for all tiers, then assess and decide each. It writes nothing: it wakes the reconciler."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tierkeeper.api.convert import InvalidTier, to_tier
from tierkeeper.control.pods import PodPhase
from tierkeeper.control.pool import PoolView, pool_state, view_pool
from tierkeeper.control.record import Records, TierRecord
from tierkeeper.control.resize import in_progress
from tierkeeper.control.snapshot import Snapshots
from tierkeeper.control.store import Store
from tierkeeper.obs import tracing
from tierkeeper.obs.health import Health
from tierkeeper.obs.logs import working
from tierkeeper.obs.metrics import Metrics
from tierkeeper.obs.tiers import Judged
from tierkeeper.ports import Clock, Kind, MetricsError, Object, Span, Tracer
from tierkeeper.render.drift import is_foreign
from tierkeeper.scaling.arbitrate import Claim, arbitrate
from tierkeeper.scaling.decide import decide
from tierkeeper.scaling.memory import Memory
from tierkeeper.scaling.model import Decision, Levers, PoolState
from tierkeeper.slo.assess import assess
from tierkeeper.slo.burn import budget_overdue
from tierkeeper.slo.model import Assessment
from tierkeeper.slo.readings import Readings
from tierkeeper.tier import Mode, TierKey, TierSpec

log = logging.getLogger(__name__)

PART = "slo loop"
"""Its name on the health page."""

LOST_TICKS = 2
"""Failed snapshots in a row that are not worth a word: with ticks of 15 s an outage is told once it has lasted 30 s.

A lost tick decides nothing either way. To tell of each one would write the status of every tier twice and post two
Events, whenever one query of twenty came late.
"""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Intervals of the loop, in seconds."""

    tick: float
    scrape: float
    status: float
    """A tier's figures are written at most this often."""


@dataclass(frozen=True, slots=True)
class _Member:
    """A tier that takes part in a tick."""

    record: TierRecord
    spec: TierSpec
    view: PoolView


class SloLoop:
    """See the module. ``wake`` puts a tier into the reconciler's queue."""

    def __init__(
        self,
        *,
        store: Store,
        records: Records,
        snapshots: Snapshots,
        clock: Clock,
        rhythm: Rhythm,
        wake: Callable[[TierKey], None],
        metrics: Metrics,
        health: Health,
        tracer: Tracer = tracing.NO_TRACER,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex[:8],
    ) -> None:
        self._store = store
        self._records = records
        self._snapshots = snapshots
        self._clock = clock
        self._rhythm = rhythm
        self._wake = wake
        self._metrics = metrics
        self._health = health
        self._tracer = tracer
        self._new_id = new_id
        self._lost = 0
        """Failed snapshots in a row."""

    async def run(self) -> None:
        """Tick for ever. A tick that fails costs nothing but its tick."""
        due = self._clock.monotonic()
        while True:
            self._health.beat(PART)
            self._metrics.tick_lag_seconds.set(max(0.0, self._clock.monotonic() - due))
            if self._store.complete:
                await self._one_tick()
            due = max(due + self._rhythm.tick, self._clock.monotonic())
            await asyncio.sleep(max(0.0, due - self._clock.monotonic()))

    async def _one_tick(self) -> None:
        try:
            with self._metrics.tick_seconds.time():
                await self.tick()
        except Exception:
            self._metrics.ticks.labels("error").inc()
            log.exception("this tick is lost")
        else:
            self._metrics.ticks.labels("ok").inc()

    async def tick(self) -> None:
        """One look at everything."""
        with self._tracer.span("tick") as span:
            await self._look(self._new_id(), span)

    async def _look(self, work_id: str, span: Span) -> None:
        with working(id=work_id):
            keys = self._store.tiers()
            span.tell(tracing.tick, work_id, len(keys))
            self._metrics.tiers.set(len(keys))
            members = []
            for key in keys:
                with self._alone(key, work_id):
                    if (member := self._member(key)) is not None:
                        members.append(member)
            if not members:
                self._metrics.show_judged({})
                return
            readings, failure = await self._read(members)
            self._lost = 0 if failure is None else self._lost + 1
            if failure is not None:
                span.fail(*failure)
        if 0 < self._lost <= LOST_TICKS:
            for member in members:
                _lose(member.record)
            return
        judged = []
        for member in members:
            key = member.record.key
            with self._alone(key, work_id):
                # Looked at once more: much may have been written while Prometheus was asked.
                if (fresh := self._member(key)) is not None:
                    judged.append((fresh.record, self._judge(fresh, readings, failure)))
            await asyncio.sleep(0)  # ten thousand tiers take seconds, in which health pages and watches want an answer
        self._settle(judged, work_id)
        self._metrics.show_judged(
            {
                record.key: Judged(claim.spec, claim.assessment, record.decision)
                for record, claim in judged
                if self._store.tier(record.key) is not None
            }
        )

    def _settle(self, judged: Sequence[tuple[TierRecord, Claim]], work_id: str) -> None:
        """Who gets the GPUs where they are short, and then each tier's outcome into its record."""
        now = self._clock.monotonic()
        settled = arbitrate(now, {claim.spec.key: claim for _, claim in judged})
        for record, claim in judged:
            if record.spec is not claim.spec:
                continue  # edited while the others were judged: the next tick decides for the new spec
            with self._alone(record.key, work_id):
                self._keep(record, claim, *settled[record.key], now=now, work_id=work_id)

    @contextlib.contextmanager
    def _alone(self, key: TierKey, work_id: str) -> Iterator[None]:
        """One tier's part of a tick: its surprise must not cost the others theirs."""
        with working(id=work_id, key=key):
            try:
                yield
            except Exception:
                self._metrics.reconcile_errors.labels("Decision").inc()
                log.exception("no decision for this tier")

    def _member(self, key: TierKey) -> _Member | None:
        """A tier whose spec is valid and whose pool is there and its own."""
        obj = self._store.tier(key)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return None
        record = self._records.of(key, obj["metadata"]["uid"])
        spec = _spec(record, obj)
        if spec is None:
            return None
        deployment = self._store.child(key, Kind.DEPLOYMENT, spec.pool_name)
        if deployment is None or is_foreign(deployment, spec.uid) is not None:
            return None
        view = view_pool(
            spec,
            deployment=deployment,
            limits=self._store.child(key, Kind.CONFIG_MAP, spec.limit_name),
            pods=self._store.children(key, Kind.POD),
            rollout_generation=record.rollout_generation(deployment),
        )
        return _Member(record, spec, view)

    async def _read(self, members: Sequence[_Member]) -> tuple[Mapping[TierKey, Readings], tuple[str, str] | None]:
        promises = [(one.spec.objective, one.record.assessment) for one in members if one.spec.objective is not None]
        days = {objective.window_days for objective, _ in promises}
        soon = {
            objective.window_days
            for objective, known in promises
            if budget_overdue(known, budget=objective.error_budget)
        }
        try:
            return await self._snapshots.take(days, soon), None
        except MetricsError as error:
            log.warning("no snapshot: %s", error)
            return {}, (error.reason.value, error.message)

    def _judge(self, member: _Member, readings: Mapping[TierKey, Readings], failure: tuple[str, str] | None) -> Claim:
        """What the tier would do if it were alone."""
        record, spec = member.record, member.spec
        now = self._clock.monotonic()
        pool = _pool(member, now)
        live_pods = [pod.name for pod in member.view.census.of(PodPhase.READY)]
        record.ready_since = (record.ready_since or now) if live_pods else None
        with self._tracer.span("assess") as span:
            assessment = assess(
                now=now,
                key=record.key,
                objective=spec.objective,
                readings=readings.get(record.key),
                live_pods=live_pods,
                ready_since=record.ready_since,
                previous=record.assessment,
                scrape_interval_seconds=self._rhythm.scrape,
                source_error=failure,
                windows=self._snapshots.windows,
            )
            span.tell(tracing.assessed, assessment)
        if not assessment.state.known:
            self._metrics.unknown_signals.labels(assessment.reason).inc()
        memory = record.memory or Memory.fresh(now)
        with self._tracer.span("decide") as span:
            decision, memory = decide(now=now, spec=spec, assessment=assessment, pool=pool, memory=memory)
            span.tell(tracing.decided, record.key, pool.current, decision)
        return Claim(spec, assessment, pool, decision, memory)

    def _keep(
        self, record: TierRecord, claim: Claim, decision: Decision, memory: Memory, *, now: float, work_id: str
    ) -> None:
        spec, assessment = claim.spec, claim.assessment
        if decision is not claim.decision:
            with self._tracer.span("arbitrate") as span:
                span.tell(tracing.decided, record.key, claim.pool.current, decision)
        news = _news(record.assessment, record.decision) != _news(assessment, decision)
        self._note(record, spec, decision, work_id)
        record.assessment, record.decision, record.memory, record.pool = assessment, decision, memory, claim.pool
        record.decided_for = spec.generation
        if news or self._status_is_due(record, now):
            self._wake(record.key)

    def _note(self, record: TierRecord, spec: TierSpec, decision: Decision, work_id: str) -> None:
        """Remember since when, and for what, the reconciler has to act."""
        if _choice(record.decision) != _choice(decision):
            record.decided_at = self._clock.wall()
            log.info("%s: %s", decision.reason, decision.message)
        if decision.changed and spec.scaling.mode is not Mode.RECOMMEND:
            record.pending, record.pending_id, record.pending_span = decision.levers, work_id, self._tracer.here()
            key = record.key
            self._metrics.decisions.labels(key.namespace, key.name, decision.reason.value).inc()

    def _status_is_due(self, record: TierRecord, now: float) -> bool:
        return record.looked_at is None or now - record.looked_at >= self._rhythm.status


def _lose(record: TierRecord) -> None:
    """A lost tick: what was said and decided stands, but the clean window that a shrink waits for begins anew."""
    if record.assessment is not None:
        record.assessment = dataclasses.replace(record.assessment, clean_since=None)


def _spec(record: TierRecord, obj: Object) -> TierSpec | None:
    """The tier's spec, converted once a generation; None while it is invalid."""
    if record.spec is None or record.spec.generation != obj["metadata"].get("generation"):
        try:
            record.spec = to_tier(obj)
        except InvalidTier:
            record.spec = None  # the reconciler says so on the tier
    return record.spec


def _pool(member: _Member, now: float) -> PoolState:
    """The pool for the decision. Levers that are decided and still to be written count as set, but not shown yet."""
    record = member.record
    resizing = record.pending is not None or in_progress(record.resize, now=now)
    pool = pool_state(member.spec, member.view, resizing=resizing, contested=record.contested)
    return pool if record.pending is None else dataclasses.replace(pool, current=record.pending)


def _choice(decision: Decision | None) -> tuple[str, Levers] | None:
    return None if decision is None else (decision.reason.value, decision.levers)


def _news(assessment: Assessment | None, decision: Decision | None) -> tuple[object, ...]:
    """What a tier's conditions and levers rest on: when it changes, the status is to be written at once."""
    slos = () if assessment is None else tuple((s.sli, s.state, s.reason, s.met) for s in assessment.slos.values())
    limited = None if decision is None or decision.limited is None else decision.limited.reason
    return (
        None if assessment is None else (assessment.state, assessment.reason),
        slos,
        _choice(decision),
        limited,
    )
