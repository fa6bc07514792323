"""The figures of a run, each on a run small enough to count by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.sim.worlds import GOLD, sim_tier, tier_spec, traffic
from tierkeeper.engine.latency import LLAMA_8B_2XA100
from tierkeeper.scaling.model import Levers
from tierkeeper.sim.loop import simulate
from tierkeeper.sim.model import Outcome, Requests, Status
from tierkeeper.sim.policy import Ours, Static
from tierkeeper.sim.record import Entry, Run, Series, TierRun
from tierkeeper.sim.score import good_requests, inversion_seconds, little_residual, reaction, reversals, score
from tierkeeper.tier import TierKey

NAN = float("nan")


def tier_run(
    *,
    arrival: list[float],
    ttft: list[float],
    tpot: list[float] | None = None,
    status: list[Status] | None = None,
    decisions: tuple[Entry, ...] = (),
    gpu_seconds: float = 3600.0,
) -> TierRun:
    count = len(arrival)
    zeros = np.zeros(count, dtype=np.int32)
    first = np.array(ttft)
    return TierRun(
        spec=tier_spec(),
        requests=Requests(np.array(arrival), zeros + 1, zeros + 10),
        outcome=Outcome(
            replica=zeros,
            queue_seconds=first,
            ttft=first,
            tpot=np.array(tpot or [0.01] * count),
            finish=np.array(arrival) + first + 0.1,
            status=np.array(status or [Status.FINISHED] * count, dtype=np.int8),
            preemptions=zeros,
        ),
        series=series(1),
        decisions=decisions,
        profile=LLAMA_8B_2XA100,
        startup_seconds=120.0,
        gpu_seconds=gpu_seconds,
    )


def series(ticks: int, **figures: list[float]) -> Series:
    names = [f.name for f in dataclasses.fields(Series)]
    return Series(**{name: np.array(figures.get(name, [0.0] * ticks), dtype=float) for name in names})


def run_of(*tiers: TierRun, seconds: float = 86400.0) -> Run:
    return Run("script", seconds, 15.0, None, {t.spec.key: t for t in tiers})


def entry(at: float, before: Levers, after: Levers) -> Entry:
    return Entry(at=at, before=before, after=after, reason="Because", message="because")


def test_late_slow_rejected_cut_and_unserved_requests_are_all_bad() -> None:
    tier = tier_run(
        arrival=[0, 1, 2, 3, 4, 5, 6],
        ttft=[1.5, 1.6, 0.1, 0.1, NAN, 0.1, NAN],
        tpot=[0.04, 0.01, 0.05, NAN, NAN, NAN, NAN],
        status=[Status.FINISHED] * 4 + [Status.REJECTED, Status.CUT, Status.UNSERVED],
    )
    assert good_requests(tier.outcome, tier.spec.objective).tolist() == [True, False, False, True, False, False, False]
    found = score(run_of(tier), tier)
    assert found.attainment == pytest.approx(2 / 7)
    assert found.budget_use == pytest.approx(500 / 7)
    assert (found.rejected, found.cut, found.unserved) == (1, 1, 1)


def test_gpu_hours_and_what_they_bought() -> None:
    tier = tier_run(arrival=[0, 1, 2, 3], ttft=[0.1, 0.1, 0.1, 9.0], gpu_seconds=7200.0)
    found = score(run_of(tier), tier)
    assert (found.gpu_hours, found.good_per_gpu_hour) == (2.0, 1.5)


def test_the_worst_hour_is_found() -> None:
    """One request a minute for a day; ten in a row miss."""
    arrival = [60.0 * n for n in range(1440)]
    ttft = [9.0 if 600 <= n < 610 else 0.1 for n in range(1440)]
    tier = tier_run(arrival=arrival, ttft=ttft)
    assert score(run_of(tier), tier).worst_hour_burn == pytest.approx(10 / 60 / 0.01)


def test_a_move_back_within_two_start_ups_is_a_reversal() -> None:
    moves = [(0.0, 2), (100.0, 1), (300.0, -1), (600.0, 1), (660.0, -1)]
    assert reversals(moves, within=240.0) == 2


def test_changes_are_counted_by_lever() -> None:
    one, two, capped = Levers(1, 24), Levers(2, 24), Levers(1, 16)
    decisions = (entry(100, one, two), entry(200, two, one), entry(5000, one, one), entry(9000, one, capped))
    tier = tier_run(arrival=[0], ttft=[0.1], decisions=decisions)
    found = score(run_of(tier, seconds=43200.0), tier)
    assert (found.replica_changes, found.live_changes, found.reversals_per_day) == (2, 1, 2.0)


def test_the_reaction_to_a_step_is_timed() -> None:
    """Ten requests a second; from 1,000 s on all miss until 1,090 s. In [1,087, 1,387) 30 of 3,000 are bad."""
    arrival = [n / 10 for n in range(30_000)]
    ttft = [9.0 if 1000 <= at < 1090 else 0.1 for at in arrival]
    decisions = (entry(400, Levers(1, 24), Levers(2, 24)), entry(1035, Levers(2, 24), Levers(3, 24)))
    tier = tier_run(arrival=arrival, ttft=ttft, decisions=decisions)
    found = reaction(tier, at=1000.0, until=3000.0)
    assert found.first_action == 35.0
    assert found.recovered == 90.0


def test_who_never_missed_has_recovered_at_once_and_who_never_comes_back_has_not() -> None:
    arrival = [n / 10 for n in range(10_000)]
    calm = tier_run(arrival=arrival, ttft=[0.1] * 10_000)
    lost = tier_run(arrival=arrival, ttft=[9.0 if at > 500 else 0.1 for at in arrival])
    assert reaction(calm, at=300.0, until=1000.0).recovered == 0.0
    assert reaction(calm, at=300.0, until=1000.0).first_action is None
    assert reaction(lost, at=500.0, until=1000.0).recovered is None


def test_littles_law_holds_for_whole_runs() -> None:
    for policy in (Static(), Ours()):
        tier = simulate([sim_tier(tier_spec(), traffic((900, 7)))], policy).tiers[GOLD]
        assert little_residual(tier) < 0.05


def test_a_tier_that_grows_while_a_higher_one_burns_is_found() -> None:
    def tier(name: str, priority: int, **figures: list[float]) -> TierRun:
        made = tier_run(arrival=[0], ttft=[0.1])
        return dataclasses.replace(made, spec=tier_spec(name, priority=priority), series=series(4, **figures))

    high = tier("high", 9, burning=[0, 1, 1, 0], replicas=[1, 1, 1, 1])
    low = tier("low", 1, burning=[1, 1, 1, 1], replicas=[1, 2, 2, 3])
    other = tier("other", 1, burning=[0, 0, 0, 0], replicas=[1, 1, 2, 2])
    assert inversion_seconds(run_of(high, low)) == 15.0
    assert inversion_seconds(run_of(high, low, other)) == 30.0
    assert inversion_seconds(run_of(low, other)) == 0.0


def test_no_request_is_no_broken_promise() -> None:
    tier = tier_run(arrival=[], ttft=[])
    found = score(run_of(tier), tier)
    assert (found.attainment, found.budget_use, found.worst_hour_burn) == (1.0, 0.0, 0.0)
    assert np.isnan(found.ttft_p99)
    assert TierKey("llm", "gold") == tier.spec.key
