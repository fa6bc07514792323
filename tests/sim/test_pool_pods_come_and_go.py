"""Pods are pending, start, serve, drain and go; GPUs are held from scheduled to gone."""

import math

import numpy as np
import pytest

from tests.sim.pools import arrivals, config, poisson, pool
from tierkeeper.sim.model import PodCounts, Startup, Status

NOBODY_COMES = arrivals()


def test_the_first_replicas_of_a_warm_pool_are_ready_at_once():
    assert pool(NOBODY_COMES, replicas=3).counts() == PodCounts(
        desired=3, ready=3, starting=0, unschedulable=0, draining=0
    )


def test_new_replicas_serve_after_their_start_up():
    chosen = pool(NOBODY_COMES, replicas=1)
    chosen.advance(10.0)
    chosen.set_replicas(3)
    chosen.advance(69.9)
    assert chosen.counts() == PodCounts(desired=3, ready=1, starting=2, unschedulable=0, draining=0)
    chosen.advance(70.0)
    assert chosen.counts().ready == 3
    assert [page.started_at for page in chosen.pages()] == [0.0, 70.0, 70.0]
    assert [page.name for page in chosen.pages()] == ["pod-0", "pod-1", "pod-2"]


def test_ready_pods_tell_of_their_starts_also_of_those_before_the_run():
    chosen = pool(NOBODY_COMES, replicas=2)
    assert chosen.startup_seconds() == 60.0
    assert pool(NOBODY_COMES, warm=False).startup_seconds() is None


def test_a_cold_pool_holds_its_requests_until_a_replica_is_ready():
    chosen = pool(arrivals((1.0, 10, 1), (2.0, 10, 1)), warm=False)
    chosen.advance(59.0)
    assert chosen.held == 2
    assert chosen.pages() == []
    chosen.advance(math.inf)
    seen = chosen.outcomes()
    assert chosen.held == 0
    assert seen.queue_seconds.tolist() == [59.0, 58.0]
    assert seen.status.tolist() == [Status.FINISHED] * 2


def test_pods_beyond_the_gpus_wait_and_start_when_one_is_free():
    chosen = pool(NOBODY_COMES, replicas=2)
    chosen.schedulable = 3
    chosen.set_replicas(5)
    assert chosen.counts() == PodCounts(desired=5, ready=2, starting=1, unschedulable=2, draining=0)
    chosen.advance(30.0)
    chosen.schedulable = 4
    chosen.advance(89.0)
    assert chosen.counts() == PodCounts(desired=5, ready=3, starting=1, unschedulable=1, draining=0)


def test_fewer_gpus_take_none_away():
    chosen = pool(NOBODY_COMES, replicas=3)
    chosen.schedulable = 1
    assert chosen.counts().ready == 3


def test_the_pending_leave_before_the_starting_and_those_before_the_ready():
    chosen = pool(NOBODY_COMES, replicas=1)
    chosen.schedulable = 2
    chosen.set_replicas(3)
    chosen.set_replicas(2)
    assert chosen.counts() == PodCounts(desired=2, ready=1, starting=1, unschedulable=0, draining=0)
    chosen.set_replicas(1)
    assert chosen.counts() == PodCounts(desired=1, ready=1, starting=0, unschedulable=0, draining=0)


def test_the_ready_replica_with_the_least_load_drains_and_takes_nothing_new():
    chosen = pool(arrivals((0.0, 10, 200), (0.0, 10, 200), (0.0, 10, 200), (1.0, 10, 10)), replicas=2)
    chosen.advance(0.5)  # the first pod has two requests, the second one
    chosen.set_replicas(1)
    assert [page.draining for page in chosen.pages()] == [False, True]
    chosen.advance(math.inf)
    seen = chosen.outcomes()
    assert seen.replica.tolist() == [0, 1, 0, 0]
    assert seen.status.tolist() == [Status.FINISHED] * 4
    assert chosen.counts() == PodCounts(desired=1, ready=1, starting=0, unschedulable=0, draining=0)


def test_a_draining_replica_out_of_time_cuts_what_it_has():
    requests = arrivals((0.0, 10, 5000), (0.0, 10, 5000), (0.0, 10, 5000), (0.1, 10, 1))
    chosen = pool(requests, config(drain_seconds=5.0), max_num_seqs=2)
    chosen.advance(1.0)
    chosen.set_replicas(0)
    chosen.advance(20.0)
    seen = chosen.outcomes()
    assert seen.status.tolist() == [Status.CUT] * 4
    assert np.isnan(seen.finish).all()
    assert np.isfinite(seen.ttft).tolist() == [True, True, False, False]
    assert chosen.gpu_seconds == pytest.approx(6.0)


def test_gpus_are_held_from_scheduled_to_gone():
    chosen = pool(arrivals((0.0, 10, 101)), config(gpus_per_replica=4), replicas=2)
    chosen.advance(0.5)
    chosen.set_replicas(1)  # the idle one goes at once
    assert chosen.gpu_seconds == pytest.approx(4 * 2 * 0.5)
    chosen.advance(10.0)
    chosen.set_replicas(3)
    chosen.advance(20.0)  # both still start: they count
    assert chosen.gpu_seconds == pytest.approx(4 * (0.5 + 20.0 + 2 * 10.0))


def test_a_draining_replica_holds_its_gpu_until_its_last_request_ended():
    chosen = pool(arrivals((0.0, 10, 101)), replicas=1)
    chosen.advance(0.5)
    chosen.set_replicas(0)
    chosen.advance(100.0)
    assert chosen.gpu_seconds == pytest.approx(chosen.outcomes().finish[0])


def test_a_gpu_freed_by_a_drain_goes_to_the_pod_that_waits_for_it():
    chosen = pool(arrivals((0.0, 10, 101)), replicas=1)
    chosen.advance(0.5)
    chosen.schedulable = 1
    chosen.set_replicas(0)
    chosen.set_replicas(1)
    assert chosen.counts().unschedulable == 1
    chosen.advance(59.0)
    assert chosen.counts().starting == 1
    chosen.advance(100.0)
    assert [page.started_at for page in chosen.pages()] == [pytest.approx(chosen.outcomes().finish[0] + 60.0)]


def test_start_up_times_spread_around_the_median_within_bounds():
    chosen = pool(NOBODY_COMES, config(startup=Startup(100.0, sigma=0.6)), replicas=0, seed=5)
    chosen.set_replicas(400)
    chosen.advance(1000.0)
    seconds = np.array([page.started_at for page in chosen.pages()])
    assert np.median(seconds) == pytest.approx(100.0, rel=0.1)
    assert seconds.min() == 50.0
    assert seconds.max() == pytest.approx(300.0, rel=0.3)
    assert seconds.max() <= 300.0


def test_one_seed_is_one_run_and_another_seed_another():
    def run(seed):
        requests = poisson(seed=1, count=2000, rate=40.0, prompt=80.0, output=30.0)
        chosen = pool(requests, config(startup=Startup(5.0), routing="random"), replicas=2, seed=seed)
        chosen.advance(10.0)
        chosen.set_replicas(4)
        chosen.advance(math.inf)
        return chosen.outcomes().finish

    np.testing.assert_array_equal(run(1), run(1))
    assert not np.array_equal(run(1), run(2))
