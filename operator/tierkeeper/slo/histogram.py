"""Arithmetic on cumulative histograms: error ratios with bounds, quantiles, and the refusal of what is no histogram."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import exp, inf, isclose, isinf, isnan, log
from typing import NoReturn

from tierkeeper.slo.model import Histogram, Quantile, Ratio
from tierkeeper.slo.signals import LARGEST
from tierkeeper.values import value

ROUNDING = 1e-6
"""Relative error that ``increase()``'s extrapolation and the sum over pods may leave; more is a broken histogram."""


class MalformedError(ValueError):
    """The figures are no histogram. ``reason`` is NotANumber, NotFinite, ImplausibleValue or MalformedHistogram."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@value(frozen=True, slots=True)
class ErrorRatio:
    """The share of requests above a threshold."""

    ratio: Ratio
    aligned: bool
    """The threshold is a bucket edge: the three bounds are one exact figure."""
    neighbours: tuple[float, ...]
    """Where not aligned: the finite edges around the threshold, in seconds."""


def from_columns(edges: Sequence[float], counts: Sequence[float], series: Sequence[float]) -> Histogram:
    """A histogram from its edges (seconds, ascending, all different), the cumulative count at each, and how many
    series have it. Edges that some series lack are left out: their sums mean nothing.

    Raises MalformedError where a count is no finite number or beyond LARGEST, the bucket at infinity is missing, or
    counts fall.
    """
    if not edges or edges[-1] != inf:
        raise MalformedError("MalformedHistogram", "there is no bucket at +Inf, so the total is unknown")
    # Nearly always all is well, which this shows without a step in Python for each bucket. A NaN fails the sum.
    everywhere = series.count(series[-1]) == len(series) or min(series) >= series[-1]
    if everywhere and counts[0] >= 0.0 and sum(counts) <= LARGEST and sorted(counts) == [*counts]:
        return Histogram(tuple(edges), tuple(counts))  # no copies: a tuple of a tuple is that tuple
    kept = dict(_repaired(edges, counts, series))
    return Histogram(tuple(kept), tuple(kept.values()))


def _repaired(
    edges: Sequence[float], counts: Sequence[float], series: Sequence[float]
) -> Iterator[tuple[float, float]]:
    """Edges and counts one by one: refused with the reason, or with their rounding forgiven."""
    floor, least = 0.0, series[-1]
    for edge, count, having in zip(edges, counts, series, strict=True):
        if not -ROUNDING <= count <= LARGEST:
            _refuse_count(edge, count)
        if having < least:
            continue
        if count > floor:
            floor = count
        elif count < floor - ROUNDING * max(floor, 1.0):
            raise MalformedError(
                "MalformedHistogram", f"the bucket at {_edge(edge)} counts {count:g}, less than {floor:g} below it"
            )
        yield edge, floor


def _refuse_count(le: float, count: float) -> NoReturn:
    bucket = f"the bucket at {_edge(le)}"
    if isnan(count):
        raise MalformedError("NotANumber", f"{bucket} is NaN")
    if isinf(count):
        raise MalformedError("NotFinite", f"{bucket} is {'+Inf' if count > 0 else '-Inf'}")
    if count > LARGEST:
        raise MalformedError("ImplausibleValue", f"{bucket} counts {count:g}, more than any pool can")
    raise MalformedError("MalformedHistogram", f"{bucket} counts {count:g}, below zero")


def _edge(le: float) -> str:
    return "+Inf" if le == inf else f"{le:g} s"


def top_finite_edge(histogram: Histogram) -> float | None:
    """The highest finite edge in seconds; None where there is only the open bucket."""
    return histogram.edges[-2] if len(histogram.edges) > 1 else None


def error_ratio(histogram: Histogram, threshold: float) -> ErrorRatio | None:
    """The share of observations above ``threshold`` seconds. ``histogram.total`` must be above zero.

    Between two edges the point is read by log-survival: log(1 - F) is linear in log(latency), which follows the
    heavy tail of latencies where a straight line overstates the misses 2 to 3 times. Returns None where the threshold
    lies above every finite edge: such a target cannot be measured.
    """
    edges, counts = histogram.edges, histogram.counts
    total = counts[-1]
    place = bisect_left(edges, threshold * (1.0 - 1e-9))
    edge, survival = edges[place], max(0.0, 1.0 - counts[place] / total)
    if edge == inf:
        return None
    if isclose(edge, threshold, rel_tol=1e-9):
        return ErrorRatio(Ratio(survival, survival, survival), aligned=True, neighbours=())
    lower_edge, lower_count = (edges[place - 1], counts[place - 1]) if place else (0.0, 0.0)
    upper = max(0.0, 1.0 - lower_count / total)
    estimate = _survival_between(threshold, (lower_edge, upper), (edge, survival), 0.5 / total)
    ratio = Ratio(lower=survival, point=min(max(estimate, survival), upper), upper=upper)
    return ErrorRatio(ratio, aligned=False, neighbours=(lower_edge, edge) if lower_edge else (edge,))


def quantile(histogram: Histogram, q: float) -> Quantile | None:
    """The ``q`` quantile (0 < q < 1) in seconds by the same interpolation, so that P99 is above a threshold exactly
    when more than 1 % miss it. ``at_or_above`` in the open top bucket. None for an empty histogram."""
    edges, counts = histogram.edges, histogram.counts
    total = counts[-1] if counts else 0.0
    if total <= 0:
        return None
    place = bisect_left(counts, total * (q - 1e-12))
    edge = edges[place]
    lower_edge, lower_count = (edges[place - 1], counts[place - 1]) if place else (0.0, 0.0)
    if edge == inf:
        return Quantile(lower_edge, at_or_above=True)
    upper, survival = 1.0 - lower_count / total, max(0.0, 1.0 - counts[place] / total)
    # The latency at which the survival falls to the wanted one: the inverse of ``_survival_between``.
    log_low, log_high = log(upper), log(min(max(survival, 0.5 / total), upper))
    if log_low <= log_high:
        return Quantile(edge)
    share = min(1.0, (log_low - log(1.0 - q)) / (log_low - log_high))
    if lower_edge <= 0:
        return Quantile(edge * share)
    log_edge = log(lower_edge)
    return Quantile(exp(log_edge + (log(edge) - log_edge) * share))


def _survival_between(at: float, low: tuple[float, float], high: tuple[float, float], least: float) -> float:
    """Survival at ``at`` between two (edge, survival) points. ``least`` stands in for a survival of zero: half an
    observation, since log(0) would put every miss at the lower edge."""
    if low[1] <= 0:
        return 0.0
    log_low, log_high = log(low[1]), log(min(max(high[1], least), low[1]))
    return exp(log_low + (log_high - log_low) * _position(at, low[0], high[0]))


def _position(at: float, low: float, high: float) -> float:
    """Where ``at`` lies between two edges, 0 to 1: by log(latency), but straight in the first bucket, from 0."""
    if low <= 0:
        return at / high
    return (log(at) - log(low)) / (log(high) - log(low))
