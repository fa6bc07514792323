"""What the loop knows of each tier, as gauges.

They are made from the last assessment when somebody scrapes, so that a tick pays nothing for them and no figure
outlives the assessment that it comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tierkeeper.scaling.model import Decision
from tierkeeper.slo.evaluate import quantile_of
from tierkeeper.slo.model import Assessment, Quantile, SignalState, Sli, SloAssessment, WindowSli
from tierkeeper.tier import TierKey, TierSpec

TIER = ("tier_namespace", "tier")
"""Labels of every series about a tier. Not ``namespace``: Prometheus writes the scraped pod's own over it."""

BOUNDS_SECONDS = 300
"""The one window whose error ratio is shown with its bounds: the one that status shows."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The outcome of a tick for one tier."""

    spec: TierSpec
    assessment: Assessment
    decision: Decision | None


Figures = Iterable[tuple[tuple[str, ...], float | None]]
"""Label values beside the tier's, and a value; None where it is not known, which gives no series."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: ``read`` gives its figures of one tier."""

    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[Judged], Figures]

    def empty(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self.name, self.help, labels=(*TIER, *self.labels))


@dataclass(slots=True, eq=False)  # a registry keeps its collectors by identity
class TierCollector(Collector):
    """Shows the latest outcome of each tier."""

    judged: Mapping[TierKey, Judged] = field(default_factory=dict)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        return (family.empty() for family in FAMILIES)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for family in FAMILIES:
            metric = family.empty()
            for key, one in self.judged.items():
                for labels, value in family.read(one):
                    if value is not None:
                        metric.add_metric((key.namespace, key.name, *labels), value)
            yield metric


def window_label(seconds: int) -> str:
    """A window as Prometheus writes durations: ``5m``, ``6h``, ``90s``."""
    for size, unit in ((3600, "h"), (60, "m")):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _slos(figures: Callable[[SloAssessment], Figures]) -> Callable[[Judged], Figures]:
    """Figures of each promised SLO, with its name as the first label."""
    return lambda one: (
        ((sli.value, *labels), value) for sli, slo in one.assessment.slos.items() for labels, value in figures(slo)
    )


def _windows(figure: Callable[[WindowSli], float]) -> Callable[[Judged], Figures]:
    return _slos(lambda slo: (((window_label(w.seconds),), figure(w)) for w in slo.windows))


def _bounds(slo: SloAssessment) -> Figures:
    if (window := slo.window(BOUNDS_SECONDS)) is not None:
        label, ratio = window_label(window.seconds), window.ratio
        yield (label, "lower"), ratio.lower
        yield (label, "point"), ratio.point
        yield (label, "upper"), ratio.upper


def _quantiles(slo: SloAssessment) -> Figures:
    median, high = quantile_of(slo, 0.5), quantile_of(slo, 0.95)
    return ((("0.5",), _seconds(median)), (("0.95",), _seconds(high)), (("0.99",), _seconds(slo.p99)))


def _seconds(quantile: Quantile | None) -> float | None:
    return None if quantile is None else quantile.seconds


def _phases(one: Judged) -> Figures:
    traffic, tpot = one.assessment.traffic, one.assessment.slos.get(Sli.TPOT)
    typical, tokens = _seconds(quantile_of(tpot, 0.5)) if tpot is not None else None, traffic.mean_output_tokens
    decode = None if typical is None or tokens is None else typical * max(0.0, tokens - 1.0)
    return (
        (("queue",), traffic.mean_queue_seconds),
        (("prefill",), traffic.mean_prefill_seconds),
        (("decode",), decode),
    )


def _budget(one: Judged) -> Figures:
    return () if one.spec.objective is None else (((), one.spec.objective.error_budget),)


def _state(one: Judged) -> Figures:
    return (((state.value,), float(one.assessment.state is state)) for state in SignalState)


def _decision(one: Judged) -> Figures:
    return () if one.decision is None else (((one.decision.reason.value,), 1.0),)


FAMILIES = (
    Family(
        "tierkeeper_slo_threshold_seconds",
        "Latency that a request must not exceed",
        ("slo",),
        _slos(lambda slo: (((), slo.threshold_seconds),)),
    ),
    Family("tierkeeper_error_budget_ratio", "Share of requests that may miss a threshold", (), _budget),
    Family(
        "tierkeeper_error_budget_left_ratio",
        "Share of the period's error budget still unspent; below 0: overspent",
        ("slo",),
        _slos(lambda slo: (((), slo.budget_left),)),
    ),
    Family(
        "tierkeeper_burn_rate",
        "How fast the error budget burns over a window; 1: spent in its period",
        ("slo", "window"),
        _windows(lambda window: window.burn.point),
    ),
    Family(
        "tierkeeper_error_ratio",
        "Share of requests over the threshold; the bounds differ where it is no bucket edge",
        ("slo", "window", "bound"),
        _slos(_bounds),
    ),
    Family(
        "tierkeeper_slo_requests",
        "Requests observed in a window",
        ("slo", "window"),
        _windows(lambda window: window.total),
    ),
    Family(
        "tierkeeper_slo_bad_requests",
        "Requests over the threshold in a window",
        ("slo", "window"),
        _windows(lambda window: window.ratio.point * window.total),
    ),
    Family(
        "tierkeeper_latency_seconds",
        "Latency quantile over 5 minutes, as the loop reads it",
        ("slo", "quantile"),
        _slos(_quantiles),
    ),
    Family(
        "tierkeeper_phase_seconds",
        "Where a request's time goes on average; decode is the median TPOT times the mean output length",
        ("phase",),
        _phases,
    ),
    Family("tierkeeper_signal_state", "1 for the state that the tier's signals are in", ("state",), _state),
    Family("tierkeeper_decision_info", "1 for the reason of the decision in force", ("reason",), _decision),
)
