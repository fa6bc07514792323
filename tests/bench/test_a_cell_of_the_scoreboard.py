"""One policy on one scenario: what is measured, and what the bounds find."""

from __future__ import annotations

import dataclasses
import json
from functools import cache

import numpy as np
import pytest

from bench.policy import bounds
from bench.policy.faults import FAULTS, misled
from bench.policy.measures import Row, minutes_back
from bench.policy.play import part, run
from bench.policy.policies import Entry, entries
from tests.bench import small
from tierkeeper.sim.peers.catalog import peer
from tierkeeper.sim.peers.hpa import HpaSettings
from tierkeeper.sim.policy import Ours


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
