"""No data, no traffic, a dead source and nonsense are four different things, and only one of them is quiet."""

from math import inf, nan

import pytest

from tests.slo.world import P99_TTFT_1S, REQUEST_TPOT, SCRAPE, TTFT, Pod, Pool, look, misses
from tierkeeper.slo.model import SignalState, Sli
from tierkeeper.slo.signals import Signal, SignalKind
from tierkeeper.tier import Objective

QUIET = {60: 0.0, 300: 0.0}
BOTH = Objective(ratio=0.99, ttft_seconds=1.0, tpot_seconds=0.1)


def idle_pool():
    pods = {"gold-a": Pod(running=0, kv=0.0), "gold-b": Pod(running=0, kv=0.0)}
    return Pool(pods=pods, requests=QUIET)


def busy_pool():
    return Pool().ttft(misses(400, 2))


def test_m05_ready_pods_without_any_series_are_no_data_and_never_zero():
    seen = look(None, live=["a", "b", "c", "d"])
    assert (seen.state, seen.reason) == (SignalState.NO_DATA, "NoSeries")
    assert not seen.state.known
    assert seen.ttft.met is None


def test_m11_series_that_do_not_match_are_said_and_never_called_met():
    """The series are found by the pods' tier label; where none matches, the message says what to check."""
    seen = look(None, live=["a"])
    assert seen.ttft.met is None
    assert "PodMonitor" in seen.message
    assert "tier, namespace and pod labels" in seen.message


def test_m06_a_new_tier_waits_for_samples_while_no_pod_is_ready():
    """A model may load for ten minutes; nothing is wrong in all that time."""
    previous = None
    for tick in range(40):
        previous = look(None, live=[], ready_since=None, now=10_000.0 + 15 * tick, previous=previous)
        assert (previous.state, previous.reason) == (SignalState.NO_DATA, "WaitingForSamples")


@pytest.mark.parametrize(("age", "reason"), [(0, "WaitingForSamples"), (60, "WaitingForSamples"), (61, "NoSeries")])
def test_m06_the_first_four_scrapes_after_readiness_may_be_empty(age, reason):
    assert look(None, live=["a"], now=10_000.0, ready_since=10_000.0 - age).reason == reason
    assert 4 * SCRAPE == 60


def test_m06_a_quiet_tier_has_series_at_zero_and_is_known():
    seen = look(idle_pool().ttft(misses(0, 0)))
    assert (seen.state, seen.reason) == (SignalState.NO_TRAFFIC, "NoTraffic")
    assert seen.state.known


def test_m01_nan_buckets_with_requests_running_are_ambiguous():
    previous = None
    for tick in range(5):
        previous = look(Pool().ttft({"1.0": nan, "+Inf": nan}), now=10_000.0 + 15 * tick, previous=previous)
        assert (previous.state, previous.reason) == (SignalState.AMBIGUOUS, "NotANumber")
        assert previous.ttft.met is None
        assert previous.clean_since is None


def test_m02_idle_is_told_from_no_data_by_the_count_and_queue_series():
    seen = look(idle_pool().ttft({"1.0": nan, "+Inf": nan}))
    assert (seen.state, seen.reason) == (SignalState.NO_TRAFFIC, "NoTraffic")
    assert not seen.ttft.burning
    assert seen.clean_since is not None


@pytest.mark.parametrize("waiting", [1.0, 50.0])
def test_a_stuck_queue_without_first_tokens_is_traffic(waiting):
    """TTFT has survivors' bias: nobody gets a first token, so nobody misses; the queue shows it."""
    pool = Pool(pods={"a": Pod(running=0, waiting=waiting, waiting_floor=waiting)}, requests=QUIET).ttft(misses(0, 0))
    seen = look(pool)
    assert seen.state is SignalState.OK
    assert seen.ttft.state is SignalState.NO_TRAFFIC
    assert seen.ttft.met is None
    assert seen.traffic.waiting_floor == waiting


@pytest.mark.parametrize(("value", "shown"), [(inf, "+Inf"), (-inf, "-Inf")])
def test_m03_an_infinite_value_holds_and_is_named(value, shown):
    for pool in (Pool().ttft({"1.0": value, "+Inf": 400.0}), Pool(pods={"a": Pod(waiting=value)}).ttft(misses(400, 2))):
        seen = look(pool)
        assert (seen.state, seen.reason) == (SignalState.AMBIGUOUS, "NotFinite")
        assert shown in seen.message


def test_a_negative_gauge_is_refused():
    seen = look(Pool(pods={"gold-a": Pod(running=-1)}).ttft(misses(400, 2)))
    assert (seen.state, seen.reason) == (SignalState.AMBIGUOUS, "NegativeValue")
    assert "gold-a" in seen.message


def test_a_nan_rate_is_refused():
    pool = busy_pool()
    pool.rates[SignalKind.PREEMPTIONS] = nan
    seen = look(pool)
    assert (seen.state, seen.reason) == (SignalState.AMBIGUOUS, "NotANumber")
    assert "preemptions[60s]" in seen.message


def test_a_figure_of_a_pod_that_is_gone_cannot_spoil_anything():
    pool = busy_pool()
    pool.pods["gone"] = Pod(running=nan)
    assert look(pool, live=["gold-a", "gold-b"]).state is SignalState.OK


def test_t11_a_snapshot_that_failed_in_part_is_not_looked_at():
    seen = look(busy_pool(), error=("AuthFailed", "http://prometheus:9090: HTTP 401"))
    assert (seen.state, seen.reason) == (SignalState.SOURCE_DOWN, "AuthFailed")
    assert seen.ttft.windows == ()
    assert seen.traffic.running == 0.0


def test_o05_each_cause_has_its_own_reason():
    reasons = [
        look(None, live=["a"]).reason,
        look(Pool().ttft({"1.0": nan, "+Inf": nan})).reason,
        look(None, live=["a"], error=("Timeout", "no answer within 5 s")).reason,
        look(None, live=["a"], error=("AuthFailed", "HTTP 401")).reason,
    ]
    assert reasons == ["NoSeries", "NotANumber", "Timeout", "AuthFailed"]


def test_t01_after_an_outage_the_clean_time_starts_anew():
    """503 for ten minutes, an empty database, then small values."""
    before = look(busy_pool(), now=1_000.0)
    before = look(busy_pool(), now=1_015.0, previous=before)
    assert before.clean_since == 1_000.0
    down = before
    for tick in range(40):
        down = look(None, live=["a"], now=1_030.0 + 15 * tick, previous=down, error=("ServerError", "HTTP 503"))
        assert down.clean_since is None
    empty = look(None, live=["a"], now=1_630.0, previous=down)
    assert (empty.state, empty.clean_since) == (SignalState.NO_DATA, None)
    back = look(Pool(requests={60: 1.0, 300: 1.0}).ttft(misses(1, 0)), now=1_645.0, previous=empty)
    assert (back.state, back.clean_since) == (SignalState.OK, 1_645.0)
    assert look(busy_pool(), now=1_945.0, previous=back).clean_since == 1_645.0


def test_t03_a_failing_query_gives_the_same_hold_at_each_tick():
    error = ("BadQuery", "HTTP 400 bad_data: parse error")
    seen = [look(None, live=["a"], now=1_000.0 + 15 * tick, error=error) for tick in range(120)]
    assert {(s.state, s.reason, s.message) for s in seen} == {(SignalState.SOURCE_DOWN, *error)}


def test_c19_with_no_pod_ready_the_series_that_are_left_move_nothing():
    seen = look(Pool(pods={"a": Pod(waiting=80)}).ttft(misses(400, 300)), live=[])
    assert not seen.state.known


def test_m09_if_no_histogram_is_there_the_names_tried_are_listed():
    seen = look(busy_pool(), objective=BOTH)
    assert (seen.state, seen.reason) == (SignalState.NO_DATA, "NoSeries")
    for name in ("request_time_per_output_token", "inter_token_latency", "vllm:time_per_output_token"):
        assert name in seen.tpot.message
    assert seen.ttft.state is SignalState.OK


def test_the_second_sample_of_a_new_pool_is_waited_for():
    seen = look(Pool(pods={"a": Pod()}), ready_since=9_980.0)
    assert (seen.state, seen.reason) == (SignalState.NO_DATA, "WaitingForSamples")


def test_without_the_count_series_nothing_is_known():
    assert look(Pool(requests={})).reason == "NoSeries"


def test_the_worst_of_the_promised_slos_is_the_state_of_the_tier():
    seen = look(busy_pool().tpot({"0.1": nan, "+Inf": nan}), objective=BOTH)
    assert (seen.ttft.state, seen.tpot.state) == (SignalState.OK, SignalState.AMBIGUOUS)
    assert (seen.state, seen.reason) == (SignalState.AMBIGUOUS, "NotANumber")


def test_a_histogram_that_nobody_promised_does_not_matter():
    assert look(busy_pool().tpot({"0.1": nan, "+Inf": nan})).state is SignalState.OK


def test_a_tier_that_promises_nothing_is_still_observed():
    seen = look(busy_pool(), objective=None)
    assert (seen.state, dict(seen.slos)) == (SignalState.OK, {})
    assert seen.traffic.requests_5m == pytest.approx(400.0)


def test_a_slow_window_that_is_broken_does_not_stop_the_fast_ones():
    seen = look(busy_pool().ttft({"1.0": nan, "+Inf": nan}, [21600]))
    assert seen.state is SignalState.OK
    assert [w.seconds for w in seen.ttft.windows] == [60, 300]


def test_only_the_signals_that_every_release_has_are_required():
    pool = Pool(pods={"a": Pod(kv=None)}).ttft(misses(400, 2))
    optional = {s for s in pool.answers() if s.kind in (SignalKind.REJECTED, SignalKind.KV_CACHE_USAGE)}
    assert optional == set()
    seen = look(pool)
    assert (seen.state, seen.traffic.kv_cache_usage, seen.traffic.rejected_per_second) == (SignalState.OK, None, 0.0)
    assert Signal(SignalKind.REQUESTS, 60) in pool.answers()


def test_the_objective_names_the_slos():
    assert set(look(busy_pool().tpot({"0.1": 400.0, "+Inf": 400.0}), objective=BOTH).slos) == {Sli.TTFT, Sli.TPOT}
    assert set(look(busy_pool(), objective=P99_TTFT_1S).slos) == {Sli.TTFT}
    assert look(busy_pool()).ttft.metric == TTFT
    assert look(Pool().ttft(misses(9, 0)).tpot({"0.1": 9.0, "+Inf": 9.0}), objective=BOTH).tpot.metric == REQUEST_TPOT
