"""The conditions under which an overload opens the limits and its end closes them, one tick at a time."""

import dataclasses

import pytest

from tests.scaling.story import START, Story, sized_from, tier
from tests.scaling.test_an_overload_opens_the_limits import CHAT_TIER, HERE
from tierkeeper.scaling.context import Context
from tierkeeper.scaling.demand import Demand
from tierkeeper.scaling.diagnose import Diagnosis, Finding
from tierkeeper.scaling.forecast import Way
from tierkeeper.scaling.guards import guarded
from tierkeeper.scaling.knowledge import Knowledge
from tierkeeper.scaling.measured import Mean, Measured
from tierkeeper.scaling.memory import Memory
from tierkeeper.scaling.model import Levers, PoolState, Reason
from tierkeeper.scaling.overload import overloaded
from tierkeeper.scaling.planned import propose
from tierkeeper.scaling.sizing import Plan
from tierkeeper.slo.model import Traffic

RIGHT, OPEN = Levers(4, 56, 448), Levers(4, 164, 8192)
CALM = Finding(Diagnosis.HEALTHY, "no objective burns and no queue stands")
QUEUE = Finding(Diagnosis.QUEUE_BOUND, "500 requests wait")
MISSES = Finding(Diagnosis.TPOT_BATCH, "TPOT burns", from_windows=True)


def context(
    at: Levers, finding: Finding, *, opened: bool, needs: int = 4, kv: float = 0.5, most: int = 32, **memory
) -> Context:
    """A tick of four replicas whose limits stand at ``at``, where the plan wants ``needs`` and the open limits, or the
    right ones."""
    story = Story(tier(**{**CHAT_TIER, "replicas": (1, most)}), replicas=4)
    story.serves(20.0).burns(tpot=9.0 if finding is MISSES else 0.0)
    story.traffic = dataclasses.replace(story.traffic, kv_cache_usage=kv)
    wanted = Plan(
        grow_to=needs,
        shrink_to=needs,
        lasting=needs,
        need=float(needs),
        settled_need=float(needs),
        levers=OPEN if opened else RIGHT,
        rate=60.0,
        coming=60.0,
        way=Way.NONE,
        strain=1.0,
        allowed=1.0,
        floor=0.0,
        grow_to_as_set=needs,
        opened=opened,
    )
    return Context(
        now=START,
        spec=story.spec,
        assessment=story.assessment(),
        pool=PoolState(at, ready=4),
        memory=Memory(started_at=0.0, **memory),
        finding=finding,
        plan=wanted,
    )


def levers_after(ctx: Context) -> Levers:
    return guarded(propose(ctx), ctx).levers


def sized(*, cap: int = 56, live: bool = True) -> Plan:
    """What is planned for four replicas at ``cap`` where 60 requests/s arrive and 500 wait."""
    story = Story(tier(**CHAT_TIER), replicas=4)
    story.serves(60.0, waiting=500.0)
    known = Knowledge(engine=Measured(slowness=Mean(100.0, 100.0)), demand=Demand(60.0, 0.0, 15))
    return sized_from(story, known, current=Levers(4, cap, 8192), live=live, open_ceiling=256)


@pytest.mark.parametrize(("rate", "opens"), [(27.5, False), (27.7, True)])
def test_more_arrives_than_can_be_served_from_92_percent_of_it_on(rate, opens):
    """Of 30 requests/s; nearer to all of it a queue grows without end as well."""
    waits = Traffic(running=200.0, waiting=500.0, requests_per_second=20.0)
    assert overloaded(HERE, waits, rate=rate, capacity=30.0, opened=False) is opens


@pytest.mark.parametrize("promise", ["ttft_seconds", "tpot_seconds"])
def test_without_both_promises_nothing_is_an_overload(promise):
    here = dataclasses.replace(HERE, objective=dataclasses.replace(HERE.objective, **{promise: None}))
    waits = Traffic(running=200.0, waiting=500.0, requests_per_second=20.0)
    assert not overloaded(here, waits, rate=60.0, capacity=30.0, opened=False)


def test_limits_that_cannot_be_moved_live_do_not_count_as_open():
    assert sized().opened
    assert not sized(live=False).opened


@pytest.mark.parametrize(("cap", "planned"), [(56, 164), (130, 164), (135, 135), (200, 200), (210, 164)])
def test_a_cap_near_the_open_one_is_left_as_it_is(cap, planned):
    """A mix that changes a little from look to look would move it at every one."""
    assert sized(cap=cap).levers.max_num_seqs == planned


@pytest.mark.parametrize(("kv", "cap"), [(0.89, 164), (0.9, 56)])
def test_a_full_kv_cache_is_given_no_more_whatever_was_seen_to_fit(kv, cap):
    assert levers_after(context(RIGHT, QUEUE, opened=True, kv=kv)).max_num_seqs == cap


def test_misses_from_before_the_last_change_do_not_hold_up_an_opening():
    assert levers_after(context(RIGHT, MISSES, opened=True, replicas_at=START - 15)) == OPEN


def test_where_the_spec_allows_no_replica_more_demand_adds_none_beside_smaller_limits():
    ctx = context(OPEN, MISSES, opened=False, needs=8, most=4, replicas_at=START - 15)
    assert levers_after(ctx) == RIGHT


@pytest.mark.parametrize(("seconds", "levers"), [(10, OPEN), (15, RIGHT)])
def test_limits_are_closed_once_gauges_show_what_opening_them_did(seconds, levers):
    at = START - seconds
    assert levers_after(context(OPEN, CALM, opened=False, stands_open=True, live_at=at)) == levers


def test_limits_close_with_the_replicas_that_demand_asks_for():
    ctx = context(OPEN, MISSES, opened=False, needs=6, stands_open=True, live_at=START - 60)
    assert propose(ctx).reason is Reason.TUNE_LIMITS
    assert levers_after(ctx) == dataclasses.replace(RIGHT, replicas=6)


def test_open_limits_that_overflow_the_kv_cache_are_lowered_for_that():
    """So that they are not opened as far again."""
    preempts = Finding(Diagnosis.KV_PRESSURE, "2.0 preemptions/s", from_windows=True)
    ctx = context(OPEN, preempts, opened=False, kv=0.95, stands_open=True, live_at=START - 200)
    assert propose(ctx).reason is Reason.KV_PRESSURE_LOWER_CAP


@pytest.mark.parametrize(("usage", "of_cache"), [(0.97, True), (0.5, False)])
def test_a_lowered_cap_is_marked_with_what_was_to_blame(usage, of_cache):
    story = Story(tier(), replicas=2)
    story.tick()
    story.queue(0, running=30, kv_cache_usage=usage, preemptions_per_second=1.0).burns(tpot=9.0, p99=0.12).tick()
    assert story.memory.cap_mark is not None
    assert story.memory.cap_mark.of_cache is of_cache
