"""One SLO over its windows: met, burning, the budget left, and the sentence that says so."""

from math import nan

import pytest

from tests.slo.world import Pool, look, misses
from tierkeeper.slo.model import SignalState
from tierkeeper.tier import Objective

MONTH = 30 * 86400


def seen(bad_share, *, total=3000, previous=None, objective=None):
    pool = Pool().ttft(misses(total, bad_share * total), (60, 300, 1800, 21600))
    return look(pool, previous=previous, **({"objective": objective} if objective else {})).ttft


def test_within_budget_is_met_and_does_not_burn():
    slo = seen(0.004)
    assert (slo.state, slo.met, slo.burning) == (SignalState.OK, True, False)
    assert [w.seconds for w in slo.windows] == [60, 300, 1800, 21600]


def test_the_slow_pair_burns_above_one():
    assert seen(0.02).burning
    assert not seen(0.009).burning


def test_more_than_chance_over_budget_is_not_met():
    assert seen(0.02).met is False


def test_a_share_that_chance_explains_leaves_met_as_it_was():
    """One bad request in ten: 10 %, and no evidence of anything."""
    good = look(Pool().ttft(misses(3000, 3)))
    assert look(Pool().ttft(misses(10, 1)), previous=good).ttft.met is True
    assert look(Pool().ttft(misses(10, 1))).ttft.met is None


def test_one_bad_request_in_ten_does_not_burn():
    assert not seen(0.1, total=10).burning


def test_m14_quantiles_in_the_open_bucket_are_at_or_above_and_the_slo_is_missed():
    pool = Pool().ttft({"10.0": 4.0, "40.0": 4.0, "+Inf": 400.0})
    slo = look(pool, objective=Objective(ratio=0.99, ttft_seconds=39.0)).ttft
    assert (slo.p99.seconds, slo.p99.at_or_above) == (40.0, True)
    assert (slo.met, slo.burning) == (False, True)
    assert "at or above 40.00 s" in slo.message


def test_m15_a_target_above_every_bucket_is_said_and_never_met():
    pool = Pool().ttft({"10.0": 400.0, "60.0": 400.0, "+Inf": 400.0})
    found = look(pool, objective=Objective(ratio=0.99, ttft_seconds=120.0))
    assert (found.state, found.reason) == (SignalState.AMBIGUOUS, "TargetUnmeasurable")
    assert found.ttft.met is None
    assert "120.00 s cannot be measured with this engine" in found.ttft.message
    assert "at most 60.00 s" in found.ttft.message


def test_between_edges_the_nearest_edges_are_named():
    pool = Pool().ttft({"1.0": 380.0, "2.5": 398.0, "40.0": 400.0, "+Inf": 400.0})
    slo = look(pool, objective=Objective(ratio=0.99, ttft_seconds=1.5)).ttft
    assert not slo.boundary_aligned
    assert slo.nearest_aligned_seconds == (1.0, 2.5)
    assert "between 0.5% and 5.0%" in slo.message
    assert "1.00 s and 2.50 s" in slo.message


def test_the_message_is_a_plain_sentence_with_the_numbers():
    pool = Pool().ttft({"1.0": 399.23, "2.5": 412.0, "40.0": 412.0, "+Inf": 412.0})
    message = look(pool).ttft.message
    assert message.startswith("TTFT P99 is 1.")
    assert message.endswith("s against 1.00 s; 3.1% of 412 requests in 5 min missed it; burn 3.1x.")


def test_budget_left_comes_from_the_counts_of_the_period():
    pool = Pool().ttft(misses(400, 2)).ttft(misses(1_000_000, 4_000), [MONTH])
    assert look(pool).ttft.budget_left == pytest.approx(0.6)
    assert look(pool).ttft.period_requests == pytest.approx(1_000_000)


def test_m24_a_period_that_cannot_be_read_leaves_the_last_budget_known_and_comes_back_at_once():
    before = look(Pool().ttft(misses(400, 2)).ttft(misses(1_000_000, 4_000), [MONTH]))
    poisoned = look(Pool().ttft(misses(400, 2)).ttft({"1.0": nan, "+Inf": nan}, [MONTH]), previous=before)
    assert poisoned.state is SignalState.OK
    assert poisoned.ttft.budget_left == pytest.approx(0.6)
    after = look(Pool().ttft(misses(400, 2)).ttft(misses(1_000_100, 5_000), [MONTH]), previous=poisoned)
    assert after.ttft.budget_left == pytest.approx(0.5, abs=0.001)


def test_the_budget_is_not_forgotten_in_an_outage():
    before = look(Pool().ttft(misses(400, 2)).ttft(misses(1_000_000, 9_000), [MONTH]))
    down = look(None, live=["a"], previous=before, error=("Timeout", "no answer"))
    assert down.ttft.budget_left == pytest.approx(0.1)
    assert down.ttft.period_requests == pytest.approx(1_000_000)
    assert (down.ttft.met, down.ttft.burning) == (None, False)


def test_the_budget_is_known_while_the_tier_is_idle():
    quiet = Pool(requests={60: 0.0, 300: 0.0}).ttft(misses(0, 0)).ttft(misses(1_000_000, 4_000), [MONTH])
    for pod in quiet.pods.values():
        pod.running = 0
    assert look(quiet).ttft.budget_left == pytest.approx(0.6)


def test_windows_without_requests_are_left_out_rather_than_called_perfect():
    pool = Pool(requests={60: 0.0, 300: 400.0}).ttft(misses(0, 0), [60]).ttft(misses(400, 2), [300])
    assert [w.seconds for w in look(pool).ttft.windows] == [300]
