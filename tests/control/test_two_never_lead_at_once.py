"""Whatever becomes of clocks, calls and processes, two candidates may never write at once, and in calm one may."""

import asyncio
import contextlib
import logging
import selectors
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.lease import FakeLease, LeaseServer, Way
from tierkeeper.control.candidate import Candidate
from tierkeeper.control.election import Terms
from tierkeeper.obs.health import Health
from tierkeeper.obs.metrics import Metrics
from tierkeeper.ports import Lease

TERMS = Terms(duration=15, renew_deadline=10, retry=2)
TROUBLED_SECONDS = 60.0
"""After that every call is quick, and nobody dies any more."""
STEP_SECONDS = 0.5


class Leap(selectors.DefaultSelector):
    """Nothing comes from outside, so the time to the next timer passes at once; ten times faster than looptime."""

    now = 0.0

    def select(self, timeout=None):
        self.now += timeout or 0.0
        return []


class LeapingLoop(asyncio.SelectorEventLoop):
    def time(self):
        return self._selector.now


@dataclass
class OwnClock:
    """A process's monotonic and wall clock: begun at another time, and running too fast or too slow."""

    offset: float = 0.0
    rate: float = 1.0

    def monotonic(self):
        return self.offset + self.rate * asyncio.get_running_loop().time()

    def wall(self):
        return 1e9 - self.monotonic()  # nonsense, which must not matter


@dataclass(frozen=True)
class Machine:
    """Where one replica runs. ``ways`` are how its calls fare, in turn, while there is trouble."""

    offset: float = 0.0
    rate: float = 1.0
    ways: tuple[Way, ...] = (Way(),)
    starts_at: float = 0.0


METRICS = Metrics()


@dataclass
class Replica:
    """A pod: its process is started again, under another name, when it ends."""

    machine: Machine
    server: LeaseServer
    number: int
    lives: int = 0
    calls: int = 0
    candidate: Candidate | None = None
    term: asyncio.Task | None = None
    died: list[str] = field(default_factory=list)

    async def live(self):
        await asyncio.sleep(self.machine.starts_at)
        while True:
            self.lives += 1
            clock = OwnClock(self.machine.offset, self.machine.rate)
            candidate = self.candidate = Candidate(
                lock=FakeLease(self.server, self.way),
                me=f"pod-{self.number}_{self.lives}",
                terms=TERMS,
                clock=clock,
                health=Health(clock, stale_seconds=60),
                metrics=METRICS,
                lost=lambda error: self.died.append(str(error)),
            )
            self.term = candidate._task = asyncio.create_task(candidate._stand())
            await asyncio.wait([self.term])
            self.candidate = None  # the process is gone
            await asyncio.sleep(1)

    def way(self):
        self.calls += 1
        calm = asyncio.get_running_loop().time() >= TROUBLED_SECONDS
        return Way() if calm else self.machine.ways[self.calls % len(self.machine.ways)]

    @property
    def leads(self):
        return self.candidate is not None and self.candidate.may_write()

    async def terminate(self):
        """SIGTERM: the Lease is given back."""
        if self.candidate is not None and self.term is not None:
            candidate, self.candidate = self.candidate, None
            await candidate.give_back()

    def crash(self):
        """SIGKILL: what it has sent may still arrive."""
        if self.term is not None:
            self.candidate = None
            self.term.cancel()


ways = st.builds(
    Way,
    there=st.sampled_from([0.0, 0.01, 1.0, 4.9, 9.0, 16.0]),
    back=st.sampled_from([0.0, 0.01, 1.0, 4.9]),
    lost=st.sampled_from(["", "", "", "request", "answer"]),
)
machines = st.builds(
    Machine,
    offset=st.sampled_from([0.0, -1e6, 1e6]),
    rate=st.floats(0.9, 1.1),
    ways=st.lists(ways, min_size=1, max_size=8).map(tuple),
    starts_at=st.floats(0, 20),
)
deaths = st.tuples(st.floats(0, TROUBLED_SECONDS), st.sampled_from(["crash", "terminate"]), st.integers(0, 2))
given_back = Lease(seconds=TERMS.duration, version="0")
beginnings = st.one_of(
    st.tuples(st.none(), st.lists(deaths, max_size=6)),
    # Somebody deletes the Lease, once: a request to make one that is still under way from before is beyond any help.
    st.tuples(
        st.just(given_back),
        st.tuples(st.lists(deaths, max_size=6), st.floats(0, TROUBLED_SECONDS)).map(
            lambda both: [*both[0], (both[1], "delete", 0)]
        ),
    ),
)


async def story(chosen, lease, happenings):
    """Play it; returns who led in each step."""
    server, loop = LeaseServer(lease), asyncio.get_running_loop()
    replicas = [Replica(machine, server, number) for number, machine in enumerate(chosen)]
    lives = [asyncio.create_task(replica.live()) for replica in replicas]
    deeds = []

    async def happen(at, kind, who):
        await asyncio.sleep(at)
        replica = replicas[who % len(replicas)]
        if kind == "delete":
            server.lease = None
        elif kind == "crash":
            replica.crash()
        else:
            await replica.terminate()

    deeds = [asyncio.create_task(happen(*each)) for each in happenings]
    led = []
    while loop.time() < TROUBLED_SECONDS + 3 * TERMS.duration:
        led.append([replica.candidate.me for replica in replicas if replica.leads])
        await asyncio.sleep(STEP_SECONDS)
    for task in (*lives, *deeds, *(r.term for r in replicas if r.term), *server._under_way):
        task.cancel()
    await asyncio.gather(*lives, *deeds, return_exceptions=True)
    return led


@contextlib.contextmanager
def silence():
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def play(chosen, lease=None, happenings=()):
    loop = LeapingLoop(Leap())
    try:
        with silence():
            return loop.run_until_complete(story(chosen, lease, happenings))
    finally:
        loop.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(machines, min_size=2, max_size=3), beginnings)
def test_two_never_lead_at_once_and_one_does_when_the_trouble_is_over(chosen, beginning):
    led = play(chosen, *beginning)
    assert [at for at in led if len(at) > 1] == []
    assert len(led[-1]) == 1


def in_turn(led):
    """Who led, each once a term."""
    names = [who for at in led for who in at]
    return [who for number, who in enumerate(names) if number == 0 or who != names[number - 1]]


@pytest.mark.parametrize("rates", [(0.9, 1.1), (1.1, 0.9)])
def test_uneven_clocks_late_answers_and_an_api_that_goes_away_make_no_second_leader(rates):
    away = Machine(rate=rates[0], ways=(*[Way()] * 12, *[Way(back=4.8)] * 3, *[Way(lost="request")] * 100))
    led = play([away, Machine(rate=rates[1], starts_at=9)])
    assert max(len(at) for at in led) == 1
    assert in_turn(led) == ["pod-0_1", "pod-1_1"]


def test_these_tests_would_see_a_candidate_that_believes_the_clock_of_another(monkeypatch):
    """The usual fault: the standby compares the Lease's renewal with its own wall clock."""
    from tierkeeper.control import candidate, election

    def by_wall_clock(view, *, me, terms, now):
        step = election.next_step(view, me=me, terms=terms, now=now)
        stale = view.lease is not None and view.lease.renewed is not None and view.until is None
        return election.Step.CLAIM if stale and OwnClock().wall() - view.lease.renewed > terms.duration else step

    monkeypatch.setattr(candidate, "next_step", by_wall_clock)
    led = play([Machine(offset=1e6), Machine(starts_at=5)])
    assert any(len(at) > 1 for at in led)
