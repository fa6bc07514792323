"""The whole loop on a model of a pool: a step in load, the levers in order, back within the SLO, and down again."""

from itertools import pairwise

import pytest

from tests.fakes.pool import FakePool
from tests.scaling.story import tier
from tierkeeper.scaling.decide import decide
from tierkeeper.scaling.levers import starting_levers
from tierkeeper.scaling.memory import Memory
from tierkeeper.scaling.model import Decision, Lever, Reason
from tierkeeper.slo.model import Sli

TICK = 5.0


class Run:
    """A pool and the loop around it; keeps each change with its time."""

    def __init__(self, *, seed: int = 7, **spec) -> None:
        self.spec = tier(seqs=(4, 24), start=12, window=60, replicas=(1, 6), **spec)
        self.pool = FakePool(self.spec, starting_levers(self.spec), now=0.0, seed=seed)
        self.memory = Memory.fresh(0.0)
        self.changes: list[tuple[float, Decision]] = []
        self.levers_seen: list[tuple[float, int, int]] = []

    def load(self, seconds: float, *, rate: float) -> None:
        end = self.pool.now + seconds
        while self.pool.now < end:
            self.pool.advance(TICK, rate=rate)
            decision, self.memory = decide(
                now=self.pool.now,
                spec=self.spec,
                assessment=self.pool.assess(),
                pool=self.pool.state(),
                memory=self.memory,
            )
            if decision.changed:
                self.changes.append((self.pool.now, decision))
            self.pool.apply(decision.levers)
            self.levers_seen.append((self.pool.now, decision.levers.replicas, decision.levers.max_num_seqs))

    def reversals(self) -> int:
        """How often the replicas turned round between growing and shrinking."""
        steps = [b[1] - a[1] for a, b in pairwise(self.levers_seen) if a[1] != b[1]]
        return sum((a > 0) != (b > 0) for a, b in pairwise(steps))


@pytest.fixture(scope="module", params=[7, 8, 9])
def day(request) -> Run:
    """One replica of 12 slots carries about 1.7 requests/s: 0.8, then a step to 6, then 0.8 again, then none."""
    run = Run(seed=request.param)
    run.load(300, rate=0.8)
    run.load(600, rate=6.0)
    run.load(600, rate=0.8)
    run.load(500, rate=0.0)
    return run


def test_nothing_moves_while_the_load_fits(day):
    assert [d.message for at, d in day.changes if at <= 300] == []


def test_the_step_is_answered_within_forty_seconds_and_with_the_cap_first(day):
    at, first = next((at, d) for at, d in day.changes)
    assert at <= 340
    assert first.changed == (Lever.MAX_NUM_SEQS,)


def test_replicas_follow(day):
    assert max(replicas for _, replicas, _ in day.levers_seen) >= 2


def test_the_pool_is_back_within_its_objectives_before_the_step_ends(day):
    for sli in Sli:
        series = day.pool.seen[sli]
        values = [v for at, v in zip(series.times, series.values, strict=True) if 600 <= at <= 900]
        assert sum(v <= series.threshold for v in values) / len(values) >= 0.99


def test_it_scales_down_when_the_load_is_gone_and_does_not_swing(day):
    assert day.levers_seen[-1][1] == 1
    assert day.reversals() == 1


def test_it_ends_idle_where_it_started(day):
    assert day.levers_seen[-1][1:] == (1, 12)
    assert {d.reason for _, d in day.changes} >= {Reason.QUEUE_BOUND_RAISE_CAP, Reason.QUEUE_BOUND_ADD_REPLICAS}
