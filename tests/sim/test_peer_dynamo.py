"""NVIDIA Dynamo's planner: its real code where it is installed, and a clear word where it is not."""

from __future__ import annotations

import sys

import pytest

from tests.scaling.story import tier
from tests.sim.laws import Seen, Story
from tierkeeper.engine.latency import LLAMA_8B_2XA100
from tierkeeper.sim.peers.dynamo import LOAD_SECONDS, MISSING, DynamoLaw, DynamoSettings, installed
from tierkeeper.sim.peers.figures import Means, StepReport

needs_dynamo = pytest.mark.skipif(not installed(), reason=MISSING)

CALM = StepReport(wall_seconds=0.0095, sequences=4, kv_tokens=5000)
#: 40 waiting prompts of 1,200 tokens: 48,000 tokens at 62 us are 3 s, twice the TTFT target.
FLOODED = StepReport(wall_seconds=0.14, prefill_tokens=2048, sequences=16, kv_tokens=20_000, waiting=40)


def test_a_missing_planner_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dynamo", None)
    for name in [name for name in sys.modules if name.startswith("dynamo.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError, match=r"pip install ai-dynamo==1\.2\.1 .* \(no module dynamo"):
        DynamoLaw(tier())


def story(**settings: object) -> Story:
    law = DynamoLaw(
        tier(replicas=(1, 8)),
        DynamoSettings(profile=LLAMA_8B_2XA100, load_predictor="constant", **settings),  # type: ignore[arg-type]
    )
    return Story(law, step=LOAD_SECONDS, seen=Seen(replicas=2, ready=2))


def minute(rate: float) -> Means:
    return Means(rate, rate, 1200.0, 200.0, 0.2, 0.012)


def steps(report: StepReport, pods: int) -> dict[str, StepReport]:
    return {f"pod-{n}": report for n in range(pods)}


@needs_dynamo
def test_one_replica_is_added_when_every_engine_is_over_its_sla():
    planner = story()
    assert planner.tick(last_minute=minute(4.0), reports=steps(FLOODED, 2)) == 2
    assert planner.tick(last_minute=minute(4.0), reports=steps(FLOODED, 2)) == 3
    # It holds while that one starts.
    assert {planner.tick(last_minute=minute(4.0), reports=steps(FLOODED, 2)) for _ in range(10)} == {3}


@needs_dynamo
def test_one_engine_within_its_sla_is_enough_to_hold():
    planner = story()
    mixed = {"pod-0": FLOODED, "pod-1": CALM}
    assert {planner.tick(last_minute=minute(4.0), reports=mixed) for _ in range(20)} == {2}


@needs_dynamo
def test_an_idle_engine_is_dropped():
    planner = story(throughput_scaling=False)
    assert {planner.tick(last_minute=minute(0.1), reports=steps(CALM, 2)) for _ in range(4)} == {1, 2}


@needs_dynamo
def test_the_throughput_loop_sets_a_floor_from_what_finished():
    planner = story(load_scaling=False, throughput_seconds=60)
    for _ in range(26):
        planner.tick(last_minute=minute(14.0), reports=steps(CALM, 2), ready=2)
    assert planner.seen.replicas > 2
