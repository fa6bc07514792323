"""What came back, in columns, and the figures drawn from it.

All times are seconds since the start of the run, all latencies in the columns are seconds, NaN where there is none.
"""

import math
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class Status(IntEnum):
    """How a request ended.

    ``CUT``: the answer began but ended without its finish chunk, or with the finish reason ``abort``. ``TIMEOUT``:
    given up after the drain time. ``NOT_SENT``: too many were in flight already.
    """

    PENDING = 0
    OK = 1
    REJECTED = 2
    ERROR = 3
    CUT = 4
    TIMEOUT = 5
    NOT_SENT = 6


def percentile(values: Iterable[float], share: float) -> float | None:
    """The nearest-rank percentile, ``share`` between 0 and 1; None without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def _doubles() -> "array[float]":
    return array("d")


@dataclass(slots=True)
class TargetRecords:
    """One row a request, in the order of arrival. ``ttft`` counts from sending, ``finished`` is the answer's end."""

    scheduled: "array[float]" = field(default_factory=_doubles)
    sent: "array[float]" = field(default_factory=_doubles)
    ttft: "array[float]" = field(default_factory=_doubles)
    tpot: "array[float]" = field(default_factory=_doubles)
    finished: "array[float]" = field(default_factory=_doubles)
    tokens: "array[int]" = field(default_factory=lambda: array("l"))
    status: "array[int]" = field(default_factory=lambda: array("b"))
    errors: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.status)

    def open_row(self, *, scheduled: float, sent: float, status: Status = Status.PENDING) -> int:
        """A new row; its index."""
        for column, value in ((self.scheduled, scheduled), (self.sent, sent)):
            column.append(value)
        for column in (self.ttft, self.tpot, self.finished):
            column.append(math.nan)
        self.tokens.append(0)
        self.status.append(status)
        return len(self.status) - 1

    def count(self, status: Status) -> int:
        """Rows with the status."""
        return self.status.count(status)

    def attainment(
        self,
        *,
        ttft_ms: float | None = None,
        tpot_ms: float | None = None,
        since: float = 0.0,
        until: float = math.inf,
    ) -> float | None:
        """The share, 0 to 1, of the requests that arrived in [since, until) and met every threshold given.

        Whatever did not end well counts as missed, and so does a request that waits for its first token longer than
        ``ttft_ms``; other requests still under way are left out. An answer of one token has no TPOT and meets it. None
        without arrivals.
        """
        good = total = 0
        now = self.last_seen()
        for row, status in enumerate(self.status):
            if not since <= self.scheduled[row] < until:
                continue
            if status == Status.PENDING:
                waited = now - self.sent[row] if math.isnan(self.ttft[row]) else self.ttft[row]
                total += ttft_ms is not None and waited * 1000 > ttft_ms
                continue
            total += 1
            good += status == Status.OK and self._meets(row, ttft_ms, tpot_ms)
        return good / total if total else None

    def observed(
        self, signal: str, threshold_ms: float, *, since: float = 0.0, until: float = math.inf
    ) -> tuple[int, int]:
        """(good, total) as the server's histograms count them.

        ``ttft``: first tokens that came in [since, until), whatever became of the request. ``tpot``: answers that ended
        well in [since, until), one-token answers counting as 0.
        """
        values = self.latencies(signal, since=since, until=until)
        return sum(value * 1000 <= threshold_ms for value in values), len(values)

    def latencies(self, signal: str, *, since: float = 0.0, until: float = math.inf) -> list[float]:
        """Seconds: ``ttft`` by the time of the first token, ``tpot`` by the end of answers that ended well."""
        if signal == "ttft":
            times = (sent + ttft for sent, ttft in zip(self.sent, self.ttft, strict=True))
            return [ttft for at, ttft in zip(times, self.ttft, strict=True) if since <= at < until]
        if signal == "tpot":
            rows = zip(self.finished, self.tpot, self.status, strict=True)
            return [
                0.0 if math.isnan(tpot) else tpot
                for at, tpot, status in rows
                if status == Status.OK and since <= at < until
            ]
        raise ValueError(f"signal {signal!r}: choose ttft or tpot")

    def last_seen(self) -> float:
        """The latest time in the records."""
        times = [t for column in (self.sent, self.finished) for t in column if not math.isnan(t)]
        return max(times, default=0.0)

    def _meets(self, row: int, ttft_ms: float | None, tpot_ms: float | None) -> bool:
        if ttft_ms is not None and not self.ttft[row] * 1000 <= ttft_ms:
            return False
        return tpot_ms is None or self.tokens[row] <= 1 or self.tpot[row] * 1000 <= tpot_ms

    def summary(self, *, since: float = 0.0, until: float = math.inf) -> dict[str, Any]:
        """Counts and percentiles (milliseconds) of the requests that arrived in [since, until)."""
        rows = [row for row, at in enumerate(self.scheduled) if since <= at < until]
        statuses = Counter(Status(self.status[row]).name.lower() for row in rows)
        return {
            "arrivals": len(rows),
            "statuses": dict(statuses),
            "output_tokens": sum(self.tokens[row] for row in rows),
            "ttft_ms": _percentiles(self.ttft[row] for row in rows),
            "tpot_ms": _percentiles(self.tpot[row] for row in rows),
            "send_lateness_ms": _percentiles(self.sent[row] - self.scheduled[row] for row in rows),
        }


def _percentiles(seconds: Iterable[float]) -> dict[str, float | None]:
    known = [value * 1000 for value in seconds if not math.isnan(value)]
    marks = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: None if (v := percentile(known, share)) is None else round(v, 2) for name, share in marks.items()}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One target over the last seconds. Latencies in milliseconds, None without samples."""

    arrivals_per_s: float
    in_flight: int
    ttft_p99_ms: float | None
    tpot_p99_ms: float | None
    failed: int


@dataclass(slots=True)
class LoadReport:
    """The records of every target by name, readable while the run goes on."""

    targets: dict[str, TargetRecords]
    started_monotonic: float = 0.0
    started_unix: float = 0.0

    @classmethod
    def for_targets(cls, names: Sequence[str]) -> "LoadReport":
        """An empty report."""
        return cls({name: TargetRecords() for name in names})

    def start(self) -> None:
        """The run begins now."""
        self.started_monotonic, self.started_unix = time.monotonic(), time.time()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started_monotonic

    def window(self, seconds: float) -> dict[str, Snapshot]:
        """Every target over the last ``seconds``; ``failed`` counts arrivals of that time that ended badly."""
        since = self.elapsed - seconds
        return {name: _snapshot(records, since, seconds) for name, records in self.targets.items()}

    def to_dict(self, *, records: bool = True) -> dict[str, Any]:
        """For JSON; NaN becomes None."""
        return {
            "started_unix": self.started_unix,
            "targets": {name: _target_dict(target, records) for name, target in self.targets.items()},
        }


def _snapshot(records: TargetRecords, since: float, seconds: float) -> Snapshot:
    recent = [row for row, at in enumerate(records.scheduled) if at >= since]
    ttft = percentile(records.latencies("ttft", since=since), 0.99)
    tpot = percentile(records.latencies("tpot", since=since), 0.99)
    return Snapshot(
        arrivals_per_s=len(recent) / seconds,
        in_flight=records.count(Status.PENDING),
        ttft_p99_ms=None if ttft is None else ttft * 1000,
        tpot_p99_ms=None if tpot is None else tpot * 1000,
        failed=sum(records.status[row] not in (Status.PENDING, Status.OK) for row in recent),
    )


def _target_dict(target: TargetRecords, records: bool) -> dict[str, Any]:
    result = {"summary": target.summary(), "errors": dict(target.errors)}
    if records:
        result["records"] = {
            name: [None if math.isnan(v) else round(v, 6) for v in getattr(target, name)]
            for name in ("scheduled", "sent", "ttft", "tpot", "finished")
        }
        result["records"]["tokens"] = list(target.tokens)
        result["records"]["status"] = [Status(s).name.lower() for s in target.status]
    return result
