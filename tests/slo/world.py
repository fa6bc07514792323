"""A pool as Prometheus would tell of it: builds the answers of one snapshot from plain figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tierkeeper.slo.assess import assess
from tierkeeper.slo.histogram import from_columns
from tierkeeper.slo.model import Assessment, Histogram, Sample
from tierkeeper.slo.readings import group
from tierkeeper.slo.signals import MetricLabels, Signal, SignalKind
from tierkeeper.tier import Objective, TierKey

GOLD = TierKey(namespace="llm", name="gold")
LABELS = MetricLabels()
SCRAPE = 15
TTFT = "vllm:time_to_first_token_seconds"
REQUEST_TPOT = "vllm:request_time_per_output_token_seconds"
ITL = "vllm:inter_token_latency_seconds"
OLD_TPOT = "vllm:time_per_output_token_seconds"
TTFT_EDGES = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0)
TPOT_EDGES = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
P99_TTFT_1S = Objective(ratio=0.99, ttft_seconds=1.0)
EVENING = 1_790_000_000.0
"""Prometheus' clock in the tests; nothing of ours may depend on it."""

Answers = dict[Signal, list[Sample]]


def histogram(counts: Mapping[float, float], series: Mapping[float, float] | None = None) -> Histogram:
    """A histogram of cumulative counts by edge in seconds; ``series``: how many have that edge, where not all have."""
    edges = sorted(counts)
    return from_columns(edges, [counts[le] for le in edges], [(series or {}).get(le, 2.0) for le in edges])


@dataclass
class Pod:
    running: float = 4.0
    waiting: float = 0.0
    waiting_floor: float = 0.0
    kv: float | None = 0.3
    age: float = 5.0


@dataclass
class Pool:
    """One tier: ``rates`` are per second by kind, buckets are cumulative counts by ``le`` as written."""

    key: TierKey = GOLD
    pods: dict[str, Pod] = field(default_factory=lambda: {"gold-a": Pod(), "gold-b": Pod()})
    requests: Mapping[int, float] = field(default_factory=lambda: {60: 80.0, 300: 400.0})
    """Requests that got a first token, by window."""
    rates: dict[SignalKind, float] = field(default_factory=dict)
    means: dict[SignalKind, tuple[float, float]] = field(default_factory=dict)
    """(sum per second, count per second)."""
    buckets: dict[tuple[SignalKind, int, str], Mapping[str, float]] = field(default_factory=dict)
    series: dict[tuple[SignalKind, int, str], Mapping[str, int] | int] = field(default_factory=dict)
    at: float | None = None
    """Prometheus' clock at the evaluation; by default it runs along with ours."""

    def ttft(self, counts: Mapping[str, float], windows: Sequence[int] = (60, 300)) -> "Pool":
        return self.histogram(SignalKind.TTFT_BUCKETS, TTFT, counts, windows)

    def tpot(
        self, counts: Mapping[str, float], windows: Sequence[int] = (60, 300), family: str = REQUEST_TPOT
    ) -> "Pool":
        return self.histogram(SignalKind.TPOT_BUCKETS, family, counts, windows)

    def histogram(
        self,
        kind: SignalKind,
        family: str,
        counts: Mapping[str, float],
        windows: Sequence[int],
        series: Mapping[str, int] | int | None = None,
    ) -> "Pool":
        for window in windows:
            self.buckets[kind, window, family] = counts
            if series is not None:
                self.series[kind, window, family] = series
        return self

    def answers(self, at: float = EVENING) -> Answers:
        found: Answers = {}

        def put(signal: Signal, value: float, **labels: str) -> None:
            tier = {"namespace": self.key.namespace, "tier": self.key.name}
            found.setdefault(signal, []).append(Sample({**tier, **labels}, value, at if self.at is None else self.at))

        for name, pod in self.pods.items():
            put(Signal(SignalKind.RUNNING), pod.running, pod=name)
            put(Signal(SignalKind.WAITING), pod.waiting, pod=name)
            put(Signal(SignalKind.WAITING_FLOOR), pod.waiting_floor, pod=name)
            put(Signal(SignalKind.SAMPLE_AGE), pod.age, pod=name)
            if pod.kv is not None:
                put(Signal(SignalKind.KV_CACHE_USAGE), pod.kv, pod=name)
        for window, count in self.requests.items():
            put(Signal(SignalKind.REQUESTS, window), count / window)
        for kind, rate in self.rates.items():
            put(Signal(kind, 60), rate)
        for kind, (total, count) in self.means.items():
            put(Signal(kind, 60), total, stat="sum")
            put(Signal(kind, 60), count, stat="count")
        for (kind, window, family), counts in self.buckets.items():
            series = self.series.get((kind, window, family), len(self.pods))
            for le, value in counts.items():
                number = series if isinstance(series, int) else series[le]
                put(Signal(kind, window), value, family=family, le=le, stat="sum")
                put(Signal(kind, window), float(number), family=family, le=le, stat="series")
        return found


def cumulative(latencies: Sequence[float], edges: Sequence[float] = TTFT_EDGES) -> dict[str, float]:
    """The buckets that these latencies (seconds) would leave, with ``le`` as Prometheus 3 writes it."""
    counts = {repr(float(edge)): float(sum(v <= edge for v in latencies)) for edge in edges}
    return {**counts, "+Inf": float(len(latencies))}


def misses(total: float, bad: float, *, edge: str = "1.0") -> dict[str, float]:
    """``bad`` of ``total`` requests above the edge, all of them below 2.5 s, the others at most half a second."""
    return {"0.5": total - bad, edge: total - bad, "2.5": total, "40.0": total, "+Inf": total}


def look(
    pool: Pool | None,
    *,
    objective: Objective | None = P99_TTFT_1S,
    now: float = 10_000.0,
    live: Sequence[str] | None = None,
    ready_since: float | None = 0.0,
    previous: Assessment | None = None,
    error: tuple[str, str] | None = None,
) -> Assessment:
    """One tick: what the loop makes of the pool. By default its pods are live and have been Ready for hours."""
    key = pool.key if pool else GOLD
    readings = group(pool.answers(EVENING + now) if pool else {}, LABELS)
    return assess(
        now=now,
        key=key,
        objective=objective,
        readings=readings.get(key),
        live_pods=tuple(pool.pods) if live is None and pool else tuple(live or ()),
        ready_since=ready_since,
        previous=previous,
        scrape_interval_seconds=SCRAPE,
        source_error=error,
    )
