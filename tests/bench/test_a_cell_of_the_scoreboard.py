"""One policy on one scenario: what is measured, and what the bounds find."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import cache

import numpy as np
import pytest

from bench.policy import bounds
from bench.policy.faults import FAULTS, misled
from bench.policy.measures import Row, minutes_back
from bench.policy.play import part, run
from bench.policy.policies import Entry, entries
from tests.bench import small
from tierkeeper.scaling.model import Levers
from tierkeeper.sim.oracle import Plant
from tierkeeper.sim.oracle_pool import Stage, budget_aware
from tierkeeper.sim.peers.catalog import peer
from tierkeeper.sim.peers.hpa import HpaSettings
from tierkeeper.sim.policy import Ours
from tierkeeper.tier import Bounds


def entry(name: str) -> Entry:
    return next(one for one in entries() if one.name == name)


@cache
def played(name: str) -> Row:
    return run(small.scenario(), entry(name))


def test_every_arrival_counts_and_the_row_is_json() -> None:
    row = played("hpa")
    assert row["requests"] == len(small.tier().requests)
    assert row["good"] == round(row["attainment"] * row["requests"])
    assert json.loads(json.dumps(row, allow_nan=False)) == row


def test_a_step_is_followed_from_first_action_to_recovery() -> None:
    (reaction,) = played("hpa")["tiers"]["gold"]["reactions"]
    assert reaction["at"] == small.STEP_AT
    assert set(reaction) == {"at", "first_action", "recovered", "overshoot", "late_minutes", "minutes_back"}


def test_a_static_peak_keeps_its_promise_and_never_acts() -> None:
    row = played("static-peak")
    assert row["kept"]
    (reaction,) = row["tiers"]["gold"]["reactions"]
    assert reaction["first_action"] is None


def test_no_policy_that_keeps_the_promise_is_cheaper_than_the_budget_aware_oracle() -> None:
    oracle, static = played("budget-oracle"), played("static-peak")
    assert oracle["kept"]
    assert oracle["gpu_hours"] <= static["gpu_hours"]


def hours_by_hand(limits: tuple[int, int]) -> float:
    """GPU-hours of the small scenario's cheapest schedule at these limits; infinite where none keeps the promise."""
    tier = small.tier()
    assert tier.spec.objective is not None
    stage = Stage(
        config=tier.config,
        requests=tier.requests,
        objective=tier.spec.objective,
        max_num_seqs=limits[0],
        max_num_batched_tokens=limits[1],
        seconds=small.END,
    )
    plant = Plant(slot_seconds=60.0, startup_seconds=60.0, replicas=range(1, 7), initial=2)
    found = budget_aware(stage, plant)
    return found.replay.gpu_seconds / 3600 if found.kept else math.inf


def test_no_limits_that_the_spec_allows_beat_those_that_the_oracle_chose() -> None:
    allowed = [(seqs, tokens) for seqs, tokens in bounds.LIMITS if 24 <= seqs <= 40]
    assert len(allowed) == 8
    assert played("budget-oracle")["gpu_hours"] <= min(hours_by_hand(limits) for limits in allowed)


def test_the_oracle_may_keep_the_limits_that_a_pool_starts_with_and_stays_within_the_specs_bounds() -> None:
    tier = small.tier()
    started = dataclasses.replace(tier, start=Levers(replicas=2, max_num_seqs=8, max_num_batched_tokens=700))
    caps = {seqs for seqs, _ in bounds.allowed_limits(started)}
    assert (8, 700) in bounds.allowed_limits(started)
    assert caps == {8, 24, 32}


def test_in_a_long_run_a_sample_of_the_slots_names_the_limits_that_the_whole_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tier = small.tier()
    # A cap of 16 carries so much less that any sample must show it.
    scaling = dataclasses.replace(tier.spec.scaling, max_num_seqs=Bounds(8, 40))
    wide = small.scenario(dataclasses.replace(tier, spec=dataclasses.replace(tier.spec, scaling=scaling)))
    monkeypatch.setattr(bounds, "LIMITS", ((16, 512), (16, 2048), (24, 2048), (32, 512), (32, 4096)))
    whole = bounds.budget_oracle(wide, seed=0)
    monkeypatch.setattr(bounds, "SAMPLED_SLOTS", 7)
    monkeypatch.setattr(bounds, "LONG_SECONDS", small.END / 2)
    monkeypatch.setattr(bounds, "COARSE_SLOT", bounds.FINE_SLOT)
    finalists = bounds.promising(wide, wide.tiers[0], seed=0)
    assert len(finalists) == bounds.FINALISTS < len(bounds.allowed_limits(wide.tiers[0]))
    assert all(seqs > 16 for seqs, _ in finalists)
    found = bounds.budget_oracle(wide, seed=0)
    assert found["tiers"]["gold"]["limits"] in finalists
    assert found["gpu_hours"] == whole["gpu_hours"]


@pytest.mark.parametrize("limit_seconds", [bounds.LONG_SECONDS, 60.0])
def test_the_oracle_tells_how_far_it_is_without_a_step_back(
    limit_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LONG_SECONDS", limit_seconds)
    told: list[float] = []
    two = small.scenario(small.tier(), small.tier(name="low", rate=1.0))
    bounds.budget_oracle(two, seed=0, progress=told.append)
    assert told == sorted(told)
    assert len(told) > 10
    assert told[-1] == pytest.approx(1.0)


def test_a_request_that_comes_when_the_scored_time_is_over_counts_for_the_oracles_as_for_policies() -> None:
    early = dataclasses.replace(small.scenario(), seconds=small.END - 60.0)
    rows = [run(early, entry(name)) for name in ("static-peak", "oracle", "budget-oracle")]
    assert {row["requests"] for row in rows} == {len(small.tier().requests)}


def test_the_oracle_with_start_up_known_serves_the_mean_of_each_minute() -> None:
    assert played("oracle")["attainment"] > 0.98


def test_one_replica_carries_less_at_a_smaller_batch() -> None:
    tier = small.tier()
    assert bounds.carried(tier, (8, 2048)) < bounds.carried(tier, (32, 2048))


def test_under_a_cap_of_gpus_the_static_peak_serves_higher_priorities_first() -> None:
    low = small.tier(name="low", priority=1, rate=12.0)
    high = small.tier(name="high", priority=9, rate=12.0)
    started = bounds.static_peak(small.scenario(low, high, gpus=8))
    replicas = {tier.spec.key.name: tier.start.replicas for tier in started.tiers if tier.start is not None}
    assert replicas == {"high": 3, "low": 1}


def test_a_variant_without_live_resize_moves_replicas_only() -> None:
    row = played("no-live-resize")
    assert row["tiers"]["gold"]["live_changes"] == 0


def test_faults_reach_the_policy() -> None:
    busy = small.scenario(small.tier(rate=9.0))
    clean = run(busy, entry("tierkeeper"))
    lossy = run(busy, entry("tierkeeper"), fault=FAULTS["down"])
    assert clean["gpu_hours"] != lossy["gpu_hours"]


def test_a_wrong_prefill_changes_that_constant_of_our_profile_alone() -> None:
    ours, usual = misled(Ours, FAULTS["prefill-fast"]), Ours().profile
    assert isinstance(ours, Ours)
    wrong = pytest.approx(0.7 * usual.per_prefill_token_seconds)
    assert dataclasses.asdict(ours.profile) == dataclasses.asdict(usual) | {"per_prefill_token_seconds": wrong}


def test_peers_are_given_no_profile() -> None:
    hpa = peer(HpaSettings())
    assert misled(lambda: hpa, FAULTS["prefill-fast"]) is hpa


def test_an_operator_that_restarts_has_to_watch_anew_before_it_shrinks() -> None:
    calm = small.scenario(small.tier(rate=1.0, factor=1.0))
    restarts = dataclasses.replace(FAULTS["restarts"], restart_seconds=240.0)
    lasting, forgetful = run(calm, entry("tierkeeper")), run(calm, entry("tierkeeper"), fault=restarts)
    assert lasting["gpu_hours"] < forgetful["gpu_hours"] == 2 * 2 * small.END / 3600.0


def test_nothing_is_taken_away_while_prometheus_cannot_be_reached() -> None:
    assert run(small.scenario(), entry("tierkeeper"), fault=FAULTS["down"])["blind_shrinks"] == 0


def test_a_part_of_a_scenario_begins_at_zero_and_keeps_its_changes() -> None:
    cut = part(small.scenario(), 300.0, 1200.0)
    assert cut.seconds == 900.0
    assert cut.changes == (300.0,)
    assert cut.tiers[0].requests.arrival[-1] < 900.0


@pytest.mark.parametrize(
    ("late", "minutes"),
    [([0, 0, 0], 0), ([0, 1, 1, 0, 0, 1], 3), ([1, 0, 1, 0], None), ([0, 1, 0, 1, 0, 0], 4)],
)
def test_tokens_are_on_time_again_after_two_good_minutes_in_a_row(late: list[int], minutes: int | None) -> None:
    assert minutes_back(np.array(late, dtype=bool)) == minutes


@pytest.mark.parametrize("name", ["no-feedback", "no-forecast", "no-token-budget"])
def test_ours_with_something_taken_away_still_serves(name: str) -> None:
    assert played(name)["attainment"] > 0.9
