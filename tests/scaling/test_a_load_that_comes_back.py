"""Replicas that were given away and are asked for again within the hour: kept through the next pause once the error
budget is spent, given back as ever while there is some."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scaling.story import Story, tier
from tierkeeper.scaling.model import Lever, Reason
from tierkeeper.scaling.returns import LONGEST_SECONDS, MEMORY_SECONDS, Returns, observe

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


def watched(*needs: tuple[float, int, int, bool]) -> Returns:
    """(seconds until then, needed, serving, a queue stands) one after the other, a look every 15 s."""
    returns, now = Returns(), 0.0
    for seconds, needed, serving, queue in needs:
        end = now + seconds
        while now < end:
            now += 15.0
            returns = observe(
                returns, now=now, needed=needed, serving=serving, queue_stands=queue, window_seconds=WINDOW
            )
    return returns


def test_a_pause_is_as_long_as_fewer_were_needed():
    seen = watched((600, 8, 8, False), (1200, 1, 8, False), (60, 8, 2, True))
    assert seen.pause_seconds == pytest.approx(1200, abs=75)
    assert seen.hold_seconds() == pytest.approx(1.5 * seen.pause_seconds)


@pytest.mark.parametrize(
    ("why", "needs"),
    [
        ("no queue", [(600, 8, 8, False), (1200, 1, 8, False), (60, 8, 8, False)]),
        ("shorter than the window", [(600, 8, 8, False), (240, 1, 8, False), (60, 8, 2, True)]),
        ("a new level", [(600, 4, 4, False), (1200, 1, 4, False), (60, 8, 2, True)]),
        ("never were so many", [(600, 8, 4, True), (1200, 1, 4, False), (60, 8, 2, True)]),
        ("hours ago", [(600, 8, 8, False), (1.2 * LONGEST_SECONDS, 1, 8, False), (60, 8, 2, True)]),
        (
            "the queue came long after the load",
            [(600, 8, 8, False), (1200, 1, 8, False), (900, 8, 8, False), (60, 9, 8, True)],
        ),
    ],
)
def test_no_load_came_back(why, needs):
    assert watched(*needs).hold_seconds() == 0.0, why


def test_a_return_is_forgotten_after_a_day():
    seen = watched((600, 8, 8, False), (1200, 1, 8, False), (60, 8, 2, True), (MEMORY_SECONDS + 120, 8, 8, False))
    assert seen.hold_seconds() == 0.0


@given(
    st.lists(
        st.tuples(st.sampled_from([60.0, 300.0, 1500.0]), st.integers(1, 30), st.integers(1, 30), st.booleans()),
        max_size=12,
    )
)
def test_nothing_is_held_for_longer_than_an_hour_nor_more_than_ever_served(needs):
    seen = watched(*needs)
    assert 0.0 <= seen.hold_seconds() <= LONGEST_SECONDS
    now = sum(seconds for seconds, *_ in needs)
    assert seen.held(now=now) <= max((serving for _, _, serving, _ in needs), default=0)
    assert list(seen.peaks) == sorted(seen.peaks, key=lambda peak: -peak.replicas)
    assert len({peak.replicas for peak in seen.peaks}) == len(seen.peaks)
