"""Whatever is done to a pool: each arrival is finished, rejected, cut, waiting or running, and counted once."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.pools import config, poisson, pool
from tierkeeper.sim.model import Startup, Status

moves = st.lists(
    st.tuples(
        st.sampled_from([0.01, 0.3, 2.0, 7.0]),
        st.integers(0, 5),
        st.integers(1, 10),
        st.sampled_from([8, 64, 512]),
        st.sampled_from([None, 0, 2, 9]),
    ),
    max_size=8,
)


def count_everything(chosen, requests):
    seen, pages = chosen.outcomes(), chosen.pages()
    arrived = int(np.sum(requests.arrival <= chosen.now))
    ended = sum(int(np.sum(seen.status == status)) for status in (Status.FINISHED, Status.REJECTED, Status.CUT))
    present = chosen.held + sum(page.running + page.waiting for page in pages)
    assert ended + present == arrived
    assert int(np.sum(seen.status == Status.UNSERVED)) == present + len(requests) - arrived
    for page in pages:
        assert 0.0 <= page.kv_usage <= 1.0
    counts = chosen.counts()
    assert counts.ready + counts.starting + counts.unschedulable == counts.desired
    assert len(pages) == counts.ready + counts.draining


@settings(max_examples=40)
@given(
    moves=moves,
    seed=st.integers(0, 2**32 - 1),
    kv_tokens=st.sampled_from([200, 100_000]),
    max_queued=st.sampled_from([None, 3]),
    routing=st.sampled_from(["least-loaded", "round-robin", "random"]),
    warm=st.booleans(),
)
def test_arrivals_are_conserved_under_any_moves(moves, seed, kv_tokens, max_queued, routing, warm):
    requests = poisson(seed=seed, count=150, rate=20.0, prompt=40.0, output=40.0)
    settings = config(
        kv_tokens=kv_tokens,
        max_queued_requests=max_queued,
        routing=routing,
        startup=Startup(1.0, sigma=0.5),
        drain_seconds=0.5,
    )
    chosen = pool(requests, settings, replicas=2, warm=warm)
    spent = 0.0
    for seconds, replicas, cap, budget, schedulable in moves:
        chosen.advance(chosen.now + seconds)
        count_everything(chosen, requests)
        chosen.set_replicas(replicas)
        chosen.set_limits(max_num_seqs=cap, max_num_batched_tokens=budget)
        chosen.schedulable = schedulable
        count_everything(chosen, requests)
        assert chosen.gpu_seconds >= spent
        spent = chosen.gpu_seconds
    chosen.schedulable = None
    chosen.set_replicas(1)
    chosen.advance(math.inf)
    count_everything(chosen, requests)
    assert not (chosen.outcomes().status == Status.UNSERVED).any()
    assert math.isfinite(chosen.now)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), first=st.integers(1, 12), later=st.integers(1, 12))
def test_a_lower_cap_cuts_nothing_and_admits_nobody_above_it(seed, first, later):
    requests = poisson(seed=seed, count=100, rate=40.0, prompt=40.0, output=60.0)
    chosen = pool(requests, max_num_seqs=first)
    chosen.advance(1.0)
    before = chosen.pages()[0].running
    chosen.set_limits(max_num_seqs=later)
    assert chosen.pages()[0].running == before
    limit = max(before, later)
    while chosen.pages()[0].finished < len(requests):
        chosen.advance(chosen.now + 0.7)
        running = chosen.pages()[0].running
        assert running <= limit
        limit = max(later, running)
    assert (chosen.outcomes().status == Status.FINISHED).all()
