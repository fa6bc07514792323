"""Replicas that were given away and are asked for again within the hour: kept through the next pause once the error
budget is spent, given back as ever while there is some."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scaling.story import Story, tier
from tierkeeper.scaling.model import Lever, Reason
from tierkeeper.scaling.returns import LONGEST_SECONDS, MEMORY_SECONDS, Returns, observe
from tierkeeper.tier import Bounds

BUSY, QUIET = 34.0, 4.0
WINDOW = 300.0


def come_back(*, pause: float, budget_left: float | None) -> Story:
    """A load, a pause in which the pool shrinks, the load again before a pool too small for it, and another pause."""
    spec = tier(ttft=1.5, tpot=0.04, seqs=(8, 256), start=56, replicas=(1, 32))
    story = Story(spec, replicas=8)
    story.serves(BUSY).pass_time(900)
    story.serves(QUIET).pass_time(pause)
    assert story.levers.replicas <= 3
    story.serves(BUSY, waiting=400.0).pass_time(120)
    story.pods_become_ready()
    story.serves(BUSY).pass_time(480)
    assert story.levers.replicas >= 5
    story.serves(QUIET)
    story.slos = {sli: dataclasses.replace(slo, budget_left=budget_left) for sli, slo in story.slos.items()}
    return story


def test_with_the_budget_spent_replicas_stay_through_a_pause_as_long_as_the_last_one():
    story = come_back(pause=900, budget_left=-0.5)
    there = story.levers.replicas
    held = story.pass_time(900)
    assert story.levers.replicas >= 5
    assert held.reason is Reason.HOLD_STABILIZING
    assert "came back" in held.message
    assert there - story.levers.replicas <= 1


def test_they_go_once_it_has_stayed_away_half_as_long_again():
    story = come_back(pause=900, budget_left=-0.5)
    story.pass_time(1800)
    assert story.levers.replicas <= 3


def test_while_there_is_budget_they_go_after_the_window_as_ever():
    story = come_back(pause=900, budget_left=0.6)
    story.pass_time(900)
    assert story.levers.replicas <= 3


def test_a_load_that_never_went_away_is_not_held_for():
    story = Story(tier(ttft=1.5, tpot=0.04, seqs=(8, 256), start=56, replicas=(1, 32)), replicas=4)
    story.serves(17.0).pass_time(900)
    story.serves(BUSY, waiting=400.0).pass_time(120)
    story.pods_become_ready()
    story.serves(17.0)
    story.slos = {sli: dataclasses.replace(slo, budget_left=-0.5) for sli, slo in story.slos.items()}
    story.pass_time(600)
    assert story.levers.replicas <= 5


def test_what_is_held_never_grows_a_pool():
    story = come_back(pause=900, budget_left=-0.5)
    story.decisions.clear()
    before = story.levers.replicas
    story.pass_time(2400)
    replicas = [before, *(d.levers.replicas for d in story.decisions if Lever.REPLICAS in d.changed)]
    assert replicas == sorted(replicas, reverse=True)


Look = tuple[float, int, int, bool]
"""Seconds until the next, replicas that are needed and that serve, and whether the queue is too long."""


def watched(*looks: Look, returns: Returns | None = None, now: float = 0.0) -> Returns:
    """One after the other, a look every 15 s."""
    seen, queue_since = returns or Returns(), None
    for seconds, needed, serving, queue in looks:
        end = now + seconds
        while now < end:
            now += 15.0
            queue_since = (now if queue_since is None else queue_since) if queue else None
            queued = 0.0 if queue_since is None else now - queue_since
            seen = observe(
                seen,
                now=now,
                needed=needed,
                serving=serving,
                queued_seconds=queued,
                window_seconds=WINDOW,
            )
    return seen


def held_after(*looks: Look) -> float:
    return watched(*looks).hold_seconds(now=sum(seconds for seconds, *_ in looks))


BUSY_8, AWAY, BACK_TO_2 = (600, 8, 8, False), (1200, 1, 8, False), (60, 8, 2, True)


def test_a_pause_is_as_long_as_fewer_were_needed():
    assert held_after(BUSY_8, AWAY, BACK_TO_2) == pytest.approx(1.5 * 1200, abs=1.5 * 75)


def test_a_pause_ends_where_its_queue_begins_though_what_is_needed_shows_later():
    assert held_after(BUSY_8, AWAY, (240, 3, 2, True), BACK_TO_2) == pytest.approx(1.5 * 1200, abs=1.5 * 75)


@pytest.mark.parametrize(
    ("how", "back"),
    [
        ("a first look that shows too many", [(15, 20, 2, True), (60, 5, 2, True)]),
        ("a replica more at each look", [(15, n, 2, n > 5) for n in range(2, 9)]),
        ("half of it first", [(120, 4, 4, False), (60, 8, 4, True)]),
    ],
)
def test_however_it_rises_it_has_come_back(how, back):
    assert held_after(BUSY_8, AWAY, *back) >= 1500, how


@pytest.mark.parametrize(
    ("why", "looks"),
    [
        ("no queue", [BUSY_8, AWAY, (60, 8, 8, False)]),
        ("shorter than the window", [BUSY_8, (240, 1, 8, False), BACK_TO_2]),
        ("a new level", [(600, 4, 4, False), (1200, 4, 4, False), (60, 8, 4, True)]),
        ("hours ago", [BUSY_8, (1.2 * LONGEST_SECONDS, 1, 8, False), BACK_TO_2]),
        ("the queue came long after the load", [BUSY_8, AWAY, (900, 8, 8, False), (60, 9, 8, True)]),
        ("nothing had been given back", [BUSY_8, AWAY, (60, 9, 8, True)]),
        ("one of those that serve a smaller load is lost", [BUSY_8, (1200, 3, 3, False), (420, 3, 2, True)]),
        ("half of them were taken away", [BUSY_8, (1800, 8, 4, True), (60, 5, 4, True), (120, 8, 4, True)]),
        (
            "too few can serve to show what is needed",
            [BUSY_8, (1800, 4, 3, True), (60, 1, 3, False), (120, 8, 3, True)],
        ),
    ],
)
def test_no_load_came_back(why, looks):
    assert held_after(*looks) == 0.0, why


def test_a_return_is_forgotten_after_a_day():
    assert held_after(BUSY_8, AWAY, BACK_TO_2, (MEMORY_SECONDS + 120, 8, 8, False)) == 0.0


def test_a_long_pause_is_forgotten_after_a_day_though_short_ones_go_on():
    long = watched(BUSY_8, (2340, 1, 8, False), BACK_TO_2)
    now = 3000.0
    assert long.hold_seconds(now=now) == pytest.approx(1.5 * 2340, abs=1.5 * 75)
    for _ in range(3):
        shorter = ((12 * 3600.0, 8, 8, False), (420, 1, 8, False), BACK_TO_2)
        long = watched(*shorter, returns=long, now=now)
        now += sum(seconds for seconds, *_ in shorter)
    assert long.hold_seconds(now=now) == pytest.approx(1.5 * 420, abs=1.5 * 75)


@given(
    st.lists(
        st.tuples(st.sampled_from([60.0, 300.0, 1500.0]), st.integers(1, 30), st.integers(1, 30), st.booleans()),
        max_size=12,
    )
)
def test_nothing_is_held_for_longer_than_an_hour_nor_more_than_ever_served(looks):
    seen, now = watched(*looks), sum(seconds for seconds, *_ in looks)
    assert 0.0 <= seen.hold_seconds(now=now) <= LONGEST_SECONDS
    assert seen.held(now=now) <= max((serving for _, _, serving, _ in looks), default=0)
    assert [peak.at for peak in seen.peaks] == sorted(peak.at for peak in seen.peaks)
    for place, peak in enumerate(seen.peaks):
        assert all(later.needed < peak.needed or later.used < peak.used for later in seen.peaks[place + 1 :])


def test_another_promise_forgets_what_the_old_one_took():
    story = come_back(pause=900, budget_left=-0.5)
    assert story.memory.returns.pauses
    assert story.spec.objective is not None
    story.spec = dataclasses.replace(story.spec, objective=dataclasses.replace(story.spec.objective, ttft_seconds=5.0))
    story.tick()
    assert not story.memory.returns.pauses


def test_a_shortage_is_no_pause():
    """The user lets three replicas serve the load of seven, and thinks better of it half an hour later."""
    story = Story(tier(ttft=1.5, tpot=0.04, seqs=(8, 256), start=56, replicas=(1, 32)), replicas=8)
    story.serves(BUSY).pass_time(900)
    allowed = story.spec.scaling
    story.spec = dataclasses.replace(story.spec, scaling=dataclasses.replace(allowed, replicas=Bounds(1, 3)))
    story.tick()
    waiting = 0.0
    for _ in range(360):
        story.serves(BUSY, waiting=waiting)
        waiting += (BUSY - story.traffic.requests_per_second) * 5.0
        story.tick()
    story.spec = dataclasses.replace(story.spec, scaling=allowed)
    story.serves(BUSY, waiting=waiting).pass_time(90)
    story.levers = dataclasses.replace(story.levers, replicas=min(story.levers.replicas, 12))
    story.pods_become_ready()
    story.serves(BUSY).pass_time(600)
    assert not story.memory.returns.pauses
