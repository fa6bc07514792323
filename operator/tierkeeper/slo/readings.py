"""Samples in, typed readings by tier out: one answer holds all tiers, one ``Readings`` holds all signals of a tier."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, isinf, isnan, nan
from operator import itemgetter

from tierkeeper.slo.burn import burn
from tierkeeper.slo.histogram import ErrorRatio, MalformedError, error_ratio, from_columns
from tierkeeper.slo.model import Histogram, Sample, Sli, WindowSli
from tierkeeper.slo.signals import (
    FAMILY_LABEL,
    LARGEST,
    REQUEST_TPOT_FAMILY,
    STAT_LABEL,
    TPOT_FAMILIES,
    TTFT_FAMILIES,
    MetricLabels,
    Signal,
    SignalKind,
    Stat,
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
    """A figure that cannot be used. ``reason`` is NotANumber, NotFinite, NegativeValue, ImplausibleValue or
    MalformedHistogram."""

    reason: str
    message: str


_SUM, _SERIES = Stat.SUM.value, Stat.SERIES.value

Figures = dict[str, float]
"""Values by pod, by stat, or by ``le`` as written."""


@dataclass(slots=True)
class WindowHistogram:
    """The buckets of one SLI over one window: usable, or with the problem that makes them unusable."""

    metric: str
    histogram: Histogram | None
    problem: Problem | None = None
    _threshold: float | None = field(default=None, init=False, repr=False, compare=False)
    _ratio: ErrorRatio | None = field(default=None, init=False, repr=False, compare=False)
    _asked: tuple[int, float, float] | None = field(default=None, init=False, repr=False, compare=False)
    _sli: WindowSli | None = field(default=None, init=False, repr=False, compare=False)

    def error_ratio(self, threshold: float) -> ErrorRatio | None:
        """``histogram.error_ratio``, kept for the next who asks of the same threshold: a tier has one until it is
        edited. None also where there is nothing to divide."""
        if threshold != self._threshold:
            counted = self.histogram
            self._ratio = error_ratio(counted, threshold) if counted is not None and counted.total > 0 else None
            self._threshold = threshold
        return self._ratio

    def sli(self, seconds: int, threshold: float, budget: float) -> WindowSli | None:
        """What the window of so many seconds says of one SLO, kept likewise; None where ``error_ratio`` is."""
        asked = seconds, threshold, budget
        if asked != self._asked:
            measured = self.error_ratio(threshold)
            if measured is None or self.histogram is None:
                self._sli = None
            else:
                rates = burn(measured.ratio, budget=budget)
                self._sli = WindowSli(seconds, self.histogram.total, measured.ratio, rates)
            self._asked = asked
        return self._sli


@dataclass(slots=True)
class WindowBuckets:
    """One SLI's buckets over one window as they came. What follows from them is worked out once: the answer of a slow
    window serves many ticks."""

    families: dict[str, dict[str, Figures]] = field(default_factory=dict)
    """Family -> stat -> ``le`` as written -> value."""
    _covered: bool | None = field(default=None, init=False, repr=False, compare=False)
    _by_request: WindowHistogram | None = field(default=None, init=False, repr=False, compare=False)
    _by_token: WindowHistogram | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def covered(self) -> bool:
        """Whether the preferred family is there for every series that any family has.

        During an image upgrade old pods know only the per-token families. Requests and tokens cannot be added, so all
        pods are then read by tokens, until no window holds an old pod any more.
        """
        if self._covered is None:
            families = self.families
            preferred = families.get(REQUEST_TPOT_FAMILY)
            self._covered = preferred is not None and (
                len(families) == 1
                or _series(preferred) >= sum([_series(stats) for stats in families.values() if stats is not preferred])
            )
        return self._covered

    def histogram(self, *, by_request: bool) -> WindowHistogram:
        """The preferred family alone, or the other families together; where there is but one family, that one."""
        found = self._by_request if by_request else self._by_token
        if found is None:
            found = self._histogram(by_request=by_request)
            if by_request:
                self._by_request = found
            else:
                self._by_token = found
        return found

    def _histogram(self, *, by_request: bool) -> WindowHistogram:
        families = self.families
        if len(families) == 1:
            names = [*families]
        elif by_request:
            names = [REQUEST_TPOT_FAMILY]
        else:
            names = sorted(families.keys() - {REQUEST_TPOT_FAMILY})
        metric = " + ".join(names)
        try:
            added = _in_columns(families[metric]) if len(names) == 1 else None
            return WindowHistogram(metric, _added_up([families[name] for name in names]) if added is None else added)
        except MalformedError as error:
            return WindowHistogram(metric, None, Problem(error.reason, error.message))


@dataclass(slots=True)
class Share:
    """What one answer says of one tier."""

    key: TierKey
    at: float
    """Prometheus' clock at the newest evaluation, in Unix seconds."""
    figures: Figures = field(default_factory=dict)
    """Gauges by pod; rates by stat, which is empty where the signal has one figure only."""
    buckets: WindowBuckets | None = None
    """None where the signal has figures only."""


@dataclass(slots=True)
class Readings:
    """Everything the snapshot says of one tier. Values are as Prometheus gave them: they may be NaN or infinite."""

    key: TierKey
    pods: dict[SignalKind, Figures] = field(default_factory=dict)
    """Gauges by kind and pod name."""
    rates: dict[tuple[SignalKind, int], Figures] = field(default_factory=dict)
    """Per-second rates by ``Signal`` and stat; the stat is empty where the signal has one figure only."""
    families: dict[Sli, dict[int, WindowBuckets]] = field(default_factory=dict)
    """Buckets by SLI and window seconds."""
    evaluated_at: float | None = None
    """Prometheus' clock at the newest evaluation in the snapshot, in Unix seconds."""

    def rate(self, kind: SignalKind, window_seconds: int, stat: str = "") -> float | None:
        """One rate per second, or None where no series answered."""
        figures = self.rates.get((kind, window_seconds))
        return figures.get(stat) if figures is not None else None

    def histograms(self, sli: Sli, *, control: Collection[int]) -> dict[int, WindowHistogram]:
        """One histogram a window in which the SLI has series; the control windows agree on one family."""
        windows = self.families.get(sli, {})
        per_request = True
        for seconds in control:
            if seconds in windows and not windows[seconds].covered:
                per_request = False
                break
        return {
            seconds: buckets.histogram(by_request=per_request if seconds in control else buckets.covered)
            for seconds, buckets in windows.items()
        }


def group(answers: Mapping[Signal, Sequence[Sample]], labels: MetricLabels) -> dict[TierKey, Readings]:
    """Sort the answers of one snapshot by tier."""
    return join({signal: sort(signal, samples, labels) for signal, samples in answers.items()})


def sort(signal: Signal, samples: Iterable[Sample], labels: MetricLabels) -> dict[TierKey, Share]:
    """Sort one answer by tier. Samples without namespace or tier belong to nobody and are skipped.

    Where one figure comes twice (copies of a scraping pair that differ in a label nobody asked for), the larger counts.
    """
    shares: dict[TierKey, Share] = {}
    places: dict[tuple[str | None, ...], tuple[Share, Figures]] = {}
    namespace_label, tier_label = labels.namespace, labels.tier
    has_buckets = signal.kind in BUCKET_SIGNALS
    family_label, stat_label, name_label = _place_labels(signal.kind, labels)
    for sample in samples:
        get = sample.labels.get
        place = get(namespace_label), get(tier_label), get(family_label), get(stat_label)
        found = places.get(place)
        if found is None:
            found = places[place] = _place(shares, place, at=sample.at, has_buckets=has_buckets)
        share, figures = found
        if sample.at > share.at:
            share.at = sample.at
        name, value = get(name_label, ""), sample.value
        figures[name] = _larger(figures[name], value) if name in figures else value
    if signal.kind in POD_SIGNALS:
        for share in shares.values():
            share.figures.pop("", None)
    return shares


def _place_labels(kind: SignalKind, labels: MetricLabels) -> tuple[str, str, str]:
    """The labels that tell, beside the tier's, where a figure belongs: its family, its stat, and its name there. The
    empty label, which no sample has, where a kind has no families or stats."""
    if kind in BUCKET_SIGNALS:
        return FAMILY_LABEL, STAT_LABEL, "le"
    return "", "", labels.pod if kind in POD_SIGNALS else STAT_LABEL


def _place(
    shares: dict[TierKey, Share], place: tuple[str | None, ...], *, at: float, has_buckets: bool
) -> tuple[Share, Figures]:
    """The share, one of ``shares`` or a new one, and the figures in it. What belongs to nobody gets a share that is in
    nobody's hands."""
    namespace, tier, family, stat = place
    if not namespace or not tier:
        return Share(TierKey("", ""), at), {}
    key = TierKey(namespace, tier)
    share = shares.get(key)
    if share is None:
        share = shares[key] = Share(key, at, buckets=WindowBuckets() if has_buckets else None)
    if share.buckets is None:
        return share, share.figures
    return share, share.buckets.families.setdefault(family or "", {}).setdefault(stat or "", {})


def join(answers: Mapping[Signal, Mapping[TierKey, Share]]) -> dict[TierKey, Readings]:
    """The readings of each tier from answers that were sorted, now or for an earlier snapshot."""
    tiers: dict[TierKey, Readings] = {}
    for signal, shares in answers.items():
        kind, sli = signal.kind, BUCKET_SIGNALS.get(signal.kind)
        for key, share in shares.items():
            readings = tiers.get(key)
            if readings is None:
                readings = tiers[key] = Readings(key=key, evaluated_at=share.at)
            readings.evaluated_at = max(share.at, readings.evaluated_at or share.at)
            if sli is not None and share.buckets is not None:
                readings.families.setdefault(sli, {})[signal.window_seconds] = share.buckets
            elif kind in POD_SIGNALS:
                readings.pods[kind] = share.figures
            else:
                readings.rates[signal] = share.figures
    return tiers


def value_problem(value: float, what: str) -> Problem | None:
    """Why a gauge or rate cannot be used, or None where it can: a number from zero to LARGEST."""
    if isnan(value):
        return Problem("NotANumber", f"{what} is NaN")
    if isinf(value):
        return Problem("NotFinite", f"{what} is {'+Inf' if value > 0 else '-Inf'}")
    if value < 0:
        return Problem("NegativeValue", f"{what} is {value:g}")
    if value > LARGEST:
        return Problem("ImplausibleValue", f"{what} is {value:g}, more than any pool can show")
    return None


def _larger(known: float, value: float) -> float:
    """The larger of two; NaN wins, so that it is never hidden by a number."""
    return known if isnan(known) or known > value else value


def _series(stats: Mapping[str, Figures]) -> float:
    """How many series a family is the sum of; none where that is no number."""
    series = stats.get(_SERIES, {})
    number = series["+Inf"] if "+Inf" in series else max(series.values(), default=0.0)
    return number if -inf < number < inf else 0.0


def _in_columns(stats: Mapping[str, Figures]) -> Histogram | None:
    """The histogram of one family whose edges have one spelling each, as nearly all have; None where they have not.

    Raises MalformedError as ``_added_up`` does.
    """
    counts, series = stats.get(_SUM, {}), stats.get(_SERIES, {})
    edges, in_order = _columns(tuple(counts))
    if in_order is None or len(counts) != len(series):
        return None
    try:
        having = in_order(series)
    except KeyError:
        return None
    return from_columns(edges, in_order(counts), having)


def _added_up(families: Sequence[Mapping[str, Figures]]) -> Histogram:
    """Add up what has the same edge: "1" and "1.0" are one, and so are the halves of a family under two names.

    Raises MalformedError where an edge is no latency, or where the figures are no histogram.
    """
    by_count, by_series = _by_edge(families, Stat.SUM), _by_edge(families, Stat.SERIES)
    edges = tuple(sorted(by_count.keys() | by_series.keys()))
    return from_columns(edges, [by_count.get(le, nan) for le in edges], [by_series.get(le, 0.0) for le in edges])


@lru_cache(maxsize=1024)
def _columns(texts: tuple[str, ...]) -> tuple[tuple[float, ...], Callable[[Figures], tuple[float, ...]] | None]:
    """The edges in ascending order, and what takes their figures in that order out of a dict by spelling; None where an
    edge has two spellings, or is the only one. Raises as ``_le`` does."""
    edges = tuple(sorted({_le(text) for text in texts}))
    taken = itemgetter(*sorted(texts, key=_le)) if len(texts) == len(edges) > 1 else None
    return edges, taken


def _by_edge(families: Iterable[Mapping[str, Figures]], stat: Stat) -> dict[float, float]:
    added: dict[float, float] = {}
    for stats in families:
        for text, value in stats.get(stat, {}).items():
            le = _le(text)
            added[le] = added[le] + value if le in added else value
    return added


@lru_cache(maxsize=1024)
def _le(text: str) -> float:
    """A bucket's edge in seconds. Raises MalformedError where it is no number, or none that a latency can be."""
    try:
        le = float(text)
    except ValueError:
        le = nan
    if not (0.0 <= le <= LARGEST or le == inf):
        raise MalformedError("MalformedHistogram", f"a bucket has le={text!r}, which is no latency")
    return le
