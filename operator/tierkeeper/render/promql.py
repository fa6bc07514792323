"""The queries of the loop as PromQL text: one a signal for all tiers, found by the pods' tier label.

Every expression has the same shape from the inside out: a rate or an instant value per series, ``max`` over copies of
one series (two Prometheus replicas, two scrape jobs), ``sum`` over the engines of a pod, the pods of a tier. Model
names never enter a query.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tierkeeper.slo.burn import CONTROL_WINDOWS, Windows
from tierkeeper.slo.signals import (
    FAMILY_LABEL,
    REQUEST_TPOT_FAMILY,
    STAT_LABEL,
    TOKEN_TPOT_FAMILIES,
    TTFT_FAMILIES,
    MetricLabels,
    Signal,
    SignalKind,
    Stat,
)

SECONDS_PER_DAY = 86400

_GAUGES: Sequence[tuple[SignalKind, str]] = (
    (SignalKind.RUNNING, "vllm:num_requests_running"),
    (SignalKind.WAITING, "vllm:num_requests_waiting"),
)
COUNTERS: Sequence[tuple[SignalKind, str]] = (
    (SignalKind.REQUESTS, f"{TTFT_FAMILIES[0]}_count"),
    (SignalKind.FINISHED, "vllm:request_success_total"),
    (SignalKind.PROMPT_TOKENS, "vllm:prompt_tokens_total"),
    (SignalKind.GENERATION_TOKENS, "vllm:generation_tokens_total"),
    (SignalKind.REJECTED, "vllm:admission_rejections_total"),
    (SignalKind.PREEMPTIONS, "vllm:num_preemptions_total"),
)
MEANS: Sequence[tuple[SignalKind, str]] = (
    (SignalKind.QUEUE_TIME, "vllm:request_queue_time_seconds"),
    (SignalKind.PREFILL_TIME, "vllm:request_prefill_time_seconds"),
    (SignalKind.TTFT_TIME, TTFT_FAMILIES[0]),
    (SignalKind.PROMPT_LENGTH, "vllm:request_prompt_tokens"),
    (SignalKind.OUTPUT_LENGTH, "vllm:request_generation_tokens"),
)
_KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
"""The present name, and the one before vLLM 0.9.2."""

_ENGINE_LABELS = ("engine", "model_name")
_REASON_LABELS = ("finished_reason", "reason")
"""What tells the series of request_success and admission_rejections apart beside the engine."""

BUDGET_EVERY_SECONDS = 600.0
"""A figure of weeks needs no more, and it is the dearest query of all."""

MAX_BUDGET_POINTS = 2880
"""Points a series in the budget's subquery: 30 days at 15 minutes. Raw samples (172,800 at 15 s) would soon meet
Prometheus' limit of 50 million a query. What a pod counted before its first point and after its last is lost, or made
up by extrapolation: up to half a step each, against a life of hours."""


@dataclass(frozen=True, slots=True)
class Query:
    """One instant query for all tiers."""

    signal: Signal
    promql: str
    every_seconds: float = 0.0
    """Ask again after this long; 0: at each tick. In between the last answer still holds."""
    optional: bool = False
    """No snapshot waits for it, and a failure leaves just its own figure unknown."""


def queries(
    labels: MetricLabels, windows: Windows = CONTROL_WINDOWS, budget_days: Iterable[int] = ()
) -> tuple[Query, ...]:
    """All queries of one snapshot. ``budget_days``: the distinct ``windowDays`` of the tiers."""
    render = _Renderer(labels)
    rate, evidence = windows.rate, windows.evidence
    found = [Query(Signal(kind), render.gauge(name)) for kind, name in _GAUGES]
    found += [
        Query(Signal(SignalKind.WAITING_FLOOR), render.floor("vllm:num_requests_waiting", rate)),
        Query(Signal(SignalKind.KV_CACHE_USAGE), render.usage(*_KV_USAGE)),
        Query(Signal(SignalKind.SAMPLE_AGE), render.age("vllm:num_requests_running")),
    ]
    found += [Query(Signal(kind, rate), render.counter(name, rate)) for kind, name in COUNTERS]
    found.append(Query(Signal(SignalKind.REQUESTS, evidence), render.counter(f"{TTFT_FAMILIES[0]}_count", evidence)))
    found += [Query(Signal(kind, rate), render.mean(name, rate)) for kind, name in MEANS]
    for kind, buckets in ((SignalKind.TTFT_BUCKETS, render.ttft), (SignalKind.TPOT_BUCKETS, render.tpot)):
        found += [
            Query(
                Signal(kind, seconds),
                buckets(f"[{seconds}s]"),
                every_seconds=0.0 if seconds <= evidence else seconds / 60,
            )
            for seconds in windows.seconds
        ]
        found += [
            Query(
                Signal(kind, seconds),
                buckets(f"[{seconds}s:{budget_step(seconds)}s]"),
                BUDGET_EVERY_SECONDS,
                optional=True,
            )
            for seconds in sorted({days * SECONDS_PER_DAY for days in budget_days} - set(windows.seconds))
        ]
    return tuple(found)


def budget_step(seconds: int) -> int:
    """Step in seconds of the subquery over the budget period: 900 s for 30 days, never finer than a minute."""
    return max(60, seconds // MAX_BUDGET_POINTS)


@dataclass(frozen=True, slots=True)
class _Renderer:
    """PromQL by shape, with the label names filled in."""

    labels: MetricLabels

    def gauge(self, name: str) -> str:
        """Per pod: the sum over its engines."""
        return f"sum by ({self._pod}) ({self._once(self._select(name))})"

    def floor(self, name: str, seconds: int) -> str:
        """Per pod: the lowest value within the window; never above what the pod's engines had together."""
        return f"sum by ({self._pod}) ({self._once(f'min_over_time({self._select(name)}[{seconds}s])')})"

    def usage(self, *names: str) -> str:
        """Per pod: the mean over its engines of the first of ``names`` that an engine has."""
        return f"avg by ({self._pod}) ({' or '.join(self._once(self._select(name)) for name in names)})"

    def age(self, name: str) -> str:
        """Per pod: seconds since its newest sample, by Prometheus' own clock."""
        return f"time() - max by ({self._pod}) (timestamp({self._select(name)}))"

    def counter(self, name: str, seconds: int) -> str:
        """Per tier: increase per second, taken per series before the sum, so that a restart is never a fall."""
        rate = self._once(f"rate({self._select(name)}[{seconds}s])", (*_ENGINE_LABELS, *_REASON_LABELS))
        return f"sum by ({self._tier}) ({rate})"

    def mean(self, family: str, seconds: int) -> str:
        """Per tier: the rates of a family's own sum and count, side by side. Divided here, 0/0 would be NaN."""
        parts = [(Stat.SUM, f"{family}_sum"), (Stat.COUNT, f"{family}_count")]
        return " or ".join(self._label(STAT_LABEL, stat, self.counter(name, seconds)) for stat, name in parts)

    def ttft(self, window: str) -> str:
        """Per tier, family and edge: summed increase and number of series over ``window``, a range with brackets."""
        return self._buckets(self._increases(TTFT_FAMILIES[0], window))

    def tpot(self, window: str) -> str:
        """The same for TPOT: by request, and by token under whichever of its names a series has."""
        current, older = (self._increases(family, window) for family in TOKEN_TPOT_FAMILIES)
        by_token = f"{current} or on ({self._series(_ENGINE_LABELS)}) {older}"
        return self._buckets(f"{self._increases(REQUEST_TPOT_FAMILY, window)} or ({by_token})")

    def _increases(self, family: str, window: str) -> str:
        source = self._select(f"{family}_bucket")
        if ":" in window:
            source = f"({source} >= 0)"  # leaves out a NaN sample, which would make the whole period NaN
        increase = self._once(f"increase({source}{window})", (*_ENGINE_LABELS, "le"))
        return self._label(FAMILY_LABEL, family, increase)

    def _buckets(self, increases: str) -> str:
        by = f"{self._tier}, {FAMILY_LABEL}, le"
        total = self._label(STAT_LABEL, Stat.SUM, f"sum by ({by}) ({increases})")
        series = self._label(STAT_LABEL, Stat.SERIES, f"count by ({by}) ({increases})")
        return f"{total} or {series}"

    def _once(self, expression: str, extra: Sequence[str] = _ENGINE_LABELS) -> str:
        """One value a series, whatever else tells its copies apart."""
        return f"max by ({self._series(extra)}) ({expression})"

    def _select(self, name: str) -> str:
        return f'{name}{{{self.labels.tier}!=""}}'

    def _label(self, label: str, value: str, expression: str) -> str:
        return f'label_replace({expression}, "{label}", "{value}", "", "")'

    def _series(self, extra: Sequence[str]) -> str:
        return ", ".join((self.labels.namespace, self.labels.tier, self.labels.pod, *extra))

    @property
    def _pod(self) -> str:
        return self._series(())

    @property
    def _tier(self) -> str:
        return f"{self.labels.namespace}, {self.labels.tier}"
