"""Runs of like steps are skipped over, and a slow simulator that skips nothing tells the same of every request."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.pools import config, poisson, pool
from tests.sim.stepwise import serve
from tierkeeper.sim.model import Status


def _itl_buckets(pool):
    return sum(page.itl_buckets for page in pool.pages()).tolist()


pools = st.fixed_dictionaries(
    {
        "kv_tokens": st.sampled_from([150, 400, 900, 100_000]),
        "routing": st.sampled_from(["least-loaded", "round-robin"]),
        "max_queued_requests": st.sampled_from([None, 1, 5]),
        "mocker_rules": st.booleans(),
        "tpot_thresholds": st.sampled_from([(), (0.0123,)]),
    }
)
traffic = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "count": st.integers(1, 60),
        "rate": st.sampled_from([2.0, 10.0, 40.0, 1000.0]),
        "prompt": st.sampled_from([2.0, 40.0, 300.0]),
        "output": st.sampled_from([1.0, 20.0, 80.0]),
    }
)
levers = st.tuples(st.integers(1, 12), st.sampled_from([1, 7, 64, 512]))


@settings(max_examples=50)
@given(shape=pools, traffic=traffic, replicas=st.integers(1, 3), first=levers, later=levers)
def test_every_request_has_the_fate_that_stepping_gives_it(shape, traffic, replicas, first, later):
    requests, chosen = poisson(**traffic), config(**shape)
    change_at = float(requests.arrival[-1]) / 3 + 0.001
    sequences, _ = serve(chosen, requests, replicas=replicas, limits=[(0.0, *first), (change_at, *later)])

    ours = pool(requests, chosen, replicas=replicas, max_num_seqs=first[0], max_num_batched_tokens=first[1])
    ours.advance(change_at)
    ours.set_limits(max_num_seqs=later[0], max_num_batched_tokens=later[1])
    ours.advance(math.inf)

    seen = ours.outcomes()
    expected = [Status.REJECTED if s.rejected else Status.FINISHED for s in sequences]
    assert seen.status.tolist() == expected
    assert seen.replica.tolist() == [s.replica for s in sequences]
    assert seen.preemptions.tolist() == [s.preemptions for s in sequences]
    served = [s for s in sequences if not s.rejected]
    of_served = seen.status == Status.FINISHED
    assert seen.queue_seconds[of_served] == pytest.approx([s.admitted - s.arrival for s in served], abs=1e-9)
    assert seen.ttft[of_served] == pytest.approx([s.tokens[0] - s.arrival for s in served], abs=1e-9)
    assert seen.finish[of_served] == pytest.approx([s.tokens[-1] for s in served], abs=1e-9)
    gaps = np.concatenate([np.zeros(0), *(np.diff(s.tokens) for s in served)])
    assert _itl_buckets(ours) == [np.sum(gaps <= edge + 1e-9) for edge in (*chosen.tpot_edges, math.inf)]
    assert sum(page.itl_sum for page in ours.pages()) == pytest.approx(gaps.sum(), abs=1e-9)
    assert sum(page.generation_tokens for page in ours.pages()) == sum(s.output for s in served)


@settings(max_examples=20)
@given(
    shape=pools,
    traffic=traffic,
    replicas=st.integers(1, 3),
    first=levers,
    looks=st.lists(st.floats(0, 20), max_size=8),
)
def test_looking_at_a_pool_changes_nothing_to_the_last_bit(shape, traffic, replicas, first, looks):
    requests, chosen = poisson(**traffic), config(**shape)
    start = {"replicas": replicas, "max_num_seqs": first[0], "max_num_batched_tokens": first[1]}
    unseen, seen = pool(requests, chosen, **start), pool(requests, chosen, **start)
    unseen.advance(math.inf)
    for moment in sorted(looks):
        seen.advance(moment)
        seen.pages()
    seen.advance(math.inf)
    for name in ("ttft", "tpot", "finish", "queue_seconds", "replica", "status", "preemptions"):
        np.testing.assert_array_equal(getattr(seen.outcomes(), name), getattr(unseen.outcomes(), name))


def test_never_more_than_the_cap_run_in_a_step():
    requests = poisson(seed=3, count=200, rate=50.0, prompt=100.0, output=30.0)
    _, replicas = serve(config(), requests, replicas=2, limits=[(0.0, 4, 256)])
    ours = pool(requests, replicas=2, max_num_seqs=4, max_num_batched_tokens=256)
    most = 0
    for moment in np.arange(0.0, 30.0, 0.02):
        ours.advance(moment)
        most = max(most, *(page.running for page in ours.pages()))
    assert most == 4 == max(replica.most_running for replica in replicas)
