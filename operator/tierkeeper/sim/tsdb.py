"""A small time-series store that answers as Prometheus does: range vectors, staleness, counter resets, extrapolation.

One row a pod and scrape, all series of a page side by side, so that a window over all pods and series is a few numpy
operations. Rules are those of Prometheus 3: a range excludes its left end, an instant value is the newest sample of
the last five minutes unless a staleness marker follows it, a counter that falls has started from zero again.
Times are integer milliseconds since the Unix epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Times: TypeAlias = NDArray[np.int64]

LOOKBACK_MS = 300_000
"""Prometheus' --query.lookback-delta: how long a sample stands for the present."""

_NEVER = -1
_SPARE_ROUNDS = 480
"""Rounds kept beyond the longest range before old ones are dropped in one go: two hours at 15 s."""


@dataclass(frozen=True, slots=True)
class Subquery:
    """The instant values of the first ``columns`` series at each multiple of ``step_ms``, over a range."""

    range_ms: int
    step_ms: int
    columns: int


@dataclass(frozen=True, slots=True)
class Ends:
    """The first and the last sample of each series within a range, one line a pod."""

    first_raw: Floats
    """As scraped."""
    first: Floats
    last: Floats
    """Both with what was counted before each reset added, so that their difference is the growth."""
    first_ms: Times
    last_ms: Times
    samples: Times


def extrapolated(ends: Ends, *, low_ms: int, high_ms: int) -> Floats:
    """``increase()`` over (low, high]: the growth between the end samples, stretched to the borders of the range.

    As in Prometheus' ``extrapolatedRate``: to a border that is at most 1.1 sample distances away, else by half a
    distance; never to before the point where the counter would have been zero. Each pod needs two samples.
    """
    growth = ends.last - ends.first
    sampled = (ends.last_ms - ends.first_ms) / 1000.0
    average = sampled / (ends.samples - 1)
    to_start = (ends.first_ms - low_ms) / 1000.0
    to_end = (high_ms - ends.last_ms) / 1000.0
    to_start = np.where(to_start >= average * 1.1, average / 2, to_start)
    to_end = np.where(to_end >= average * 1.1, average / 2, to_end)
    rising = (growth > 0) & (ends.first_raw >= 0)
    to_zero = np.full_like(growth, np.inf)
    np.divide(ends.first_raw * sampled[:, None], growth, out=to_zero, where=rising)
    start = np.minimum(to_start[:, None], to_zero)
    return growth * ((sampled[:, None] + start + to_end[:, None]) / sampled[:, None])


class Tsdb:
    """The series of one tier's pods.

    A row holds ``counters`` counters and then ``gauges`` gauges. Every pod is scraped at most once a round; rounds
    are ``interval_ms`` apart and ``range_ms`` is the longest range that is asked for. ``subqueries`` are those that
    will be asked.
    Samples must come in the order of their times.
    """

    def __init__(
        self, *, counters: int, gauges: int, interval_ms: int, range_ms: int, subqueries: Sequence[Subquery] = ()
    ) -> None:
        self._counters = counters
        self._width = counters + gauges
        self._interval_ms = interval_ms
        self._keep = (range_ms + LOOKBACK_MS) // interval_ms + 3
        self._round = 0
        self._round_ms = 0
        self._slots: dict[str, int] = {}
        self._lines = [_Line(subquery) for subquery in subqueries]
        self._allocate(4)

    def next_round(self, at_ms: int) -> None:
        """A round begins: from here on each pod may be scraped once more."""
        self._round += 1
        self._round_ms = at_ms
        if self._round >= self._times.shape[1]:
            self._drop_old()

    def append(self, pod: str, at_ms: int, row: Floats) -> None:
        """One scraped page."""
        self._catch_up(at_ms)
        slot = self._slot(pod)
        counters = row[: self._counters]
        fell = counters < self._previous[slot]  # false beside a NaN, as in Prometheus
        if fell.any():
            self._offsets[slot] = self._offsets[slot] + np.where(fell, self._previous[slot], 0.0)
            self._offset_table.append(self._offsets[slot].copy())
            self._offset_of[slot] = len(self._offset_table) - 1
        self._previous[slot] = counters
        self._times[slot, self._round] = at_ms
        self._rows[slot, self._round] = row
        self._rows[slot, self._round, : self._counters] += self._offsets[slot]
        self._offset_ids[slot, self._round] = self._offset_of[slot]

    def mark_stale(self, pod: str, at_ms: int) -> None:
        """The scrape failed, or the pod is gone: its series have no value from here on."""
        if pod in self._slots:
            self._catch_up(at_ms)
            self._stale[self._slots[pod], self._round] = at_ms

    def increases(self, *, at_ms: int, range_ms: int, columns: slice) -> Floats:
        """``increase(series[range])`` by pod: one line for each pod with at least two samples in the range."""
        low = at_ms - range_ms
        pods, first, last, samples, times, start = self._range(at_ms, low, least=2)
        rounds_first, rounds_last = start + first, start + last
        before = self._rows[pods, rounds_first, columns]
        ends = Ends(
            first_raw=before - self._offset(pods, rounds_first, columns),
            first=before,
            last=self._rows[pods, rounds_last, columns],
            first_ms=times[np.arange(len(pods)), first],
            last_ms=times[np.arange(len(pods)), last],
            samples=samples,
        )
        return extrapolated(ends, low_ms=low, high_ms=at_ms)

    def stepped_increases(self, subquery: Subquery, *, at_ms: int) -> Floats:
        """``increase((series >= 0)[range:step])`` by pod, over the first ``subquery.columns`` series."""
        self._catch_up(at_ms + 1)
        line = next(line for line in self._lines if line.subquery == subquery)
        low = at_ms - subquery.range_ms
        ends = line.ends(low, at_ms)
        return np.empty((0, subquery.columns)) if ends is None else extrapolated(ends, low_ms=low, high_ms=at_ms)

    def instant(self, *, at_ms: int, columns: slice) -> tuple[list[str], Times, Floats]:
        """Pods with a value at a time, the times of their samples, and the values as scraped."""
        pods, _, last, _, times, start = self._range(at_ms, at_ms - LOOKBACK_MS, least=1)
        newest = times[np.arange(len(pods)), last]
        marks = self._stale[pods, start:]
        marked = np.where(marks <= at_ms, marks, _NEVER).max(axis=1, initial=_NEVER)
        live = newest > marked
        pods, last, newest = pods[live], last[live], newest[live]
        values = self._rows[pods, start + last, columns] - self._offset(pods, start + last, columns)
        return self._names(pods), newest, values

    def lowest(self, *, at_ms: int, range_ms: int, column: int) -> dict[str, float]:
        """``min_over_time`` of a gauge by pod; a NaN counts only where there is nothing else."""
        low = at_ms - range_ms
        pods, _, _, _, times, start = self._range(at_ms, low, least=1)
        values = self._rows[pods, start : start + times.shape[1], column]
        usable = (times > low) & (times <= at_ms) & ~np.isnan(values)
        found = np.where(usable, values, np.inf).min(axis=1, initial=np.inf)
        found[~usable.any(axis=1)] = np.nan
        return dict(zip(self._names(pods), found.tolist(), strict=True))

    def _range(
        self, at_ms: int, low_ms: int, *, least: int
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp], Times, Times, int]:
        """Pods with ``least`` samples in (low, at]: slots, first and last round from ``start`` on, counts, times."""
        start = max(0, self._round - (self._round_ms - low_ms) // self._interval_ms - 2)
        times = self._times[: len(self._slots), start : self._round + 1]
        inside = (times > low_ms) & (times <= at_ms)
        samples = inside.sum(axis=1)
        pods = np.flatnonzero(samples >= least)
        inside, times = inside[pods], times[pods]
        first = inside.argmax(axis=1)
        last = inside.shape[1] - 1 - inside[:, ::-1].argmax(axis=1)
        return pods, first, last, samples[pods], times, start

    def _offset(self, pods: NDArray[np.intp], rounds: NDArray[np.intp], columns: slice) -> Floats | float:
        """What was added to rows for earlier resets; 0 where there was none."""
        ids = self._offset_ids[pods, rounds]
        if not ids.any():
            return 0.0
        padded = np.zeros((len(ids), self._width))
        padded[:, : self._counters] = np.stack([self._offset_table[i] for i in ids])
        return padded[:, columns]

    def _catch_up(self, at_ms: int) -> None:
        """Time has come this far: subqueries take the values of their steps that have passed."""
        for line in self._lines:
            for due in line.due(at_ms - 1):
                names, _, values = self.instant(at_ms=due, columns=slice(0, line.subquery.columns))
                line.add(due, dict(zip(names, values, strict=True)))

    def _names(self, slots: NDArray[np.intp]) -> list[str]:
        names = list(self._slots)
        return [names[slot] for slot in slots]

    def _slot(self, pod: str) -> int:
        slot = self._slots.get(pod)
        if slot is None:
            slot = self._slots[pod] = len(self._slots)
            if slot >= self._times.shape[0]:
                self._resize(list(range(slot)), capacity=2 * slot, shift=0)
        return slot

    def _allocate(self, capacity: int) -> None:
        rounds = self._keep + _SPARE_ROUNDS
        self._times: Times = np.full((capacity, rounds), _NEVER, dtype=np.int64)
        self._stale: Times = np.full((capacity, rounds), _NEVER, dtype=np.int64)
        self._offset_ids = np.zeros((capacity, rounds), dtype=np.int32)
        self._rows: Floats = np.zeros((capacity, rounds, self._width))
        self._previous: Floats = np.full((capacity, self._counters), -np.inf)
        self._offsets: Floats = np.zeros((capacity, self._counters))
        self._offset_of = np.zeros(capacity, dtype=np.int32)
        self._offset_table: list[Floats] = [np.zeros(self._counters)]

    def _drop_old(self) -> None:
        """Forget rounds that no range reaches, and pods that have nothing left."""
        shift = self._round - self._keep
        kept = [slot for slot in range(len(self._slots)) if self._times[slot, shift : self._round].max() != _NEVER]
        names = list(self._slots)
        self._slots = {names[slot]: index for index, slot in enumerate(kept)}
        self._resize(kept, capacity=max(4, 2 * len(kept)), shift=shift)
        self._round -= shift

    def _resize(self, kept: Sequence[int], *, capacity: int, shift: int) -> None:
        """New arrays that hold the slots ``kept``, and of them the rounds from ``shift`` on."""
        old = self._histories
        state = self._states
        table = self._offset_table
        self._allocate(capacity)
        self._offset_table = table
        length = old[0].shape[1] - shift
        for before, after in zip(old, self._histories, strict=True):
            after[: len(kept), :length] = before[list(kept), shift:]
        for before, after in zip(state, self._states, strict=True):
            after[: len(kept)] = before[list(kept)]

    @property
    def _histories(self) -> tuple[NDArray[Any], ...]:
        """What is kept by slot and round."""
        return self._times, self._stale, self._offset_ids, self._rows

    @property
    def _states(self) -> tuple[NDArray[Any], ...]:
        """What is kept by slot alone."""
        return self._previous, self._offsets, self._offset_of


@dataclass(slots=True)
class _Points:
    """One pod's values at the steps of a subquery, raw and with resets added."""

    times: list[int] = field(default_factory=list)
    raw: list[Floats] = field(default_factory=list)
    risen: list[Floats] = field(default_factory=list)
    offset: Floats | float = 0.0

    def add(self, at_ms: int, row: Floats) -> None:
        if self.raw and (fell := row < self.raw[-1]).any():
            self.offset = self.offset + np.where(fell, self.raw[-1], 0.0)
        self.times.append(at_ms)
        self.raw.append(row)
        self.risen.append(row + self.offset)


@dataclass(slots=True)
class _Line:
    """The values of all pods at the multiples of a subquery's step."""

    subquery: Subquery
    _next_ms: int | None = None
    _pods: dict[str, _Points] = field(default_factory=dict)

    def due(self, until_ms: int) -> Iterator[int]:
        """Steps that have passed since the last call, up to ``until_ms``. Before the first sample there is none."""
        width = self.subquery.step_ms
        if self._next_ms is None:
            self._next_ms = (until_ms // width + 1) * width
        while self._next_ms <= until_ms:
            yield self._next_ms
            self._next_ms += width

    def add(self, at_ms: int, values: Mapping[str, Floats]) -> None:
        """A page with a NaN is left out: ``>= 0`` drops it, and the histograms of a page are NaN together."""
        for pod, row in values.items():
            if not np.isnan(row).any():
                self._pods.setdefault(pod, _Points()).add(at_ms, row)
        oldest = at_ms - 2 * self.subquery.range_ms
        for pod in [pod for pod, points in self._pods.items() if points.times[-1] < oldest]:
            del self._pods[pod]

    def ends(self, low_ms: int, high_ms: int) -> Ends | None:
        """The first and last point of each pod in (low, high]; None where no pod has two."""
        found = []
        for points in self._pods.values():
            first, last = bisect_right(points.times, low_ms), bisect_right(points.times, high_ms) - 1
            if last > first:
                found.append((points, first, last))
        if not found:
            return None
        return Ends(
            first_raw=np.stack([p.raw[first] for p, first, _ in found]),
            first=np.stack([p.risen[first] for p, first, _ in found]),
            last=np.stack([p.risen[last] for p, _, last in found]),
            first_ms=np.array([p.times[first] for p, first, _ in found]),
            last_ms=np.array([p.times[last] for p, _, last in found]),
            samples=np.array([last - first + 1 for _, first, last in found]),
        )
