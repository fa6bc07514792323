"""``tierkeeper simulate`` with several tiers: each has its own trace, and they share the GPUs by their priority."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tierkeeper.cli import main

TIER = """\
apiVersion: tierkeeper.dev/v1alpha1
kind: ServiceTier
metadata: {{name: {name}, namespace: llm}}
spec:
  model: {{id: example/model}}
  slo: {{objectivePercent: 99, ttftMilliseconds: 1500, tpotMilliseconds: 50}}
  engine: {{image: "vllm/vllm-openai:v0.32.0", maxNumSeqs: 16}}
  scaling: {{mode: Auto, replicas: {{min: 1, max: 4}}, maxNumSeqs: {{min: 8, max: 16}}}}
  priority: {priority}
"""


def simulate(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *map(str, arguments)])
    return int(ended.value.code or 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five minutes of traffic that fills about three replicas, another that fills one, and two tiers."""
    for name, rate in (("much", 12.0), ("little", 3.0)):
        arrival = np.sort(np.random.default_rng(1).uniform(0, 300, round(300 * rate)))
        lines = "".join(f"{at:.3f},800,100\n" for at in arrival)
        (tmp_path / f"{name}.csv").write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{lines}")
    high, low = TIER.format(name="high", priority=900), TIER.format(name="low", priority=100)
    (tmp_path / "high.yaml").write_text(high)
    (tmp_path / "low.yaml").write_text(low)
    (tmp_path / "both.yaml").write_text(f"{high}---\n{low}")
    return tmp_path


def both(folder: Path, *more: object) -> list[object]:
    traces = ("--trace", folder / "much.csv", "--trace", folder / "little.csv")
    return [*traces, "--format", "azure", "--profile", "8b-a100", *more]


def played(folder: Path, *more: object) -> dict[str, Any]:
    assert simulate(*both(folder, "--json", folder / "run.json", *more)) == 0
    tiers: dict[str, Any] = json.loads((folder / "run.json").read_text())["runs"][0]["tiers"]
    return tiers


def test_each_trace_goes_to_the_tier_in_its_place(folder: Path) -> None:
    apart = played(folder, "--tier", folder / "high.yaml", "--tier", folder / "low.yaml")
    assert {name: tier["score"]["requests"] for name, tier in apart.items()} == {"llm/high": 3600, "llm/low": 900}
    swapped = played(folder, "--tier", folder / "low.yaml", "--tier", folder / "high.yaml")
    assert swapped["llm/low"]["score"]["requests"] == 3600


def test_a_file_of_several_tiers_takes_the_traces_in_its_order(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiers = played(folder, "--tier", folder / "both.yaml", "--report", folder / "run.html")
    assert {name: tier["score"]["requests"] for name, tier in tiers.items()} == {"llm/high": 3600, "llm/low": 900}
    assert "high (priority 900): 3,600 requests in 5 min" in capsys.readouterr().out
    assert "much.csv, 1 x; little.csv, 1 x" in (folder / "run.html").read_text()


def test_the_higher_priority_gets_the_gpus_there_are(folder: Path) -> None:
    tiers = played(folder, "--tier", folder / "both.yaml", "--gpus", "4", "--replicas", "1", "--start-up", "20")
    used = np.array([tier["series"]["ready"] for tier in tiers.values()])
    assert used.sum(axis=0).max() == 4
    assert used[0].max() == 3


def test_the_start_leaves_no_pod_without_a_gpu(folder: Path) -> None:
    free = played(folder, "--tier", folder / "both.yaml")
    assert free["llm/high"]["series"]["ready"][0] == 3
    tiers = played(folder, "--tier", folder / "both.yaml", "--gpus", "3")
    assert [tiers[f"llm/{name}"]["series"]["ready"][0] for name in ("high", "low")] == [2, 1]


def test_an_option_is_for_all_or_one_a_trace(folder: Path) -> None:
    tiers = ("--tier", folder / "both.yaml")
    for_all = played(folder, *tiers, "--scale", "0.5")
    assert sum(tier["score"]["requests"] for tier in for_all.values()) == pytest.approx(2250, rel=0.05)
    for_each = played(folder, *tiers, "--scale", "0.5", "--scale", "1", "--start-up", "30", "--start-up", "60")
    assert for_each["llm/low"]["score"]["requests"] == 900
    assert [tier["startupSeconds"] for tier in for_each.values()] == [30, 60]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--tier", "high.yaml"], "1 tier (high) and 2 traces; give 1 --trace, one for each tier in order"),
        (
            ["--tier", "both.yaml", "--tier", "low.yaml"],
            "3 tiers (high, low, low) and 2 traces; give 3 --traces, one for each tier in order",
        ),
        (
            ["--tier", "low.yaml", "--tier", "low.yaml"],
            "--tier: llm/low is given more than once; give each tier a name",
        ),
        ([], "2 traces and no --tier; give 2 tiers, one for each trace in order"),
        (
            ["--tier", "both.yaml", *["--scale", "1"] * 3],
            "--scale is given 3 times for 2 traces; give it once, or 2 times: one for each --trace",
        ),
        (["--tier", "both.yaml", *["--start-up", "1"] * 3], "--start-up is given 3 times for 2 traces"),
        (["--tier", "both.yaml", *["--format", "azure"] * 2], "--format is given 3 times for 2 traces"),
        (
            ["--tier", "both.yaml", "--gpus", "1"],
            "--gpus 1: the start needs 2, for 1 replica of high and 1 replica of low; give --gpus 2 or more\n",
        ),
        (["--tier", "both.yaml", "--gpus", "3", "--replicas", "2"], "give --gpus 4 or more, or fewer --replicas"),
        (["--tier", "both.yaml", "--law", "poisson", "--law", "gamma:2"], "--law and --where are for traces of format"),
        (["--tier", "both.yaml", "--law", "gamma:2"], "--law and --where are for traces of format rate"),
    ],
)
def test_what_does_not_belong_together_says_how_many_there_are_and_are_wanted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    monkeypatch.chdir(folder)
    assert simulate(*both(folder, *more)) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_an_option_twice_for_one_trace_is_too_much(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--trace", folder / "much.csv", "--format", "azure", "--scale", "1", "--scale", "2") == 2
    assert "--scale is given 2 times for 1 trace; give it once\n" in capsys.readouterr().err


def test_a_law_for_each_trace_is_refused_where_one_has_its_own_arrivals(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rate.csv").write_text("t_s,rate_rps\n0,3\n60,3\n")
    traces = ("--trace", folder / "rate.csv", "--format", "rate", "--trace", folder / "little.csv", "--format", "azure")
    tiers = ("--tier", folder / "both.yaml", "--policy", "static")
    assert simulate(*traces, *tiers, "--law", "gamma:2") == 0
    assert simulate(*traces, *tiers, "--law", "gamma:2", "--law", "gamma:3") == 2
    assert "others have their own arrivals: leave them out" in capsys.readouterr().err
