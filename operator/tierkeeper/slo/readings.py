"""Samples in, typed readings by tier out: one answer holds all tiers, one ``Readings`` holds all signals of a tier."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, isinf, isnan, nan

from tierkeeper.slo.histogram import MalformedError, Row, from_rows
from tierkeeper.slo.model import Histogram, Sample, Sli
from tierkeeper.slo.signals import (
    FAMILY_LABEL,
    REQUEST_TPOT_FAMILY,
    STAT_LABEL,
    TPOT_FAMILIES,
    TTFT_FAMILIES,
    MetricLabels,
    Signal,
    SignalKind,
)
from tierkeeper.tier import TierKey

POD_SIGNALS = frozenset(
    {
        SignalKind.RUNNING,
        SignalKind.WAITING,
        SignalKind.WAITING_FLOOR,
        SignalKind.KV_CACHE_USAGE,
        SignalKind.SAMPLE_AGE,
    }
)
BUCKET_SIGNALS: Mapping[SignalKind, Sli] = {SignalKind.TTFT_BUCKETS: Sli.TTFT, SignalKind.TPOT_BUCKETS: Sli.TPOT}
FAMILIES: Mapping[Sli, tuple[str, ...]] = {Sli.TTFT: TTFT_FAMILIES, Sli.TPOT: TPOT_FAMILIES}
"""The histogram families of each SLI, the preferred one first."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A figure that cannot be used. ``reason`` is NotANumber, NotFinite, NegativeValue or MalformedHistogram."""

    reason: str
    message: str


RawBuckets = Mapping[str, Mapping[str, float]]
"""One family's buckets as they came: ``le`` as written -> stat -> value."""


@dataclass(frozen=True, slots=True)
class WindowHistogram:
    """The buckets of one SLI over one window: usable, or with the problem that makes them unusable."""

    metric: str
    histogram: Histogram | None
    problem: Problem | None = None


@dataclass(slots=True)
class Readings:
    """Everything the snapshot says of one tier. Values are as Prometheus gave them: they may be NaN or infinite."""

    key: TierKey
    pods: dict[SignalKind, dict[str, float]] = field(default_factory=dict)
    """Gauges by kind and pod name."""
    rates: dict[Signal, dict[str, float]] = field(default_factory=dict)
    """Per-second rates by signal and stat; the stat is empty where the signal has one figure only."""
    families: dict[tuple[Sli, int], dict[str, dict[str, dict[str, float]]]] = field(default_factory=dict)
    """Raw buckets by SLI and window seconds: family -> ``le`` as written -> stat -> value."""
    evaluated_at: float | None = None
    """Prometheus' clock at the newest evaluation in the snapshot, in Unix seconds."""

    def rate(self, kind: SignalKind, window_seconds: int, stat: str = "") -> float | None:
        """One rate per second, or None where no series answered."""
        return self.rates.get(Signal(kind, window_seconds), {}).get(stat)

    def histograms(self, sli: Sli, *, control: Iterable[int]) -> dict[int, WindowHistogram]:
        """One histogram a window in which the SLI has series; the control windows agree on one family."""
        windows = {seconds: raw for (kind, seconds), raw in self.families.items() if kind is sli}
        control_windows = set(control)
        per_request = all(_covers(raw) for seconds, raw in windows.items() if seconds in control_windows)
        return {
            seconds: _window(raw, per_request=per_request if seconds in control_windows else _covers(raw))
            for seconds, raw in windows.items()
        }


def group(answers: Mapping[Signal, Sequence[Sample]], labels: MetricLabels) -> dict[TierKey, Readings]:
    """Sort the answers of one snapshot by tier. Samples without namespace or tier belong to nobody and are skipped.

    Where one figure comes twice (copies of a scraping pair that differ in a label nobody asked for), the larger counts.
    """
    tiers: dict[TierKey, Readings] = {}
    for signal, samples in answers.items():
        for sample in samples:
            namespace, name = sample.labels.get(labels.namespace), sample.labels.get(labels.tier)
            if not namespace or not name:
                continue
            key = TierKey(namespace=namespace, name=name)
            readings = tiers.setdefault(key, Readings(key=key))
            readings.evaluated_at = max(sample.at, readings.evaluated_at or sample.at)
            _put(readings, signal, sample, labels)
    return tiers


def value_problem(value: float, what: str) -> Problem | None:
    """Why a gauge or rate cannot be used, or None where it can: a finite number that is not negative."""
    if isnan(value):
        return Problem("NotANumber", f"{what} is NaN")
    if isinf(value):
        return Problem("NotFinite", f"{what} is {'+Inf' if value > 0 else '-Inf'}")
    if value < 0:
        return Problem("NegativeValue", f"{what} is {value:g}")
    return None


def _put(readings: Readings, signal: Signal, sample: Sample, labels: MetricLabels) -> None:
    if signal.kind in POD_SIGNALS:
        pod = sample.labels.get(labels.pod)
        if pod:
            figures = readings.pods.setdefault(signal.kind, {})
            figures[pod] = _larger(figures.get(pod), sample.value)
    elif sli := BUCKET_SIGNALS.get(signal.kind):
        raw = readings.families.setdefault((sli, signal.window_seconds), {})
        family = raw.setdefault(sample.labels.get(FAMILY_LABEL, ""), {})
        _put_stat(family.setdefault(sample.labels.get("le", ""), {}), sample)
    else:
        _put_stat(readings.rates.setdefault(signal, {}), sample)


def _put_stat(stats: dict[str, float], sample: Sample) -> None:
    stat = sample.labels.get(STAT_LABEL, "")
    stats[stat] = _larger(stats.get(stat), sample.value)


def _larger(known: float | None, value: float) -> float:
    """The larger of two; NaN wins, so that it is never hidden by a number."""
    if known is None or isnan(value):
        return value
    return known if isnan(known) else max(known, value)


def _covers(raw: Mapping[str, RawBuckets]) -> bool:
    """Whether the preferred family is there for every series that any family has.

    During an image upgrade old pods know only the per-token families. Requests and tokens cannot be added, so all
    pods are then read by tokens, until no window holds an old pod any more.
    """
    if REQUEST_TPOT_FAMILY not in raw:
        return False
    tokens = sum(_series(buckets) for family, buckets in raw.items() if family != REQUEST_TPOT_FAMILY)
    return _series(raw[REQUEST_TPOT_FAMILY]) >= tokens


def _series(buckets: RawBuckets) -> float:
    top = buckets.get("+Inf")
    return _number(top) if top else max((_number(b) for b in buckets.values()), default=0.0)


def _number(stats: Mapping[str, float]) -> float:
    """How many series a bucket is the sum of; none where that is no number."""
    series = stats.get("series", 0.0)
    return series if -inf < series < inf else 0.0


def _window(raw: Mapping[str, RawBuckets], *, per_request: bool) -> WindowHistogram:
    names = sorted(raw) if len(raw) == 1 else [f for f in sorted(raw) if (f == REQUEST_TPOT_FAMILY) == per_request]
    metric = " + ".join(names)
    try:
        return WindowHistogram(metric=metric, histogram=from_rows(_merge(raw[name] for name in names)))
    except MalformedError as error:
        return WindowHistogram(metric=metric, histogram=None, problem=Problem(error.reason, error.message))


def _merge(families: Iterable[RawBuckets]) -> list[Row]:
    """Add up what has the same edge: "1" and "1.0" are one, and so are the halves of a family under two names.

    Raises MalformedError where an edge is no number.
    """
    merged: dict[float, Row] = {}
    for buckets in families:
        for text, stats in buckets.items():
            le = _le(text)
            if isnan(le):
                raise MalformedError("MalformedHistogram", f"a bucket has le={text!r}, which is no number")
            count, series = stats.get("sum", nan), _number(stats)
            if le in merged:
                _, more, others = merged[le]
                count, series = count + more, series + others
            merged[le] = le, count, series
    return [merged[le] for le in sorted(merged)]


@lru_cache(maxsize=1024)
def _le(text: str) -> float:
    """A bucket's edge in seconds, NaN where it is no number."""
    try:
        return float(text)
    except ValueError:
        return nan
