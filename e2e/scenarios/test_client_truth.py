"""The operator's error ratios are what the clients lived through."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from e2e.load.plan import LoadPlan, Phase, TargetPlan
from e2e.load.runner import run
from e2e.load.trace import Trace
from e2e.scenarios.kit import Kit, changed, tier

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TRACE = Path(__file__).resolve().parents[1] / "data/azure2023_conv_excerpt.csv"

#: Both thresholds are default bucket edges, and lie inside what this load does, so that a fair share misses each.
TTFT_MS, TPOT_MS = 500, 50

#: Long enough for a few hundred requests, short enough that the 5-minute window holds the whole run.
LOAD_SECONDS = 75


def test_client_side_attainment_and_the_operators_error_ratio_agree_within_half_a_point(kit: Kit):
    wanted = changed(
        tier("gold"), "spec.slo", {"objectivePercent": 99, "ttftMilliseconds": TTFT_MS, "tpotMilliseconds": TPOT_MS}
    )
    wanted = changed(wanted, "spec.scaling.mode", "Fixed")
    kit.apply(wanted)
    kit.until_ready("gold")
    kit.until_condition("gold", "MetricsAvailable", "True", seconds=60)

    phase = Phase(duration_s=LOAD_SECONDS, rate_per_s=3.0, max_output_tokens=64, max_prompt_tokens=1500)
    plan = LoadPlan(trace=Trace.read(TRACE), targets=[TargetPlan("gold", kit.url("gold"), "gold", [phase])], seed=3)
    records = asyncio.run(run(plan)).targets["gold"]

    def settled() -> dict[str, Any] | None:
        """The status once its 5-minute window holds every request."""
        slos = kit.get("servicetier", "gold")["status"].get("slos", [])
        windows = [b for slo in slos for b in slo.get("burn", []) if b["windowSeconds"] == 300]
        done = len(windows) == 2 and all(b["requests"] >= 0.97 * len(records) for b in windows)
        return {slo["sli"]: slo for slo in slos} if done else None

    slos = kit.until("the operator to have seen every request", settled, seconds=60)
    for sli, threshold in (("TTFT", TTFT_MS), ("TPOT", TPOT_MS)):
        good, total = records.observed(sli.lower(), threshold)
        client = 100 * (1 - good / total)
        operator = float(slos[sli]["errorRatio"]["point"])
        print(f"{sli} misses of {threshold} ms: client {client:.2f} % of {total}, operator {operator:.2f} %")
        assert slos[sli]["boundaryAligned"] is True
        assert 0 < client < 100
        assert abs(client - operator) <= 0.5
