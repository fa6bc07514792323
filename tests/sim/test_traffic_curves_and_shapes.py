"""Rate curves and the shapes laid over them: steps, ramps, bursts, idle nights, noise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierkeeper.sim.traffic import Curve, burst, jitter, night, plateau, ramp, step

CURVES = st.builds(
    lambda widths, values: Curve(
        np.concatenate([[0.0], np.cumsum(widths)]), np.array(values[: len(widths)]), np.array(values[-len(widths) :])
    ),
    st.lists(st.floats(0.5, 100), min_size=1, max_size=6),
    st.lists(st.floats(0, 50), min_size=12, max_size=12),
)
DAY = Curve.constant(10.0, seconds=86_400)


def test_a_jump_takes_the_later_value_and_outside_the_ends_hold():
    curve = Curve.through([(0, 1), (10, 1), (10, 5), (20, 7)])
    assert curve.at([-5, 0, 9.999, 10, 15, 20, 99]) == pytest.approx([1, 1, 1, 5, 6, 7, 7])


def test_the_integral_the_mean_and_the_peak_of_a_curve():
    curve = Curve.through([(0, 0), (10, 4), (10, 1), (20, 1)])
    assert (curve.total, curve.mean, curve.peak) == (30.0, 1.5, 4.0)


def test_a_step_multiplies_from_its_time_on():
    rate = DAY.times(step(4.0, at=3600))
    assert rate.at([0, 3599.9, 3600, 86_000]) == pytest.approx([10, 10, 40, 40])
    assert rate.end == 86_400


def test_a_ramp_rises_in_a_straight_line_and_stays():
    assert DAY.times(ramp(3.0, start=100, end=300)).at([0, 100, 200, 300, 5000]) == pytest.approx([10, 10, 20, 30, 30])


def test_a_burst_passes():
    assert DAY.times(burst(5.0, at=60, seconds=30)).at([59.9, 60, 89.9, 90]) == pytest.approx([10, 50, 50, 10])


def test_an_idle_night_has_no_traffic_and_ends():
    rate = DAY.times(night(start=3600, end=7200, slope_seconds=600))
    assert rate.at([3600, 3900, 4200, 6600, 6900, 7200]) == pytest.approx([10, 5, 0, 0, 5, 10])


def test_a_plateau_goes_up_and_comes_back():
    shape = plateau(4.0, start=0, end=3600, slope_seconds=600)
    assert shape.at([0, 300, 600, 3000, 3600, 9999]) == pytest.approx([1, 2.5, 4, 4, 1, 1])


def test_slopes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="slopes of 600 s do not fit between 0 s and 1000 s"):
        plateau(4.0, start=0, end=1000, slope_seconds=600)


def test_shapes_compose():
    rate = DAY.times(step(2.0, at=100)).times(step(0.5, at=200)).times(3.0)
    assert rate.at([50, 150, 250]) == pytest.approx([30, 60, 30])


def test_noise_changes_minutes_and_not_the_mean():
    rate = DAY.times(jitter(sigma=0.06, seconds=86_400, seed=3))
    minutes = rate.at(np.arange(1440) * 60.0)
    assert rate.mean == pytest.approx(10.0, rel=0.01)
    assert minutes.std() / minutes.mean() == pytest.approx(0.06, rel=0.1)
    assert rate.at(np.arange(1440) * 60.0 + 59.9).tolist() == minutes.tolist()
    assert DAY.times(jitter(sigma=0.06, seconds=86_400, seed=3)).starts.tolist() == rate.starts.tolist()


@given(curve=CURVES, factor=CURVES, at=st.floats(0, 700))
def test_a_product_is_exact_at_every_edge_and_keeps_the_times_of_the_rate(curve, factor, at):
    product = curve.times(factor)
    assert (product.start, product.end) == (curve.start, curve.end)
    edges = product.edges[:-1]
    assert product.at(edges) == pytest.approx(curve.at(edges) * factor.at(edges))
    flat = Curve.constant(3.0, seconds=curve.end)
    when = min(at, curve.end * 0.999)
    assert curve.times(flat).at([when]) == pytest.approx(3.0 * curve.at([when]))


@given(curve=CURVES, share=st.floats(0.01, 0.99))
def test_two_cuts_together_hold_what_the_whole_holds(curve, share):
    middle = curve.end * share
    left, right = curve.cut(0, middle), curve.cut(middle, curve.end)
    assert (left.start, right.start) == (0.0, 0.0)
    assert left.end + right.end == pytest.approx(curve.end)
    assert left.total + right.total == pytest.approx(curve.total)
    assert right.at([right.end / 2]) == pytest.approx(curve.at([middle + right.end / 2]), rel=1e-6, abs=1e-6)


def test_a_curve_is_scaled_to_a_mean():
    assert Curve.through([(0, 0), (10, 4)]).with_mean(12.0).mean == pytest.approx(12.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Curve.constant(1.0, seconds=0), "times must be finite and rise"),
        (lambda: Curve.constant(-1.0, seconds=1), "values must be finite and not negative"),
        (lambda: Curve.constant(float("nan"), seconds=1), "values must be finite and not negative"),
        (lambda: Curve.hold([0, 1], [1], end=2), "one start and one end value"),
        (lambda: Curve.through([(0, 1)]), "points of at least two different times"),
        (lambda: Curve.through([(1, 1), (0, 1)]), "in the order of time"),
        (lambda: DAY.cut(90_000, 99_000), "nothing lies from"),
        (lambda: Curve.constant(0.0, seconds=1).with_mean(1.0), "zero throughout"),
        (lambda: DAY.times(-1.0), "values must be finite and not negative"),
    ],
)
def test_a_curve_that_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
