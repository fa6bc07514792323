"""Bad buckets: each kind has its reason, and rounding alone is forgiven."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierkeeper.slo.histogram import Edge, MalformedError, build


def reason(edges):
    with pytest.raises(MalformedError) as caught:
        build({le: Edge(count, 2) for le, count in edges.items()})
    return caught.value.reason


def test_m01_a_bucket_that_is_nan():
    assert reason({1.0: nan, inf: 10.0}) == "NotANumber"


@pytest.mark.parametrize("value", [inf, -inf])
def test_m03_a_bucket_that_is_infinite(value):
    assert reason({1.0: value, inf: 10.0}) == "NotFinite"


def test_no_bucket_at_infinity():
    assert reason({1.0: 5.0, 2.5: 10.0}) == "MalformedHistogram"


def test_counts_that_fall():
    assert reason({1.0: 9.0, 2.5: 5.0, inf: 10.0}) == "MalformedHistogram"


def test_a_count_below_zero():
    assert reason({1.0: -3.0, inf: 10.0}) == "MalformedHistogram"


def test_rounding_of_an_extrapolated_increase_is_forgiven():
    histogram = build({1.0: Edge(411.99999999999994, 2), 2.5: Edge(411.9999999999999, 2), inf: Edge(412.0, 2)})
    assert [b.count for b in histogram.buckets] == sorted(b.count for b in histogram.buckets)


def test_an_edge_that_only_some_pods_have_is_left_out():
    """One of two pods was rolled to an image with an edge at 1.5 s: 7 of its 10 say nothing of the other pod."""
    histogram = build({1.0: Edge(90.0, 2), 1.5: Edge(7.0, 1), 2.5: Edge(99.0, 2), inf: Edge(100.0, 2)})
    assert [b.le for b in histogram.buckets] == [1.0, 2.5, inf]


@given(
    st.dictionaries(st.floats(0.001, 100.0), st.floats(allow_nan=True, allow_infinity=True), max_size=8), st.booleans()
)
def test_whatever_comes_in_is_a_sound_histogram_or_refused(counts, closed):
    edges = {le: Edge(count, 1) for le, count in counts.items()}
    if closed:
        edges[inf] = Edge(100.0, 1)
    try:
        histogram = build(edges)
    except MalformedError:
        return
    found = [b.count for b in histogram.buckets]
    assert found == sorted(found)
    assert all(0.0 <= c < inf for c in found)
    assert histogram.buckets[-1].le == inf
