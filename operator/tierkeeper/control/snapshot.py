"""One snapshot of the metrics for all tiers: every signal or none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tierkeeper.obs import tracing
from tierkeeper.obs.metrics import Metrics
from tierkeeper.ports import Clock, MetricsError, MetricsSource, Tracer
from tierkeeper.render.promql import SECONDS_PER_DAY, Query, queries
from tierkeeper.slo.burn import Windows
from tierkeeper.slo.model import Sample
from tierkeeper.slo.readings import Readings, Share, join, sort
from tierkeeper.slo.signals import MetricLabels, Signal
from tierkeeper.tier import TierKey

log = logging.getLogger(__name__)


RETRY_OPTIONAL_SECONDS = 120.0
"""A query that may fail is the dearest of all: asked again at each tick, it would keep an overloaded Prometheus so."""


SOON_SECONDS = 60.0
"""Where the last answer held too few requests and more have come since: a young tier's first answer is soon too old."""


@dataclass(frozen=True, slots=True)
class _Answer:
    at: float
    promql: str
    shares: Mapping[TierKey, Share] | None
    """The answer, sorted by tier once and for all. None: the query failed, and may."""


@dataclass(slots=True)
class Snapshots:
    """Asks what is due and remembers the slow windows' answers in between."""

    source: MetricsSource
    patient: MetricsSource
    """The same, with a longer time-out: for the queries that no snapshot waits for."""
    clock: Clock
    labels: MetricLabels
    windows: Windows
    metrics: Metrics
    tracer: Tracer = tracing.NO_TRACER
    _answers: dict[Signal, _Answer] = field(default_factory=dict)
    _aside: dict[Signal, asyncio.Task[None]] = field(default_factory=dict)
    """Optional queries under way."""

    async def take(self, budget_days: Iterable[int], soon: Collection[int] = ()) -> Mapping[TierKey, Readings]:
        """The readings of all tiers. Raises MetricsError where one that is needed failed: then there is no snapshot.

        An optional signal takes part with its last answer, and is left out while it fails. ``soon``: those of
        ``budget_days`` that a new answer would tell more about, so that they are asked each minute.
        """
        wanted = queries(self.labels, self.windows, budget_days)
        now = self.clock.monotonic()
        seconds = {days * SECONDS_PER_DAY for days in soon}
        due = [query for query in wanted if self._due(query, now, soon=query.signal.window_seconds in seconds)]
        for query in due:
            if not query.optional:
                self._answers.pop(query.signal, None)
            elif query.signal not in self._aside:
                self._aside[query.signal] = asyncio.create_task(self._ask_aside(query, now))
        async with asyncio.TaskGroup() as group:
            # Exceptions of needed queries are gathered by hand: a TaskGroup would wrap them.
            tasks = [group.create_task(self._ask(query, now)) for query in due if not query.optional]
            failure = await _first_failure(tasks)
        if failure is not None:
            raise failure
        known = {query.signal for query in wanted}
        self._answers = {signal: answer for signal, answer in self._answers.items() if signal in known}
        return join({signal: answer.shares for signal, answer in self._answers.items() if answer.shares is not None})

    def _due(self, query: Query, now: float, *, soon: bool) -> bool:
        known = self._answers.get(query.signal)
        if known is None or known.promql != query.promql:
            return True
        if known.shares is None:
            return now - known.at >= RETRY_OPTIONAL_SECONDS
        return now - known.at >= (min(SOON_SECONDS, query.every_seconds) if soon else query.every_seconds)

    async def _ask(self, query: Query, now: float) -> MetricsError | None:
        """Ask one query that is needed; a failure is returned, not raised."""
        try:
            samples = await self._query(self.source, query)
        except MetricsError as error:
            self.metrics.query_errors.labels(error.reason.value).inc()
            return MetricsError(error.reason, f"the query for {query.signal}: {error.message}")
        self._answers[query.signal] = _Answer(now, query.promql, sort(query.signal, samples, self.labels))
        return None

    async def _query(self, source: MetricsSource, query: Query) -> Sequence[Sample]:
        with self.tracer.span("query") as span:
            span.tell(tracing.query, query.signal, query.promql)
            return await source.query(query.promql)

    async def _ask_aside(self, query: Query, now: float) -> None:
        """Ask one query whose answer is for a later snapshot. On a large fleet it takes longer than a tick."""
        shares: Mapping[TierKey, Share] | None = None
        try:
            shares = sort(query.signal, await self._query(self.patient, query), self.labels)
        except MetricsError as error:
            self.metrics.query_errors.labels(error.reason.value).inc()
            log.info("the query for %s has no answer this time: %s", query.signal, error)
        finally:
            self._answers[query.signal] = _Answer(now, query.promql, shares)
            del self._aside[query.signal]


async def _first_failure(tasks: Sequence[asyncio.Task[MetricsError | None]]) -> MetricsError | None:
    """The first failure, at once: the other queries would fail the same way, each after its own time-out."""
    for done in asyncio.as_completed(tasks):
        failure = await done
        if failure is not None:
            for task in tasks:
                task.cancel()
            return failure
    return None
