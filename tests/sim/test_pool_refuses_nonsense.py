"""Each wrong value is named, with what would be right."""

import math

import pytest

from tests.sim.pools import arrivals, config, pool
from tierkeeper.sim.model import Requests, Startup


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: arrivals((0.0, 0, 1)), "prompt has 0 tokens"),
        (lambda: arrivals((0.0, 1, 0)), "output has 0 tokens"),
        (lambda: arrivals((2.0, 1, 1), (1.0, 1, 1)), "sort the trace"),
        (lambda: arrivals((math.nan, 1, 1)), "arrival must be finite"),
        (lambda: Requests([0.0], [1, 2], [1]), "differ in length"),
        (lambda: Startup(-1.0), r"startup.median_seconds: -1.0"),
        (lambda: Startup(1.0, sigma=math.nan), r"startup.sigma: nan"),
        (lambda: config(kv_tokens=0), r"pool.kv_tokens: 0"),
        (lambda: config(drain_seconds=-1), r"pool.drain_seconds: -1"),
        (lambda: config(max_queued_requests=0), r"pool.max_queued_requests: 0"),
        (lambda: config(routing="best"), r"pool.routing: 'best'"),
        (lambda: pool(arrivals(), max_num_seqs=0), r"max_num_seqs: 0 must be 1 or more"),
        (lambda: pool(arrivals(), replicas=-1), r"replicas: -1 must be 0 or more"),
        (lambda: pool(arrivals()).set_limits(max_num_batched_tokens=0), r"max_num_batched_tokens: 0"),
        (lambda: pool(arrivals()).advance(-1.0), r"time only runs forward"),
        (lambda: pool(arrivals()).advance(math.nan), r"time only runs forward"),
    ],
)
def test_a_wrong_value_is_named(make, told):
    with pytest.raises(ValueError, match=told):
        make()
