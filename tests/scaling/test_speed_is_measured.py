"""The speed of an engine: told from a gauge and a counter, and moved by the engine alone, by no edge of the load."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scaling.story import CHAT, PROFILE
from tierkeeper.engine.latency import decode_step_seconds
from tierkeeper.scaling.demand import look
from tierkeeper.scaling.measured import MOST_CHANGE, Measured, measure
from tierkeeper.slo.model import Traffic

TICK, PODS = 15.0, 4


class Pool:
    """Pods of a profile's shape and ``slowness``, scraped each TICK. ``batch``: sequences on each of them for a while.

    Tokens are counted as they are written, second by second; a rate is the difference of the scrapes within a minute.
    """

    def __init__(self, slowness: float = 1.0, *, seed: int = 1) -> None:
        self.slowness, self.random, self.now = slowness, random.Random(seed), 0.0
        self.known, self.speeds, self.looks = Measured(), [], ()
        self.counted = [0.0]

    def runs(self, batch: float, seconds: float) -> "Pool":
        for _ in range(round(seconds)):
            running = self._noisy(PODS * batch)
            step = self.slowness * decode_step_seconds(PROFILE, batch=running / PODS, lengths=CHAT)
            self.counted.append(self.counted[-1] + running / step)
            self.now += 1.0
            if self.now % TICK == 0:
                self._looked_at(running)
        return self

    def _noisy(self, mean: float) -> float:
        return max(self.random.gauss(mean, math.sqrt(mean)), 0.0)

    def _looked_at(self, running: float) -> None:
        first = max(len(self.counted) - 1 - 45, 0)
        rate = (self.counted[-1] - self.counted[first]) / 45.0
        traffic = Traffic(running=running, generation_tokens_per_second=rate, observed_pods=PODS)
        self.looks = look(self.looks, now=self.now, traffic=traffic)
        self.known = measure(
            self.known,
            traffic=traffic,
            looks=self.looks,
            lengths=CHAT,
            elapsed=TICK,
            profile=PROFILE,
            token_budget=None,
        )
        if self.known.speed is not None:
            self.speeds.append(self.known.speed)


STRETCHES = st.lists(st.tuples(st.sampled_from([0.05, 1.0, 10.0, 40.0]), st.integers(90, 400)), min_size=2, max_size=8)


@settings(max_examples=60, deadline=None)
@given(stretches=STRETCHES, slowness=st.sampled_from([0.5, 1.0, 2.0]), seed=st.integers(0, 9))
def test_steps_of_the_load_leave_the_speed_within_a_tenth(stretches, slowness, seed):
    """A busy quarter of an hour tells it; then load comes and goes at once, wherever in a scrape its edges lie."""
    pool = Pool(slowness, seed=seed).runs(10.0, 900)
    settled = len(pool.speeds) - 1
    for batch, seconds in stretches:
        pool.runs(batch, seconds)
    assert pool.speeds[settled:] == pytest.approx([slowness] * (len(pool.speeds) - settled), rel=0.1)


@pytest.mark.parametrize(("on", "off"), [(60, 60), (180, 180), (180, 600), (600, 600)])
def test_bursts_from_the_first_minute_on_are_no_speed(on, off):
    pool = Pool()
    for _ in range(5):
        pool.runs(0.05, off).runs(25.0, on)
    assert pool.speeds[-1] == pytest.approx(1.0, rel=0.1)
    assert max(pool.speeds) < 1.3
    assert min(pool.speeds) > 0.7


def test_a_look_with_more_sequences_by_chance_is_no_slow_engine():
    """Less than one sequence runs on all pods together: looks find none, or one or two."""
    many = [Pool(seed=seed).runs(0.2, 3600).speeds[-1] for seed in range(8)]
    assert sum(many) / len(many) == pytest.approx(1.0, abs=0.1)


def test_no_minute_moves_what_is_known_far():
    """Not even one in which gauge and counter do not belong together: nothing is written while all of it runs."""
    pool = Pool().runs(10.0, 900)
    before = pool.speeds[-1]
    pool.slowness = 50.0
    pool.runs(10.0, 60)
    assert pool.speeds[-1] < 1.1 * before
    assert all(late <= MOST_CHANGE * early for early, late in pairwise(pool.speeds))


def test_a_pool_that_knows_little_is_not_thrown_by_one_odd_look():
    """An hour of next to nothing, then eight times the tokens that what runs can have written."""
    pool = Pool().runs(0.05, 3600)
    before = pool.speeds[-1]
    pool.slowness = 0.125
    assert pool.runs(10.0, 15).speeds[-1] > before / MOST_CHANGE


def test_an_engine_that_has_become_slower_shows_it_within_half_an_hour():
    pool = Pool().runs(10.0, 900)
    pool.slowness = 2.0
    assert pool.runs(10.0, 1800).speeds[-1] > 1.8
