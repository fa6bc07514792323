"""The share of requests above a threshold: exact on a bucket edge, a bracket with an estimate between two edges."""

from math import exp, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.slo.world import TTFT_EDGES, cumulative, histogram
from tierkeeper.slo.histogram import error_ratio, quantile

latencies = st.lists(st.floats(min_value=1e-4, max_value=35.0), min_size=1, max_size=60)


def of(values):
    return histogram({float(le): count for le, count in cumulative(values).items()})


def test_a_threshold_on_an_edge_is_exact():
    found = error_ratio(of([0.2] * 97 + [1.2] * 3), 1.0)
    assert (found.ratio.lower, found.ratio.point, found.ratio.upper) == pytest.approx((0.03, 0.03, 0.03))
    assert found.aligned
    assert found.neighbours == ()


def test_a_threshold_between_edges_is_bracketed_by_its_neighbours():
    """5 of 100 above 1 s, 1 of 100 above 2.5 s: at 1.5 s it is between 1 % and 5 %."""
    found = error_ratio(of([0.2] * 95 + [2.0] * 4 + [3.0]), 1.5)
    assert (found.ratio.lower, found.ratio.upper) == pytest.approx((0.01, 0.05))
    assert found.neighbours == (1.0, 2.5)
    assert not found.aligned


def test_the_point_lies_on_a_straight_line_of_log_survival_over_log_latency():
    """A power law has exactly that shape: S(t) = (0.1 / t)^2 gives S(1.5) = 0.00444, where a line gives 0.0072."""
    survival = {edge: min(1.0, (0.1 / edge) ** 2) for edge in TTFT_EDGES}
    found = error_ratio(histogram({**{e: 1e6 * (1 - s) for e, s in survival.items()}, inf: 1e6}), 1.5)
    assert found.ratio.point == pytest.approx((0.1 / 1.5) ** 2, rel=1e-3)


def test_below_the_lowest_edge_the_tail_is_read_as_exponential():
    """The first bucket starts at zero, where a logarithm has no place: S(t) = exp(-t / 0.001) halves the exponent."""
    found = error_ratio(histogram({0.001: 1000 * (1 - exp(-1)), inf: 1000.0}), 0.0005)
    assert found.ratio.point == pytest.approx(exp(-0.5))
    assert found.neighbours == (0.001,)


def test_m15_a_threshold_above_every_edge_cannot_be_measured():
    assert error_ratio(of([0.2] * 100), 120.0) is None


def test_m14_with_the_99th_request_in_the_open_bucket_the_quantile_is_at_least_the_top_edge():
    found = quantile(of([1.0] + [50.0] * 99), 0.99)
    assert (found.seconds, found.at_or_above) == (40.0, True)


def test_m14_a_target_just_below_the_top_edge_is_violated_by_all_that_is_above_it():
    found = error_ratio(of([1.0] + [50.0] * 99), 39.0)
    assert found.ratio.lower == pytest.approx(0.99)


@given(latencies, st.floats(min_value=2e-4, max_value=39.0))
def test_the_truth_lies_within_the_bounds(values, threshold):
    ratio = error_ratio(of(values), threshold).ratio
    truth = sum(v > threshold for v in values) / len(values)
    assert ratio.lower - 1e-9 <= truth <= ratio.upper + 1e-9
    assert 0.0 <= ratio.lower <= ratio.point <= ratio.upper <= 1.0


@given(latencies, st.sampled_from(TTFT_EDGES))
def test_on_every_edge_the_three_bounds_are_the_truth(values, threshold):
    ratio = error_ratio(of(values), threshold).ratio
    truth = sum(v > threshold for v in values) / len(values)
    assert ratio.lower == ratio.point == ratio.upper == pytest.approx(truth)


@given(latencies, st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(values, q):
    found = quantile(of(values), q)
    rank = sorted(values)[max(0, -int(-q * len(values) // 1) - 1)]
    edges = [0.0, *TTFT_EDGES]
    low = max(e for e in edges if e < rank)
    high = min((e for e in edges if e >= rank), default=inf)
    assert low - 1e-9 <= found.seconds <= high + 1e-9


@given(latencies, st.floats(min_value=0.002, max_value=30.0))
def test_p99_is_above_a_threshold_only_when_more_than_one_percent_miss_it(values, threshold):
    seen = of(values)
    p99, missed = quantile(seen, 0.99).seconds, error_ratio(seen, threshold).ratio.point
    if p99 > threshold * 1.0001:
        assert missed >= 0.01 - 1e-9
    if p99 < threshold * 0.9999:
        assert missed <= 0.01 + 1e-9 or missed <= 0.5 / len(values) + 1e-9
