"""What the pool carries: believed from the model, moved by misses, told from noise, and never by what was expected."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tierkeeper.scaling.belief import CLIFFS, STEEPNESS, Belief, expected_costs, fresh, learn, strain_for

BUDGET = 0.01


def after(minutes: int, *, strain: float, misses: float, total: float = 600.0, start: Belief | None = None) -> Belief:
    """The belief after so many alike minutes."""
    belief = start or fresh()
    for _ in range(minutes):
        belief = learn(belief, strain=strain, misses=misses, total=total, budget=BUDGET, seconds=60.0)
    return belief


def cliff(belief: Belief) -> float:
    """The strain at which load alone spends the budget exactly."""
    return strain_for(dataclasses.replace(belief, floor=0.0), share=1.0)


def test_a_fresh_belief_stays_on_the_safe_side_of_the_model():
    assert 0.8 < strain_for(fresh(), share=1.0) < 1.0


@given(
    st.lists(st.floats(0.0, 1.0), min_size=len(CLIFFS), max_size=len(CLIFFS)),
    st.floats(0.0001, 0.9),
)
def test_a_strain_costs_what_it_would_at_each_cliff_and_never_more_than_all(by_cliff, budget):
    each = [
        sum(
            likely * min((strain / cliff) ** STEEPNESS, 1 / budget)
            for cliff, likely in zip(CLIFFS, by_cliff, strict=True)
        )
        for strain in CLIFFS
    ]
    assert expected_costs(by_cliff, budget) == pytest.approx(each, rel=1e-9, abs=1e-30)


def test_clean_minutes_at_the_limit_move_the_cliff_away_slowly():
    cliffs = [cliff(after(n, strain=0.9, misses=0)) for n in (0, 5, 15, 60)]
    assert cliffs == sorted(cliffs)
    assert cliffs[1] < 1.1
    assert cliffs[3] < 1.4


def test_two_bad_minutes_undo_an_hour_of_clean_ones():
    proud = after(60, strain=0.9, misses=0)
    humbled = after(2, strain=0.9, misses=60, start=proud)
    assert cliff(humbled) < 0.95 < cliff(proud)


def test_a_clean_minute_without_load_proves_nothing():
    assert cliff(after(60, strain=0.3, misses=0)) == pytest.approx(cliff(fresh()), rel=0.02)


def test_misses_in_an_overload_that_everybody_expects_say_nothing_new():
    assert cliff(after(5, strain=3.0, misses=590)) == pytest.approx(cliff(fresh()), rel=0.05)


def test_one_odd_minute_moves_little():
    settled = after(60, strain=0.9, misses=3)
    assert cliff(after(1, strain=0.9, misses=300, start=settled)) > 0.85 * cliff(settled)


def test_many_requests_in_a_minute_count_no_more_than_a_bunch():
    few, many = after(1, strain=0.9, misses=0, total=600), after(1, strain=0.9, misses=0, total=60_000)
    assert cliff(many) == pytest.approx(cliff(few), rel=0.02)


def test_misses_at_any_load_are_a_floor_and_not_a_reason_for_replicas():
    """4 % miss at 0.9, at half of it and at a quarter: more replicas would not help, and none are asked for."""
    belief = fresh()
    for strain in (0.9, 0.45, 0.25):
        belief = after(40, strain=strain, misses=24, start=belief)
    assert belief.floor > 2.0
    assert strain_for(belief, share=0.5) > 0.4


def test_evidence_is_forgotten_within_the_day():
    proud = after(120, strain=1.0, misses=0)
    later = proud
    for _ in range(24 * 6):
        later = learn(later, strain=0.0, misses=0, total=1, budget=BUDGET, seconds=600.0)
    assert cliff(later) == pytest.approx(cliff(fresh()), rel=0.01)


@settings(max_examples=60)
@given(
    strain=st.floats(0.01, 5.0),
    total=st.floats(0.01, 1e5),
    share=st.floats(0.0, 1.0),
    more=st.floats(0.0, 1.0),
    allowed=st.floats(0.1, 1.0),
)
def test_more_misses_never_allow_more_strain(strain, total, share, more, allowed):
    worse = min(1.0, share + more)
    few = learn(fresh(), strain=strain, misses=share * total, total=total, budget=BUDGET, seconds=60.0)
    many = learn(fresh(), strain=strain, misses=worse * total, total=total, budget=BUDGET, seconds=60.0)
    assert CLIFFS[0] <= cliff(many) <= CLIFFS[-1]
    assert 0.0 < strain_for(few, share=allowed) <= strain_for(few, share=1.0)
    if few.floor == many.floor:
        assert cliff(many) <= cliff(few) * (1 + 1e-9)
