"""The metrics source of a run: for every signal that the operator asks for, the samples that Prometheus would give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf

import numpy as np

from tierkeeper.render.promql import COUNTERS, MEANS, Query, budget_step, queries
from tierkeeper.sim.columns import INTER_TOKEN, REQUEST_TPOT, TTFT, Columns, le_text
from tierkeeper.sim.scrape import NO_FAULTS, Faults, Scraper, Scraping, Summed, View
from tierkeeper.slo.burn import CONTROL_WINDOWS, Windows
from tierkeeper.slo.model import Sample
from tierkeeper.slo.readings import Readings, Share, join, sort
from tierkeeper.slo.signals import FAMILY_LABEL, STAT_LABEL, MetricLabels, Signal, SignalKind, Stat
from tierkeeper.tier import TierKey

LABELS = MetricLabels()

_GAUGES: Mapping[SignalKind, str] = {
    SignalKind.RUNNING: "vllm:num_requests_running",
    SignalKind.WAITING: "vllm:num_requests_waiting",
    SignalKind.KV_CACHE_USAGE: "vllm:kv_cache_usage_perc",
}
_COUNTERS, _MEANS = dict(COUNTERS), dict(MEANS)
_BUCKETS: Mapping[SignalKind, tuple[str, ...]] = {
    SignalKind.TTFT_BUCKETS: (TTFT,),
    SignalKind.TPOT_BUCKETS: (REQUEST_TPOT, INTER_TOKEN),
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one look at the source gave: readings by tier, or why there are none."""

    readings: Mapping[TierKey, Readings]
    views: Mapping[TierKey, View]
    """The same moment by tier, for who reads other series than the operator does."""
    error: tuple[str, str] | None = None
    """Reason and message of a source that did not answer."""


class Source:
    """Scrapes all tiers, and answers what the operator asks as the operator asks it: slow windows not at each tick.

    ``budget_days``: the distinct ``windowDays`` of the tiers.
    """

    def __init__(
        self,
        columns: Mapping[TierKey, Columns],
        scraping: Scraping,
        *,
        budget_days: Iterable[int] = (),
        faults: Faults = NO_FAULTS,
        seed: int = 0,
    ) -> None:
        self.scraping = scraping
        self.windows: Windows = CONTROL_WINDOWS.for_scrape_interval(scraping.interval_seconds)
        self._queries = queries(LABELS, self.windows, budget_days)
        self._stepped = {q.signal.window_seconds for q in self._queries if q.optional}
        self._faults = faults
        seeds = np.random.SeedSequence(seed).spawn(len(columns))
        self.scrapers = {
            key: Scraper(
                pages,
                scraping,
                range_seconds=max(self.windows.seconds),
                subqueries=[(seconds, budget_step(seconds)) for seconds in sorted(self._stepped)],
                faults=faults,
                seed=int(own.generate_state(1)[0]),
            )
            for (key, pages), own in zip(columns.items(), seeds, strict=True)
        }
        self._asked: dict[Signal, float] = {}
        self._shares: dict[Signal, Mapping[TierKey, Share]] = {}
        self._frozen: Snapshot | None = None

    def snapshot(self, now: float) -> Snapshot:
        """What a look at this time of the run shows."""
        if any(now in span for span in self._faults.down):
            return Snapshot({}, self.views(now), ("Unreachable", "http://prometheus:9090: connection refused"))
        if any(now in span for span in self._faults.frozen):
            self._frozen = self._frozen or self._look(now)
            return self._frozen
        self._frozen = None
        return self._look(now)

    def _look(self, now: float) -> Snapshot:
        """Ask what is due; what is not still holds, and is not sorted by tier anew."""
        views = self._current(now)
        due = [q for q in self._queries if now - self._asked.get(q.signal, -inf) >= q.every_seconds]
        self._asked.update((query.signal, now) for query in due)
        self._shares |= {query.signal: sort(query.signal, self._ask(query, views), LABELS) for query in due}
        return Snapshot(join(self._shares), views)

    def views(self, now: float) -> Mapping[TierKey, View]:
        """The series by tier as they can be read at this time of the run."""
        frozen = self._frozen is not None and any(now in span for span in self._faults.frozen)
        return self._frozen.views if self._frozen is not None and frozen else self._current(now)

    def _current(self, now: float) -> dict[TierKey, View]:
        return {key: scraper.at(now - self.scraping.late) for key, scraper in self.scrapers.items()}

    def _ask(self, query: Query, views: Mapping[TierKey, View]) -> list[Sample]:
        found: list[Sample] = []
        for key, view in views.items():
            found += answer(query.signal, key, view, stepped=query.signal.window_seconds in self._stepped)
        return found


def answer(signal: Signal, key: TierKey, view: View, *, stepped: bool = False) -> list[Sample]:
    """The samples of one tier. ``stepped``: the window is a subquery in steps of ``budget_step``."""
    kind, seconds = signal.kind, signal.window_seconds
    at = view.at_ms / 1000.0
    if kind in _GAUGES:
        return _by_pod(key, view.gauge(_GAUGES[kind]), at)
    if kind is SignalKind.WAITING_FLOOR:
        return _by_pod(key, view.lowest(_GAUGES[SignalKind.WAITING], seconds or CONTROL_WINDOWS.rate), at)
    if kind is SignalKind.SAMPLE_AGE:
        return _by_pod(key, view.ages(), at)
    if kind in _COUNTERS:
        rate = view.rate(_COUNTERS[kind], seconds)
        return [] if rate is None else [Sample(_tier(key), rate, at)]
    if kind in _MEANS:
        parts = ((Stat.SUM, "sum"), (Stat.COUNT, "count"))
        rates = [(stat, view.rate(f"{_MEANS[kind]}_{suffix}", seconds)) for stat, suffix in parts]
        return [Sample(_stat(key, stat), rate, at) for stat, rate in rates if rate is not None]
    found = view.stepped(seconds, budget_step(seconds)) if stepped else view.summed(seconds)
    return _histograms(key, view.scraper.columns, found, families=_BUCKETS[kind], at=at)


def _by_pod(key: TierKey, values: Mapping[str, float], at: float) -> list[Sample]:
    return [Sample({**_tier(key), LABELS.pod: pod}, value, at) for pod, value in values.items()]


def _histograms(key: TierKey, columns: Columns, found: Summed, *, families: tuple[str, ...], at: float) -> list[Sample]:
    """Per family and edge: the sum over pods, and over how many of them."""
    if not found.pods:
        return []
    samples: list[Sample] = []
    pods = float(found.pods)
    for family in families:
        totals = found.totals[columns.families[family]]
        for (of_sum, of_series), total in zip(_edges(key, family, columns.edges(family)), totals, strict=True):
            samples += (Sample(of_sum, total, at), Sample(of_series, pods, at))
    return samples


@cache
def _tier(key: TierKey) -> dict[str, str]:
    return {LABELS.namespace: key.namespace, LABELS.tier: key.name}


@cache
def _stat(key: TierKey, stat: Stat) -> dict[str, str]:
    return {**_tier(key), STAT_LABEL: stat.value}


@cache
def _edges(key: TierKey, family: str, edges: tuple[float, ...]) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Labels of each bucket's sum and series, +Inf last."""
    found = []
    for edge in (*edges, float("inf")):
        labels = {**_tier(key), FAMILY_LABEL: family, "le": le_text(edge)}
        found.append(({**labels, STAT_LABEL: Stat.SUM.value}, {**labels, STAT_LABEL: Stat.SERIES.value}))
    return found
