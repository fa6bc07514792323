"""Bad buckets: each kind has its reason, and rounding alone is forgiven."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.slo.world import histogram
from tierkeeper.slo.histogram import MalformedError


def reason(edges):
    with pytest.raises(MalformedError) as caught:
        histogram(edges)
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
    found = histogram({1.0: 411.99999999999994, 2.5: 411.9999999999999, inf: 412.0})
    assert list(found.counts) == sorted(found.counts)


def test_an_edge_that_only_some_pods_have_is_left_out():
    """One of two pods was rolled to an image with an edge at 1.5 s: 7 of its 10 say nothing of the other pod."""
    found = histogram({1.0: 90.0, 1.5: 7.0, 2.5: 99.0, inf: 100.0}, series={1.5: 1.0})
    assert found.edges == (1.0, 2.5, inf)


@given(
    st.dictionaries(st.floats(0.001, 100.0), st.floats(allow_nan=True, allow_infinity=True), max_size=8), st.booleans()
)
def test_whatever_comes_in_is_a_sound_histogram_or_refused(counts, closed):
    edges = {**counts, inf: 100.0} if closed else counts
    try:
        found = histogram(edges)
    except MalformedError:
        return
    assert list(found.counts) == sorted(found.counts)
    assert all(0.0 <= c < inf for c in found.counts)
    assert found.edges[-1] == inf
