"""Arrivals: as many as the rate promises, as bursty as the law says, the same for the same seed."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tierkeeper.sim.traffic import POISSON, Curve, gamma, parse_law, weibull
from tierkeeper.sim.traffic.arrivals import MAX_REQUESTS, Gaps, Law, arrivals, arrivals_in_bins

LAWS = [POISSON, gamma(cv=0.5), gamma(cv=2.5), weibull(shape=0.6), weibull(shape=2.0)]


def drawn(rate, law, seed=1):
    return arrivals(rate, law=law, rng=np.random.default_rng(seed))


@pytest.mark.parametrize("law", LAWS)
def test_gaps_have_mean_one_and_the_coefficient_of_variation_they_claim(law):
    gaps = law.draw(np.random.default_rng(1), 400_000)
    assert gaps.mean() == pytest.approx(1.0, abs=0.02)
    assert gaps.std() == pytest.approx(law.cv, rel=0.03)


@pytest.mark.parametrize("law", LAWS)
def test_the_wait_from_a_random_moment_is_longer_the_burstier_the_law(law):
    rng = np.random.default_rng(1)
    waits = [law.residual(rng) for _ in range(10_000)]
    assert np.mean(waits) == pytest.approx((1 + law.cv**2) / 2, rel=0.1)  # the inspection paradox


@pytest.mark.parametrize("law", LAWS)
def test_a_constant_rate_gives_its_gaps_in_seconds(law):
    gaps = np.diff(drawn(Curve.constant(50.0, seconds=4000), law))
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(law.cv, rel=0.03)


@pytest.mark.parametrize("law", [*LAWS, gamma(cv=7.0)])
def test_even_a_short_run_of_a_bursty_law_has_the_expected_number_of_requests(law):
    rate = Curve.constant(2.0, seconds=10)
    counts = [len(drawn(rate, law, seed)) for seed in range(1500)]
    error = np.std(counts) / math.sqrt(len(counts))
    assert np.mean(counts) == pytest.approx(20.0, abs=4 * error)


@pytest.mark.parametrize("law", LAWS)
def test_arrivals_follow_a_changing_rate(law):
    rate = Curve.through([(0, 0), (1000, 100), (2000, 100), (2000, 0), (3000, 0), (3000, 20), (5000, 0)])
    seen = drawn(rate, law)
    counts = np.histogram(seen, bins=[0, 500, 1000, 2000, 3000, 4000, 5000])[0]
    expected = np.array([12_500, 37_500, 100_000, 0, 15_000, 5_000])
    assert counts == pytest.approx(expected, abs=5 * law.cv * math.sqrt(100_000) + 5)
    assert counts[3] == 0


@settings(max_examples=60)
@given(
    points=st.lists(st.tuples(st.floats(0.01, 500), st.floats(0, 40), st.floats(0, 40)), min_size=1, max_size=8),
    law=st.sampled_from(LAWS),
    seed=st.integers(0, 2**32),
)
def test_arrivals_are_sorted_lie_on_the_curve_and_repeat_with_the_seed(points, law, seed):
    edges = np.concatenate([[0.0], np.cumsum([width for width, _, _ in points])])
    rate = Curve(edges, np.array([a for _, a, _ in points]), np.array([b for _, _, b in points]))
    seen = drawn(rate, law, seed)
    assert (np.diff(seen) >= 0).all()
    assert ((seen >= rate.start) & (seen <= rate.end)).all()
    segment = np.clip(np.searchsorted(edges, seen, side="right") - 1, 0, len(points) - 1)
    idle = (rate.starts + rate.ends) == 0
    inside = (seen > edges[segment]) & (seen < edges[segment + 1])
    assert not (idle[segment] & inside).any()
    assert drawn(rate, law, seed).tolist() == seen.tolist()


def test_blocks_join_without_a_seam(monkeypatch):
    monkeypatch.setattr("tierkeeper.sim.traffic.arrivals._BLOCK", 64)
    seen = drawn(Curve.constant(10.0, seconds=2000), POISSON)
    gaps = np.diff(seen)
    assert len(seen) == pytest.approx(20_000, abs=600)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.03)


def test_no_rate_means_no_arrival():
    assert len(drawn(Curve.constant(0.0, seconds=100), POISSON)) == 0


def test_bins_have_each_their_own_rate_and_law():
    edges = np.array([0.0, 1000.0, 2000.0, 3000.0])
    laws = [gamma(cv=0.2), POISSON, gamma(cv=3.0)]
    seen = arrivals_in_bins(edges, np.array([50.0, 0.0, 20.0]), laws, rng=np.random.default_rng(1))
    first, last = seen[seen < 1000], seen[seen >= 2000]
    assert len(first) + len(last) == len(seen)
    assert np.diff(first).std() / np.diff(first).mean() == pytest.approx(0.2, rel=0.05)
    assert np.diff(last).std() / np.diff(last).mean() == pytest.approx(3.0, rel=0.1)
    assert (np.diff(seen) >= 0).all()


@pytest.mark.parametrize(
    ("text", "law"),
    [("poisson", POISSON), (" Gamma:2 ", gamma(cv=2.0)), ("weibull:0.7", weibull(shape=0.7))],
)
def test_a_law_is_read_from_text(text, law):
    assert parse_law(text) == law


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pareto", "write poisson, gamma:CV or weibull:SHAPE"),
        ("gamma", "write poisson, gamma:CV"),
        ("poisson:2", "write poisson, gamma:CV"),
        ("gamma:wild", "write poisson, gamma:CV"),
        ("gamma:nan", "a coefficient of variation of nan must be between 0.01 and 10"),
        ("gamma:0", "must be between 0.01 and 10"),
        ("weibull:0", "shape 0 must be between 0.01 and 10,000"),
        ("weibull:nan", "shape nan must be"),
    ],
)
def test_a_law_that_cannot_be_is_refused_with_the_remedy(text, message):
    with pytest.raises(ValueError, match="arrival law") as caught:
        parse_law(text)
    assert message in str(caught.value)


def test_the_burstiness_of_extreme_shapes_stays_finite():
    assert Law(Gaps.WEIBULL, 0.01).cv > 1e20
    assert math.isfinite(Law(Gaps.WEIBULL, 0.01).cv)
    assert Law(Gaps.GAMMA, 0.01).cv == pytest.approx(10.0)


def test_a_run_that_memory_cannot_hold_is_refused_before_it_is_drawn():
    with pytest.raises(ValueError, match="scale the rate down"):
        drawn(Curve.constant(MAX_REQUESTS / 10.0, seconds=11), POISSON)
