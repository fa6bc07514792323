"""One candidate and its Lease: when it leads, what it does when it cannot renew, and how it hands over."""

import asyncio
import contextlib

import pytest

from tests.fakes.edges import FakeClock
from tests.fakes.lease import FakeLease, LeaseServer, Way
from tierkeeper.control.candidate import Candidate, LeadLostError
from tierkeeper.control.election import Terms
from tierkeeper.obs.health import Health
from tierkeeper.obs.metrics import Metrics
from tierkeeper.ports import Lease

pytestmark = pytest.mark.looptime

TERMS = Terms(duration=15, renew_deadline=10, retry=2)


class LoopClock(FakeClock):
    def monotonic(self):
        return asyncio.get_running_loop().time()


class Pod:
    """A candidate, its way to the server, and what it said when it lost."""

    def __init__(self, server, name="a"):
        self.lost = []
        self.way = Way()
        clock = LoopClock()
        self.health, self.metrics = Health(clock, stale_seconds=60), Metrics()
        self.candidate = Candidate(
            lock=FakeLease(server, lambda: self.way),
            me=name,
            terms=TERMS,
            clock=clock,
            health=self.health,
            metrics=self.metrics,
            lost=self.lost.append,
        )

    @property
    def shown(self):
        return self.metrics.registry.get_sample_value("tierkeeper_leader")


def held(by, version="7"):
    return Lease(holder=by, seconds=15, transitions=3, version=version)


async def test_a_lease_that_was_given_back_is_taken_at_once_and_renewed():
    server = LeaseServer(held(None))
    pod = Pod(server)
    async with pod.candidate.standing():
        await asyncio.sleep(0.1)
        assert pod.candidate.leading.is_set()
        assert pod.candidate.may_write()
        assert (pod.shown, server.lease.holder, server.lease.transitions) == (1, "a", 4)
        await asyncio.sleep(60)
        assert pod.candidate.may_write()
        assert len(server.writes) == pytest.approx(30, abs=2)
        assert {lease.transitions for lease in server.writes} == {4}


async def test_a_standby_is_alive_and_ready_and_may_write_nothing():
    server = LeaseServer(held("other"))
    pod = Pod(server)
    async with pod.candidate.standing():
        await asyncio.sleep(5)
        assert not pod.candidate.may_write()
        assert (pod.health.live, pod.health.ready, pod.shown) == (True, True, 0)
        assert pod.health.report() == "standing by: another replica leads"
    assert server.writes == []


async def test_a_standby_that_has_not_reached_the_lease_is_not_ready():
    pod = Pod(LeaseServer(held("other")))
    pod.way = Way(lost="answer")
    async with pod.candidate.standing():
        await asyncio.sleep(30)
        assert (pod.health.live, pod.health.ready) == (True, False)


async def test_a_lease_that_nobody_renews_is_taken_after_its_duration():
    server = LeaseServer(held("dead"))
    pod = Pod(server)
    async with pod.candidate.standing():
        await asyncio.sleep(14.9)
        assert not pod.candidate.leading.is_set()
        await asyncio.sleep(2.2)
        assert pod.candidate.leading.is_set()


async def test_a_lease_that_is_renewed_is_left_alone_whatever_its_times_say():
    server = LeaseServer(held("other"))
    pod = Pod(server)
    async with pod.candidate.standing():
        for _ in range(20):
            await asyncio.sleep(5)
            server.put(Lease(holder="other", seconds=15, renewed=0.0), server.lease)
        assert not pod.candidate.leading.is_set()


@pytest.mark.parametrize("gone", ["never there", "deleted under its holder"])
async def test_where_no_lease_is_a_candidate_waits_first_for_one_who_may_still_act(gone):
    server = LeaseServer()
    pod = Pod(server)
    if gone != "never there":
        server.lease = held("other")
    async with pod.candidate.standing():
        await asyncio.sleep(3)
        server.lease = None
        await asyncio.sleep(11)
        assert not pod.candidate.leading.is_set()
        await asyncio.sleep(8)
        assert pod.candidate.leading.is_set()


async def test_a_leader_puts_back_a_lease_that_somebody_deleted():
    server = LeaseServer(held(None))
    pod = Pod(server)
    async with pod.candidate.standing():
        await asyncio.sleep(1)
        server.lease = None
        await asyncio.sleep(3)
        assert server.lease.holder == "a"
        assert pod.lost == []


async def test_a_leader_that_cannot_renew_ends_before_another_can_take_over():
    server = LeaseServer(held(None))
    pod = Pod(server)
    began = asyncio.get_running_loop().time()
    async with pod.candidate.standing():
        await asyncio.sleep(1)
        pod.way = Way(lost="request")
        while not pod.lost:
            await asyncio.sleep(0.1)
        assert asyncio.get_running_loop().time() - began == pytest.approx(10, abs=0.3)
        assert str(pod.lost[0]) == "the Lease could not be renewed for 10 s: no answer"
        assert (pod.candidate.may_write(), pod.shown) == (False, 0)


async def test_a_process_that_stood_still_may_not_write_before_it_has_even_noticed():
    server = LeaseServer(held(None))
    pod = Pod(server)
    async with pod.candidate.standing():
        await asyncio.sleep(1)
        pod.candidate.clock = FakeClock(asyncio.get_running_loop().time() + 11)
        assert not pod.candidate.may_write()
        await asyncio.sleep(3)
        assert "this process stood still" in str(pod.lost[0])


async def test_a_leader_that_finds_another_in_its_place_ends_at_once():
    server = LeaseServer(held(None))
    pod = Pod(server)
    async with pod.candidate.standing():
        await asyncio.sleep(1)
        server.lease = held("other", version="99")
        await asyncio.sleep(4.1)
        assert isinstance(pod.lost[0], LeadLostError)
        assert str(pod.lost[0]) == "other holds the Lease"


async def test_one_lost_answer_costs_nothing():
    server = LeaseServer(held(None))
    pod = Pod(server)
    async with pod.candidate.standing():
        await asyncio.sleep(1)
        pod.way = Way(lost="answer")
        await asyncio.sleep(4)
        pod.way = Way()
        await asyncio.sleep(30)
        assert pod.candidate.may_write()
        assert pod.lost == []


async def test_a_leader_that_is_told_to_stop_hands_over_within_one_look():
    server = LeaseServer(held(None))
    first, second = Pod(server, "a"), Pod(server, "b")
    async with contextlib.AsyncExitStack() as later:
        async with first.candidate.standing():
            await asyncio.sleep(1)
            await later.enter_async_context(second.candidate.standing())
            await asyncio.sleep(10)
            assert (first.candidate.may_write(), second.candidate.may_write()) == (True, False)
        assert not first.candidate.may_write()
        await asyncio.sleep(2.1)
        assert second.candidate.may_write()
    assert first.lost == second.lost == []


async def test_a_standby_that_is_told_to_stop_writes_nothing():
    server = LeaseServer(held("other"))
    async with Pod(server).candidate.standing():
        await asyncio.sleep(3)
    assert server.writes == []


async def test_nothing_may_be_written_while_the_lease_is_being_given_back():
    server = LeaseServer(held(None))
    pod = Pod(server)
    asked = []
    put = server.put
    async with pod.candidate.standing():
        await asyncio.sleep(1)
        server.put = lambda lease, over: (asked.append((lease.holder, pod.candidate.may_write())), put(lease, over))[1]
    assert asked == [(None, False)]


async def test_trouble_is_logged_once_and_its_end(caplog):
    caplog.set_level("INFO")
    pod = Pod(LeaseServer(held("other")))
    pod.way = Way(lost="answer")
    async with pod.candidate.standing():
        await asyncio.sleep(60)
        pod.way = Way()
        await asyncio.sleep(10)
    said = [record.getMessage() for record in caplog.records if record.name == "tierkeeper.control.candidate"]
    assert said == ["Lease: no answer; next try in 2 s", "Lease: reached again"]
