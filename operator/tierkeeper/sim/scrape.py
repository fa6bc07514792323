"""Metrics pages scraped into a time-series store, with what goes wrong on the way; and what may be read from it.

A pod's page is taken once an interval, at an offset of its own, as Prometheus spreads its targets. Whoever asks sees
nothing but scraped samples, and by default those of one scrape ago.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tierkeeper.sim.columns import Columns, Floats
from tierkeeper.sim.model import PodPage
from tierkeeper.sim.tsdb import Subquery, Times, Tsdb
from tierkeeper.slo.model import Histogram

EPOCH_SECONDS = 1_700_006_400
"""Prometheus' clock at the start of a run: midnight UTC, so that the steps of all subqueries fall on it."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a run, in seconds from its start: from ``start`` (inclusive) to ``end`` (exclusive)."""

    start: float
    end: float

    def __contains__(self, at: float) -> bool:
        return self.start <= at < self.end


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong between the pods and the policy. Shares are of scrapes, drawn for each pod alone, in [0, 1]."""

    lost_scrapes: float = 0.0
    """The target does not answer in time: no sample, and the series are stale until the next one."""
    nan_scrapes: float = 0.0
    """The histograms of a page read NaN."""
    resets_per_hour: float = 0.0
    """How often a pod's counters start again from zero."""
    frozen: tuple[Span, ...] = ()
    """The source repeats its last answer, evaluation time included."""
    down: tuple[Span, ...] = ()
    """The source cannot be reached."""

    def __post_init__(self) -> None:
        for name in ("lost_scrapes", "nan_scrapes"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"faults.{name}: {getattr(self, name)} is no share: give a number from 0 to 1")
        if self.resets_per_hour < 0:
            raise ValueError(f"faults.resets_per_hour: {self.resets_per_hour} must be 0 or more")


NO_FAULTS = Faults()


@dataclass(frozen=True, slots=True)
class Scraping:
    """How pages are read. Seconds."""

    interval_seconds: int = 15
    late_seconds: float | None = None
    """What is asked at a time is answered as of so long before; None: one scrape."""
    jitter_seconds: float = 0.2
    """A scrape comes up to so much earlier or later than due."""
    offsets: int = 3
    """At how many moments of an interval pods are scraped; each pod keeps to one of them."""

    def __post_init__(self) -> None:
        if not 1 <= self.interval_seconds <= 15:
            raise ValueError(
                f"scraping.interval_seconds: {self.interval_seconds} must be 1 to 15: the shortest window is 60 s"
            )
        if not 0 <= self.jitter_seconds < self.interval_seconds / (2 * self.offsets):
            raise ValueError(
                f"scraping.jitter_seconds: {self.jitter_seconds} must be below "
                f"{self.interval_seconds / (2 * self.offsets):g}, or scrapes would overtake each other"
            )

    @property
    def late(self) -> float:
        return float(self.interval_seconds) if self.late_seconds is None else self.late_seconds


def milliseconds(seconds: float) -> int:
    """Prometheus' time at a time of the run."""
    return EPOCH_SECONDS * 1000 + round(seconds * 1000)


class Scraper:
    """The scraped series of one pool's pods.

    ``range_seconds`` is the longest window that is asked for, ``subqueries`` are those over the error budget's period,
    as (range, step) in seconds.
    """

    def __init__(
        self,
        columns: Columns,
        scraping: Scraping,
        *,
        range_seconds: int,
        subqueries: Sequence[tuple[int, int]] = (),
        faults: Faults = NO_FAULTS,
        seed: int = 0,
    ) -> None:
        self.columns = columns
        self._scraping = scraping
        self._faults = faults
        self._random = np.random.default_rng(seed)
        self.store = Tsdb(
            counters=columns.counters,
            gauges=columns.gauges,
            interval_ms=scraping.interval_seconds * 1000,
            range_ms=range_seconds * 1000,
            subqueries=[Subquery(span * 1000, step * 1000, columns.buckets) for span, step in subqueries],
        )
        self._bases: dict[str, Floats] = {}
        self._known: set[str] = set()
        self._leaving: set[str] = set()

    def next_round(self, at: float) -> None:
        """A new interval begins: each pod will be scraped once more."""
        self.store.next_round(milliseconds(at))

    def scrape(self, pages: Sequence[PodPage], *, at: float, offset: int) -> None:
        """Take the pages of the pods whose turn it is at this offset, at a time in seconds of the run."""
        now = milliseconds(at)
        mine = {page.name: page for page in pages if self.offset_of(page.name) == offset}
        for page in mine.values():
            self._take(page, now)
        self._forget([name for name in self._known if self.offset_of(name) == offset and name not in mine], now)
        self._known.update(mine)

    def offset_of(self, pod: str) -> int:
        """At which of the interval's moments a pod is scraped: fixed by its name, as Prometheus hashes its targets."""
        return zlib.crc32(pod.encode()) % self._scraping.offsets

    def at(self, seconds: float) -> View:
        """What can be read as of a time of the run."""
        return View(self, milliseconds(seconds))

    def _take(self, page: PodPage, now: int) -> None:
        if self._happens(self._faults.lost_scrapes):
            self.store.mark_stale(page.name, now)
            return
        row = self.columns.row(page)
        if self._happens(self._faults.resets_per_hour * self._scraping.interval_seconds / 3600):
            self._bases[page.name] = row[: self.columns.counters].copy()
        if page.name in self._bases:
            row[: self.columns.counters] -= self._bases[page.name]
        if self._happens(self._faults.nan_scrapes):
            row[: self.columns.buckets] = np.nan
        self.store.append(page.name, now, row)

    def _forget(self, missing: Sequence[str], now: int) -> None:
        """Pods that are gone: Prometheus marks their series stale 1.1 intervals after the first scrape that is due."""
        for name in missing:
            if name in self._leaving:
                self.store.mark_stale(name, now + self._scraping.interval_seconds * 100)
                self._known.discard(name)
                self._leaving.discard(name)
                self._bases.pop(name, None)
            else:
                self._leaving.add(name)

    def _happens(self, share: float) -> bool:
        return share > 0 and self._random.random() < share


@dataclass(frozen=True, slots=True)
class View:
    """The series of one pool as of one moment: what a query would return, and no more.

    Names are vLLM's own (``vllm:num_requests_running``, ``vllm:time_to_first_token_seconds``), see ``Columns``; beside
    them ``step:...``, the last engine step of each pod. Windows are seconds. None: no series answers.
    """

    scraper: Scraper
    at_ms: int
    _sums: dict[int, Summed] = field(default_factory=dict, compare=False, repr=False)
    _gauges: list[Instant] = field(default_factory=list, compare=False, repr=False)
    """One element, once it was asked for."""

    def gauge(self, name: str) -> dict[str, float]:
        """The newest value by pod."""
        columns, now = self.scraper.columns, self._instant()
        place = columns.column(name).start - columns.counters
        return {pod: values[place] for pod, values in zip(now.pods, now.values, strict=True)}

    def ages(self) -> dict[str, float]:
        """Seconds since each pod's newest sample, as Prometheus subtracts its floats."""
        now = self._instant()
        return dict(zip(now.pods, (self.at_ms / 1000.0 - now.times_ms / 1000.0).tolist(), strict=True))

    def lowest(self, name: str, seconds: int) -> dict[str, float]:
        """``min_over_time`` of a gauge by pod."""
        column = self.scraper.columns.column(name).start
        return self.scraper.store.lowest(at_ms=self.at_ms, range_ms=seconds * 1000, column=column)

    def increase(self, name: str, seconds: int) -> float | None:
        """``sum(increase(name[seconds]))``."""
        found = self.summed(seconds)
        return found.totals[self.scraper.columns.column(name).start] if found.pods else None

    def rate(self, name: str, seconds: int) -> float | None:
        """``sum(rate(name[seconds]))``."""
        found = self.increase(name, seconds)
        return None if found is None else found / seconds

    def mean(self, family: str, seconds: int) -> float | None:
        """The rate of a family's sum over that of its count; None where nothing was counted."""
        total, count = self.increase(f"{family}_sum", seconds), self.increase(f"{family}_count", seconds)
        return total / count if total is not None and count else None

    def histogram(self, family: str, seconds: int) -> Histogram | None:
        """``sum by (le) (increase(family_bucket[seconds]))``."""
        found, columns = self.summed(seconds), self.scraper.columns
        if not found.pods:
            return None
        counts = found.totals[columns.families[family]]
        edges = (*columns.edges(family), float("inf"))
        return Histogram(edges, tuple(counts))

    def summed(self, seconds: int) -> Summed:
        """``sum(increase(counter[seconds]))`` of every counter, by column."""
        if seconds not in self._sums:
            every = slice(0, self.scraper.columns.counters)
            self._sums[seconds] = _summed(
                self.scraper.store.increases(at_ms=self.at_ms, range_ms=seconds * 1000, columns=every)
            )
        return self._sums[seconds]

    def stepped(self, seconds: int, step: int) -> Summed:
        """``sum(increase((bucket >= 0)[seconds:step]))`` of every bucket, by column."""
        subquery = Subquery(seconds * 1000, step * 1000, self.scraper.columns.buckets)
        return _summed(self.scraper.store.stepped_increases(subquery, at_ms=self.at_ms))

    def _instant(self) -> Instant:
        if not self._gauges:
            columns = self.scraper.columns
            every = slice(columns.counters, columns.counters + columns.gauges)
            pods, times, values = self.scraper.store.instant(at_ms=self.at_ms, columns=every)
            self._gauges.append(Instant(pods, times, values.tolist()))
        return self._gauges[0]


@dataclass(frozen=True, slots=True)
class Summed:
    """Increases over a window, summed over pods."""

    pods: int
    """That have the two samples in it which an increase needs."""
    totals: list[float]
    """By column."""


@dataclass(frozen=True, slots=True, eq=False)
class Instant:
    """The gauges of all pods at one moment."""

    pods: list[str]
    times_ms: Times
    values: list[list[float]]
    """By pod and gauge."""


def _summed(increases: Floats) -> Summed:
    return Summed(len(increases), increases.sum(axis=0).tolist())
