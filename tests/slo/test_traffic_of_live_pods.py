"""What the pool carries: gauges of live pods only, rates of the whole tier, means of one family each."""

import pytest

from tests.slo.world import Pod, Pool, look, misses
from tierkeeper.slo.model import SignalState
from tierkeeper.slo.signals import SignalKind


def test_m20_only_live_ready_pods_count():
    """Two of four pods were deleted half a minute ago and Prometheus still returns them."""
    pool = Pool(pods={n: Pod(running=10, waiting=3, waiting_floor=1, kv=0.2) for n in "abcd"}).ttft(misses(400, 2))
    pool.pods["d"].kv = 0.9
    seen = look(pool, live=["a", "b"]).traffic
    assert (seen.running, seen.waiting, seen.waiting_floor, seen.kv_cache_usage) == (20.0, 6.0, 2.0, 0.2)
    assert (seen.observed_pods, seen.live_pods) == (2, 2)


def test_m20_when_every_series_belongs_to_pods_that_are_gone_there_is_no_data():
    assert look(Pool().ttft(misses(400, 2)), live=["new-a"]).state is SignalState.NO_DATA


def test_c08_a_pod_that_cannot_be_scraped_is_listed_and_the_rest_goes_on():
    seen = look(Pool().ttft(misses(400, 2)), live=["gold-a", "gold-b", "gold-c"])
    assert seen.state is SignalState.OK
    assert seen.traffic.unobserved == ("gold-c",)
    assert "gold-c" in seen.message


def test_a_pod_that_is_not_seen_may_be_busy_so_the_tier_is_not_called_idle():
    pool = Pool(pods={"a": Pod(running=0)}, requests={60: 0.0, 300: 0.0}).ttft(misses(0, 0))
    assert look(pool).state is SignalState.NO_TRAFFIC
    assert look(pool, live=["a", "b"]).state is SignalState.OK


def test_m18_a_counter_that_stands_at_fifty_is_no_load():
    """Only increases are asked for, so a flat counter comes as zero."""
    pool = Pool(pods={"a": Pod(running=0)}, requests={60: 0.0, 300: 0.0})
    pool.rates[SignalKind.FINISHED] = 0.0
    seen = look(pool.ttft(misses(0, 0)))
    assert (seen.state, seen.traffic.finished_per_second) == (SignalState.NO_TRAFFIC, 0.0)


def test_m17_twice_as_many_first_tokens_as_finished_requests_change_no_ratio():
    """Aborted requests never finish, so the two counters are never divided by each other."""
    pool = Pool().ttft(misses(400, 4))
    pool.rates[SignalKind.FINISHED] = 0.5 * 400 / 300
    half = look(pool)
    pool.rates[SignalKind.FINISHED] = 400 / 300
    assert half.ttft == look(pool).ttft
    assert half.ttft.window(300).ratio.point == pytest.approx(0.01)


def test_m25_at_a_full_batch_the_queue_still_shows_the_load():
    """Running is capped by the slot count, so a target above it is never reached; the queue has no such ceiling."""
    pool = Pool(pods={"a": Pod(running=256, waiting=90, waiting_floor=60)}).ttft(misses(400, 2))
    seen = look(pool).traffic
    assert (seen.running, seen.waiting, seen.waiting_floor) == (256.0, 90.0, 60.0)


def test_means_come_from_the_sum_and_count_of_one_family():
    pool = Pool().ttft(misses(400, 2))
    pool.means = {SignalKind.QUEUE_TIME: (0.8, 4.0), SignalKind.OUTPUT_LENGTH: (800.0, 4.0)}
    seen = look(pool).traffic
    assert (seen.mean_queue_seconds, seen.mean_output_tokens) == (pytest.approx(0.2), pytest.approx(200.0))
    assert seen.mean_prefill_seconds is None


def test_m02_a_mean_over_no_request_is_unknown_and_not_nan():
    pool = Pool().ttft(misses(400, 2))
    pool.means = {SignalKind.PREFILL_TIME: (0.0, 0.0)}
    assert look(pool).traffic.mean_prefill_seconds is None


def test_rates_are_handed_on_per_second():
    pool = Pool().ttft(misses(400, 2))
    pool.rates = {SignalKind.PROMPT_TOKENS: 900.0, SignalKind.GENERATION_TOKENS: 250.0, SignalKind.REJECTED: 0.5}
    pool.rates[SignalKind.PREEMPTIONS] = 0.1
    seen = look(pool).traffic
    assert (seen.prompt_tokens_per_second, seen.generation_tokens_per_second) == (900.0, 250.0)
    assert (seen.rejected_per_second, seen.preemptions_per_second) == (0.5, 0.1)
    assert seen.requests_per_second == pytest.approx(80 / 60)
    assert seen.requests_5m == pytest.approx(400.0)
