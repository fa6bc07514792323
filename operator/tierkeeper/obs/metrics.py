"""The operator's own metrics, all named ``tierkeeper_*``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from tierkeeper import __version__
from tierkeeper.obs.tiers import TIER, Judged, TierCollector
from tierkeeper.ports import MetricsErrorReason
from tierkeeper.tier import TierKey


@dataclass(slots=True)
class Metrics:
    """One instance a process, with its own registry so that a test gets a fresh one."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    reconciles: Counter = field(init=False)
    reconcile_errors: Counter = field(init=False)
    reconcile_seconds: Histogram = field(init=False)
    writes: Counter = field(init=False)
    queue_depth: Gauge = field(init=False)
    tick_seconds: Histogram = field(init=False)
    tick_lag_seconds: Gauge = field(init=False)
    ticks: Counter = field(init=False)
    query_errors: Counter = field(init=False)
    unknown_signals: Counter = field(init=False)
    decisions: Counter = field(init=False)
    resize_seconds: Histogram = field(init=False)
    tiers: Gauge = field(init=False)
    leader: Gauge = field(init=False)
    replicas: Gauge = field(init=False)
    max_num_seqs: Gauge = field(init=False)
    token_budget: Gauge = field(init=False)
    condition: Gauge = field(init=False)
    _judged: TierCollector = field(default_factory=TierCollector)
    _seen: dict[TierKey, set[tuple[str, tuple[str, ...]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        own = self.registry
        self.reconciles = Counter("tierkeeper_reconciles", "Reconciles, by how they ended", ("result",), registry=own)
        self.reconcile_errors = Counter(
            "tierkeeper_reconcile_errors", "Reconciles that failed, by reason", ("reason",), registry=own
        )
        self.reconcile_seconds = Histogram(
            "tierkeeper_reconcile_seconds", "Duration of a reconcile", registry=own, buckets=(0.01, 0.05, 0.2, 1, 5, 30)
        )
        self.writes = Counter("tierkeeper_writes", "Writes to the API server", ("verb", "kind"), registry=own)
        self.queue_depth = Gauge("tierkeeper_queue_depth", "Tiers that wait for a worker", registry=own)
        self.ticks = Counter("tierkeeper_ticks", "Ticks of the SLO loop, by how they ended", ("result",), registry=own)
        self.tick_seconds = Histogram(
            "tierkeeper_tick_seconds", "Duration of a tick", registry=own, buckets=(0.05, 0.2, 0.5, 1, 2, 5, 10, 30)
        )
        self.tick_lag_seconds = Gauge("tierkeeper_tick_lag_seconds", "How late the last tick began", registry=own)
        self.query_errors = Counter(
            "tierkeeper_query_errors", "Failed queries to the metrics source, by reason", ("reason",), registry=own
        )
        self.unknown_signals = Counter(
            "tierkeeper_unknown_signals",
            "Looks at a tier whose signals could not be believed, by reason",
            ("reason",),
            registry=own,
        )
        self.tiers = Gauge("tierkeeper_tiers", "ServiceTiers known", registry=own)
        self.leader = Gauge(
            "tierkeeper_leader", "1: this replica acts; 0: it stands by while another holds the Lease", registry=own
        )
        build = Gauge("tierkeeper_build_info", "1; the label is the version that runs", ("version",), registry=own)
        build.labels(__version__).set(1)
        ProcessCollector(registry=own)
        self._add_tier_metrics(own)
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        """A counter that is there before its first event: the increase from nothing to 1 would be seen by no query."""
        for result in ("ok", "error"):
            self.ticks.labels(result)
            self.reconciles.labels(result)
        for reason in MetricsErrorReason:
            self.query_errors.labels(reason.value)

    def _add_tier_metrics(self, own: CollectorRegistry) -> None:
        self.decisions = Counter(
            "tierkeeper_decisions", "Decisions that changed a lever", (*TIER, "reason"), registry=own
        )
        self.resize_seconds = Histogram(
            "tierkeeper_resize_seconds",
            "From the write of a live limit to the last pod that shows it",
            TIER,
            registry=own,
            buckets=(0.25, 0.5, 1, 2, 5, 10, 30, 60),
        )
        self.replicas = Gauge("tierkeeper_replicas", "Replicas of a pool", (*TIER, "state"), registry=own)
        self.max_num_seqs = Gauge(
            "tierkeeper_max_num_seqs", "Cap of the running batch of a replica", (*TIER, "state"), registry=own
        )
        self.token_budget = Gauge(
            "tierkeeper_max_num_batched_tokens", "Token budget of one engine step", (*TIER, "state"), registry=own
        )
        self.condition = Gauge(
            "tierkeeper_condition",
            "1 for the present status and reason of each condition of a tier",
            (*TIER, "type", "status", "reason"),
            registry=own,
        )
        own.register(self._judged)

    def show(self, key: TierKey, values: Mapping[tuple[str, tuple[str, ...]], float | None]) -> None:
        """What a reconcile knows of one tier: (gauge attribute, further labels) to value; absent or None goes away."""
        present = {known: value for known, value in values.items() if value is not None}
        for name, labels in self._seen.get(key, set()) - present.keys():
            self._gauge(name).remove(key.namespace, key.name, *labels)
        for (name, labels), value in present.items():
            self._gauge(name).labels(key.namespace, key.name, *labels).set(value)
        self._seen[key] = set(present)

    def forget(self, key: TierKey) -> None:
        """Drop every series of a tier that is gone."""
        self.show(key, {})
        self._seen.pop(key, None)
        self.forget_judged(key)
        for metric in (self.decisions, self.resize_seconds):
            metric.remove_by_labels(dict(zip(TIER, (key.namespace, key.name), strict=True)))

    def show_judged(self, judged: Mapping[TierKey, Judged]) -> None:
        """What a tick found of all tiers; what it does not speak of any more goes away."""
        self._judged.judged = judged

    def forget_judged(self, key: TierKey) -> None:
        """Drop what the last tick found of a tier: it does not hold any more."""
        self.show_judged({known: one for known, one in self._judged.judged.items() if known != key})

    def _gauge(self, name: str) -> Gauge:
        gauge = getattr(self, name)
        if not isinstance(gauge, Gauge):
            raise TypeError(f"{name} is not a gauge")
        return gauge
