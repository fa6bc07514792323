"""Little's law: checked on every run of the scoreboard, on each kind of scenario, and by ``tierkeeper simulate``."""

from __future__ import annotations

import dataclasses

import pytest

from bench.policy.checks import LITTLE_SHARE, little
from bench.policy.measures import Row
from bench.policy.scenarios import Scenario
from tests.bench import small
from tests.sim.worlds import sim_tier, tier_spec, traffic
from tierkeeper.cli.simulation.told import check, miscounted
from tierkeeper.sim.loop import Settings, SimTier, simulate
from tierkeeper.sim.policy import Ours, Static
from tierkeeper.sim.score import little_residual


def loaded(*stretches: tuple[float, float], prompt: int = 1000, seqs: int = 24, **spec: object) -> SimTier:
    tier = tier_spec(**spec)  # type: ignore[arg-type]
    return sim_tier(tier, traffic(*stretches, prompt=prompt), startup=60.0, seqs=seqs)


KINDS = {
    "step": small.scenario(),
    "ramp": small.scenario(loaded(*((120.0, 2.0 + n) for n in range(10)))),
    "idle night": small.scenario(loaded((400.0, 5.0), (600.0, 0.01), (200.0, 5.0))),
    "long prompts": small.scenario(loaded((small.END, 1.5), prompt=6000)),
    "cap set too low": small.scenario(loaded((small.END, 6.0), seqs=8)),
    "several tiers on few GPUs": small.scenario(
        small.tier(name="high", priority=9, rate=8.0), small.tier(name="low", priority=1, rate=8.0), gpus=8
    ),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_came_and_did_not_go_is_there_in_every_kind_of_scenario(kind: Scenario) -> None:
    made = simulate(kind.tiers, Ours(), Settings(gpus=kind.gpus), seconds=kind.seconds)
    for tier in made.tiers.values():
        assert len(tier.requests) > 1000
        assert miscounted(tier) == 0
        assert little_residual(tier) < 0.12  # of twenty minutes: some 2,000 requests are counted, in bursts


def row(residual: float | None, *, cut: int = 0) -> Row:
    return {"tiers": {"gold": {"little_residual": residual, "cut": cut}}}


def test_the_run_that_breaks_it_is_named() -> None:
    told, holds = little([("day, hpa", row(0.01)), ("day, keda", row(2 * LITTLE_SHARE))])
    assert not holds
    assert "day, keda, gold" in told
    assert "6.0 %" in told


def test_runs_that_cut_requests_and_bounds_are_left_out() -> None:
    told, holds = little([("a", row(0.5, cut=3)), ("b", row(None)), ("c", {"tiers": {"gold": {"requests": 1}}})])
    assert holds
    assert "no run" in told


def test_the_simulate_command_tells_a_run_that_breaks_it(capsys: pytest.CaptureFixture[str]) -> None:
    made = simulate([loaded((600.0, 5.0))], Static())
    check([made])
    assert capsys.readouterr().err == ""
    ((key, tier),) = made.tiers.items()
    lost = dataclasses.replace(tier, series=dataclasses.replace(tier.series, in_system=tier.series.in_system + 40))
    assert miscounted(lost) > 30
    check([dataclasses.replace(made, tiers={key: lost})])
    assert "Little's law" in capsys.readouterr().err
