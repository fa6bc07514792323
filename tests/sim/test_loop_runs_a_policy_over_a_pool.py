"""Whole runs: what a policy is shown, what its levers do, and what is left behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.sim.worlds import GOLD, sim_tier, tier_spec, traffic
from tierkeeper.scaling.model import Levers
from tierkeeper.sim.loop import Settings, SimTier, simulate
from tierkeeper.sim.model import Status
from tierkeeper.sim.policy import Ours, Static, TierView
from tierkeeper.sim.record import Run, TierRun
from tierkeeper.sim.scrape import Faults, Span
from tierkeeper.slo.model import SignalState
from tierkeeper.tier import Mode, TierKey


@dataclass
class Script:
    """A policy that does as told at given times and remembers what it was shown."""

    orders: Mapping[float, Callable[[Levers], Levers]] = field(default_factory=dict)
    key: TierKey = GOLD
    name: str = "script"
    views: dict[float, TierView] = field(default_factory=dict)

    def decide(self, *, now: float, views: Mapping[TierKey, TierView]) -> Mapping[TierKey, Levers]:
        self.views[now] = views[self.key]
        order = self.orders.get(now)
        return {self.key: order(views[self.key].pool.current)} if order else {}


def replicas(number: int) -> Callable[[Levers], Levers]:
    return lambda levers: dataclasses.replace(levers, replicas=number)


def seqs(number: int) -> Callable[[Levers], Levers]:
    return lambda levers: dataclasses.replace(levers, max_num_seqs=number)


def tokens(number: int) -> Callable[[Levers], Levers]:
    return lambda levers: dataclasses.replace(levers, max_num_batched_tokens=number)


def only(run: Run) -> TierRun:
    return run.tiers[GOLD]


def at(tier: TierRun, series: str, seconds: float) -> float:
    return float(getattr(tier.series, series)[np.searchsorted(tier.series.at, seconds)])


def test_all_that_arrives_is_accounted_for() -> None:
    tier = only(simulate([sim_tier(tier_spec(), traffic((120, 3)))], Static()))
    assert (tier.outcome.status == Status.FINISHED).all()
    assert len(tier.outcome.status) == len(tier.requests)
    assert tier.gpu_seconds == pytest.approx(np.ceil(tier.requests.arrival[-1]))


def test_a_policy_is_shown_the_traffic_late_and_as_scraped() -> None:
    script = Script()
    simulate([sim_tier(tier_spec(), traffic((600, 4)))], script)
    first = script.views[15.0].assessment
    assert (first.state, first.reason) == (SignalState.NO_DATA, "WaitingForSamples")
    later = script.views[600.0].assessment
    assert later.state is SignalState.OK
    assert later.traffic.requests_per_second == pytest.approx(4.0, rel=0.25)
    assert later.traffic.mean_prompt_tokens == pytest.approx(1000.0)


def test_the_budget_of_the_period_is_known_once_there_are_steps_to_measure_it_by() -> None:
    script = Script()
    simulate([sim_tier(tier_spec(), traffic((2700, 1)))], script)
    assert script.views[600.0].assessment.slos
    lefts = {slo.budget_left for slo in script.views[2700.0].assessment.slos.values()}
    assert lefts == {1.0}


def test_a_new_replica_is_starting_for_its_start_up_time_and_its_gpu_is_paid_from_the_first_second() -> None:
    tier = only(
        simulate([sim_tier(tier_spec(), traffic((300, 1)), startup=100.0)], Script({60.0: replicas(2)}), seconds=300.0)
    )
    assert (at(tier, "ready", 150), at(tier, "starting", 150)) == (1, 1)
    assert (at(tier, "ready", 165), at(tier, "starting", 165)) == (2, 0)
    assert tier.gpu_seconds == pytest.approx(300 + 240)


def test_the_pool_is_shown_as_the_cluster_would_show_it() -> None:
    script = Script({60.0: replicas(3), 120.0: seqs(16)})
    simulate([sim_tier(tier_spec(), traffic((300, 1)), startup=100.0)], script, Settings(gpus=2))
    shown = {now: view.pool for now, view in script.views.items()}
    assert (shown[75.0].ready, shown[75.0].unschedulable) == (1, 1)  # and the third one starts
    assert shown[75.0].unschedulable_message == "scheduler: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu"
    assert (shown[180.0].ready, shown[180.0].unschedulable) == (2, 1)
    assert [shown[now].resizing for now in (120.0, 135.0, 150.0)] == [False, True, False]


def test_levers_stay_within_what_the_tier_allows_whoever_asks() -> None:
    script = Script({60.0: replicas(99), 75.0: seqs(1)})
    tier = only(simulate([sim_tier(tier_spec(replicas=(1, 3), seqs=(8, 64)), traffic((120, 1)))], script))
    assert at(tier, "replicas", 75) == 3
    assert at(tier, "max_num_seqs", 75) == 8


def test_a_lower_cap_and_token_budget_hold_from_the_next_step_on() -> None:
    """At 8 sequences a step is faster than at 24, and requests wait instead."""
    free = only(simulate([sim_tier(tier_spec(), traffic((300, 8)))], Static()))
    capped = only(simulate([sim_tier(tier_spec(), traffic((300, 8)))], Script({15.0: seqs(8), 30.0: tokens(512)})))
    assert np.nanmedian(capped.outcome.tpot) < 0.8 * np.nanmedian(free.outcome.tpot)
    assert np.median(capped.outcome.queue_seconds) > 2 * np.median(free.outcome.queue_seconds)


def test_what_the_pools_queue_rejects_is_seen_and_counts() -> None:
    script = Script()
    tier = only(simulate([sim_tier(tier_spec(max_queued=5), traffic((300, 14)))], script))
    assert (tier.outcome.status == Status.REJECTED).sum() > 300
    assert script.views[240.0].assessment.traffic.rejected_per_second > 1.0


def test_the_shipped_policy_adds_replicas_under_load_and_says_why() -> None:
    """A replica carries about 8 requests a second; after 300 s come 20."""
    tier = only(simulate([sim_tier(tier_spec(), traffic((300, 4), (600, 20)), startup=60.0)], Ours()))
    grown = [entry for entry in tier.decisions if entry.after.replicas > entry.before.replicas]
    assert 300 < grown[0].at < 600
    assert grown[0].reason
    assert "replica" in grown[0].message


@pytest.mark.parametrize("seed", [5, 6])
def test_bursts_every_few_minutes_do_not_let_the_pool_run_away(seed: int) -> None:
    """Three minutes of 20/s, three of next to nothing: three replicas carry the bursts. Their edges, taken for a slower
    engine, asked for 17."""
    spec, bursts = tier_spec(replicas=(1, 24), seqs=(8, 256), start_seqs=32), [(180, 0.2), (180, 20)] * 5
    tier = only(simulate([sim_tier(spec, traffic(*bursts, seed=seed), replicas=4)], Ours()))
    assert tier.series.replicas.max() <= 6


def test_the_shipped_policy_gives_back_what_is_not_needed() -> None:
    tier = only(simulate([sim_tier(tier_spec(), traffic((1500, 3)), replicas=4)], Ours()))
    assert at(tier, "replicas", 1500) < 4


def test_in_mode_recommend_nothing_is_done() -> None:
    tier = only(simulate([sim_tier(tier_spec(mode=Mode.RECOMMEND), traffic((300, 14)))], Ours()))
    assert set(tier.series.replicas) == {1.0}
    assert all(entry.after == entry.before for entry in tier.decisions)
    assert len(tier.decisions) > 1


def test_one_seed_gives_one_run_and_another_seed_another() -> None:
    def run(seed: int) -> TierRun:
        tier = sim_tier(tier_spec(), traffic((300, 9)), startup=60.0)
        faults = Faults(lost_scrapes=0.1)
        return only(simulate([tier], Ours(), Settings(seed=seed, faults=faults)))

    first, again, other = run(1), run(1), run(2)
    assert first.decisions == again.decisions
    np.testing.assert_array_equal(first.series.running, again.series.running)
    assert not np.array_equal(first.series.running, other.series.running, equal_nan=True)


def test_a_blind_policy_never_takes_a_replica_away() -> None:
    faults = Faults(down=(Span(300, 1200),))
    tier = only(simulate([sim_tier(tier_spec(), traffic((1200, 1)), replicas=4)], Ours(), Settings(faults=faults)))
    blind = (tier.series.at >= 300) & (tier.series.at < 1200)
    assert set(tier.series.known[blind]) == {0.0}
    assert (np.diff(tier.series.replicas[blind]) >= 0).all()


def test_gpus_go_to_the_higher_priority_first_and_who_has_one_keeps_it() -> None:
    high, low = tier_spec("high", priority=9), tier_spec("low", priority=1)

    class Greedy:
        name = "greedy"

        def decide(self, *, now: float, views: Mapping[TierKey, TierView]) -> Mapping[TierKey, Levers]:
            wanted = {60.0: {"low": 2}, 120.0: {"low": 4, "high": 3}}.get(now, {})
            return {
                key: dataclasses.replace(view.pool.current, replicas=wanted[key.name])
                for key, view in views.items()
                if key.name in wanted
            }

    tiers = [sim_tier(low, traffic((300, 1)), startup=30.0), sim_tier(high, traffic((300, 1)), startup=30.0)]
    run = simulate(tiers, Greedy(), Settings(gpus=5))
    found = {key.name: (at(tier, "ready", 200), at(tier, "unschedulable", 200)) for key, tier in run.tiers.items()}
    assert found == {"high": (3, 0), "low": (2, 2)}


def test_a_gpu_that_is_given_back_goes_to_who_waits() -> None:
    class Exchange:
        name = "exchange"

        def decide(self, *, now: float, views: Mapping[TierKey, TierView]) -> Mapping[TierKey, Levers]:
            wanted = {30.0: ("low", 3), 60.0: ("high", 1)}.get(now)
            return {
                key: dataclasses.replace(view.pool.current, replicas=wanted[1])
                for key, view in views.items()
                if wanted and wanted[0] == key.name
            }

    high = sim_tier(tier_spec("high", priority=9), traffic((300, 1)), startup=30.0, replicas=2)
    low = sim_tier(tier_spec("low", priority=1), traffic((300, 1)), startup=30.0, replicas=2)
    tier = simulate([high, low], Exchange(), Settings(gpus=4)).tiers[low.spec.key]
    assert (at(tier, "ready", 45), at(tier, "unschedulable", 45)) == (2, 1)
    assert (at(tier, "ready", 120), at(tier, "unschedulable", 120)) == (3, 0)


def test_the_run_goes_on_until_what_arrived_last_is_done_and_scores_only_the_traffic() -> None:
    run = simulate([sim_tier(tier_spec(), traffic((60, 2), output=1000))], Static())
    assert run.seconds == np.ceil(only(run).requests.arrival[-1]) <= 60.0
    assert (only(run).outcome.status == Status.FINISHED).all()
    assert only(run).gpu_seconds == pytest.approx(run.seconds)


def test_a_policy_with_a_rhythm_of_its_own_sees_new_samples_at_each_tick_and_an_assessment_a_scrape() -> None:
    class Fast(Script):
        interval_seconds = 5.0

    script = Fast()
    simulate([sim_tier(tier_spec(), traffic((300, 4)))], script, Settings(tick_seconds=5.0))
    views = [view for now, view in script.views.items() if 200 < now <= 300]
    assert len(views) == 20
    assert 6 <= len({id(view.assessment) for view in views}) <= 8
    assert len({view.samples.at_ms for view in views}) == 20


def test_progress_is_told() -> None:
    told: list[tuple[float, float]] = []
    simulate([sim_tier(tier_spec(), traffic((900, 1)))], Static(), progress=lambda now, end: told.append((now, end)))
    assert told[-1][1] == pytest.approx(1200.0, abs=10)
    assert [now for now, _ in told] == sorted(now for now, _ in told)


def test_two_tiers_of_one_name_are_refused() -> None:
    tier = sim_tier(tier_spec(), traffic((60, 1)))
    with pytest.raises(ValueError, match="each with its own name"):
        simulate([tier, tier], Static())


def test_a_tier_that_cannot_be_resized_live_is_refused_with_the_remedy() -> None:
    tier = sim_tier(tier_spec(), traffic((60, 1)))
    old = dataclasses.replace(tier.spec, engine=dataclasses.replace(tier.spec.engine, version=(0, 10, 0)))
    with pytest.raises(ValueError, match=r"llm/gold: vLLM 0.10.0 is outside .* set spec.engine"):
        simulate([SimTier(old, tier.config, tier.requests)], Static())
