"""The budget-aware oracle with the simulator behind it: measured, planned, replayed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.scaling.story import KEY, tier
from tests.sim.pools import config, poisson
from tierkeeper.scaling.model import Levers
from tierkeeper.sim.loop import SimTier, simulate
from tierkeeper.sim.model import Requests
from tierkeeper.sim.oracle import Follow, Plant, Schedule, Verified, carrying
from tierkeeper.sim.oracle_pool import Stage, bad_table, budget_aware, play
from tierkeeper.tier import Objective

PROMISE = Objective(ratio=0.99, ttft_seconds=0.5, tpot_seconds=0.05)
PLANT = Plant(slot_seconds=60.0, startup_seconds=60.0, replicas=range(1, 7), initial=2)


def traffic() -> Requests:
    """Ten minutes at 4 requests a second, ten at 16, ten at 4; 400 + 60 tokens on average."""
    parts = [poisson(seed=n, count=count, rate=rate, prompt=400, output=60) for n, (count, rate) in enumerate(RATES)]
    arrival = np.concatenate([part.arrival[part.arrival < 600] + 600 * n for n, part in enumerate(parts)])
    prompt = np.concatenate([part.prompt[part.arrival < 600] for part in parts])
    output = np.concatenate([part.output[part.arrival < 600] for part in parts])
    return Requests(arrival, prompt, output)


RATES = ((3000, 4.0), (12000, 16.0), (3000, 4.0))


@pytest.fixture(scope="module")
def stage() -> Stage:
    return Stage(
        config=config(),
        requests=traffic(),
        objective=PROMISE,
        max_num_seqs=16,
        max_num_batched_tokens=1024,
        seconds=1800.0,
    )


@pytest.fixture(scope="module")
def table(stage: Stage) -> np.ndarray:
    return bad_table(stage, PLANT)


@pytest.fixture(scope="module")
def found(stage: Stage) -> Verified:
    return budget_aware(stage, PLANT)


def test_more_replicas_never_make_more_bad(table):
    assert (np.diff(table, axis=1) <= 0).all()


def test_a_busy_slot_needs_more_than_a_quiet_one(table):
    fewest = (table > 0).sum(axis=1)
    assert np.median(fewest[10:20]) > np.median(fewest[:10])


def test_the_oracle_keeps_the_budget_when_it_is_played(stage, found):
    assert found.kept
    assert found.budget == np.floor(0.01 * len(stage.requests))
    assert play(stage, PLANT, found.schedule) == found.replay


def test_it_needs_fewer_gpus_than_carrying_every_slot_without_a_bad_request(stage, table, found):
    clean = carrying((table > 0).sum(axis=1) + 1, PLANT)
    assert found.replay.gpu_seconds < play(stage, PLANT, clean).gpu_seconds


def test_a_schedule_costs_what_its_plan_says(stage):
    schedule = Schedule(60.0, np.array([2] * 10 + [4] * 20))
    plan = schedule.replica_seconds(startup_seconds=60.0)
    assert play(stage, PLANT, schedule).gpu_seconds == pytest.approx(plan)


def test_a_policy_follows_it_in_the_loop(stage, found):
    schedule = found.schedule
    member = SimTier(tier(replicas=(1, 6), ttft=0.5, tpot=0.05), stage.config, stage.requests, Levers(2, 16))
    run = simulate([member], Follow({KEY: schedule}, stage.startup_seconds), seconds=stage.seconds).tiers[KEY]
    wanted = [schedule.wanted(at, startup_seconds=stage.startup_seconds) for at in run.series.at]
    assert run.series.replicas.tolist() == wanted
