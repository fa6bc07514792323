"""``tierkeeper simulate``: from a file of requests to a table, a JSON file and a page; and what it refuses, and how."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tierkeeper.cli import main
from tierkeeper.cli.simulation.tiers import default_tier
from tierkeeper.sim.profiles import PROFILES

TIER = """\
apiVersion: tierkeeper.dev/v1alpha1
kind: ServiceTier
metadata: {name: gold, namespace: llm}
spec:
  model: {id: example/model}
  slo: {objectivePercent: 99, ttftMilliseconds: 800, tpotMilliseconds: 50}
  engine: {image: "vllm/vllm-openai:v0.32.0", maxNumSeqs: 16}
  scaling: {mode: Auto, replicas: {min: 1, max: 4}, maxNumSeqs: {min: 8, max: 64}}
"""


ROOT = Path(__file__).parents[2]


def keys(found: Any) -> set[str]:
    """All keys of a JSON document but the tiers' names and those within an objective."""
    if isinstance(found, list):
        return set().union(*map(keys, found))
    if not isinstance(found, dict):
        return set()
    inner = (keys(value) for name, value in found.items() if name != "objective")
    return {name for name in found if "/" not in name and name not in ("runs", "decisions")}.union(*inner)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two minutes at four requests a second."""
    arrival = np.sort(np.random.default_rng(1).uniform(0, 120, 480))
    file = tmp_path / "trace.csv"
    lines = "".join(f"{at:.3f},800,60\n" for at in arrival)
    file.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{lines}")
    return file


def simulate(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *map(str, arguments)])
    return int(ended.value.code or 0)


def test_a_trace_becomes_a_table(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--trace", trace, "--format", "azure") == 0
    out = capsys.readouterr().out
    assert "480 requests in 2 min; 99% of requests within TTFT 1.50 s and TPOT 40 ms; Llama-3.1-8B on 2 x A100" in out
    assert "tierkeeper" in out
    assert "100.00%" in out


def test_json_and_report_hold_the_run(trace: Path, tmp_path: Path) -> None:
    tier = tmp_path / "gold.yaml"
    tier.write_text(TIER)
    into = ("--json", tmp_path / "run.json", "--report", tmp_path / "run.html")
    policies = ("--policy", "tierkeeper", "--policy", "hpa")
    assert simulate("--trace", trace, "--format", "azure", "--tier", tier, *policies, *into) == 0
    found: dict[str, Any] = json.loads((tmp_path / "run.json").read_text(), parse_constant=pytest.fail)
    assert [run["policy"] for run in found["runs"]] == ["tierkeeper", "hpa"]
    part = found["runs"][0]["tiers"]["llm/gold"]
    assert part["objective"]["ttftSeconds"] == 0.8
    assert part["score"]["requests"] == 480
    assert len(part["series"]["at"]) == len(part["series"]["maxNumSeqs"]) > 20
    assert part["decisions"][0]["reason"] == "HoldMetricsUnknown"
    documented = (ROOT / "docs/how-to/simulate.md").read_text()
    assert [key for key in sorted(keys(found)) if f"`{key}`" not in documented] == []
    page = (tmp_path / "run.html").read_text()
    assert "gold under tierkeeper" in page
    assert "gold under hpa" in page


def test_a_rate_curve_is_played_by_a_law(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rate.csv"
    file.write_text("t_s,rate_rps\n0,2\n60,6\n")
    assert simulate("--trace", file, "--format", "rate", "--law", "gamma:2", "--scale", "0.5", "--seed", "3") == 0
    assert "requests in 2 min" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policy", "best"], "--policy 'best' is not known: give one of tierkeeper, static, hpa"),
        (["--law", "gamma:2"], "--law and --where are for traces of format rate"),
        (["--scale", "5000"], "--scale 5000: a trace times 5000: the factor must be between 0 and 1,000"),
        (["--law", "pareto"], "--law: arrival law 'pareto': write poisson, gamma:CV or weibull:SHAPE"),
        (["--replicas", "99"], "--replicas 99 is outside default's spec.scaling.replicas; give 1 to 64"),
        (
            ["--gpus", "5", "--replicas", "3"],
            "the start needs 6, for 3 replicas of default; give --gpus 6 or more, or --replicas 2 or fewer",
        ),
        (["--gpus", "1"], "--gpus 1: the start needs 2, for 1 replica of default; give --gpus 2 or more"),
    ],
)
def test_an_option_that_cannot_be_is_refused_in_a_sentence(
    trace: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert simulate("--trace", trace, "--format", "azure", *arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("--seed", "-1", "give a whole number from 0 on"),
        ("--seed", "1.5", "give a whole number from 0 on"),
        ("--scale", "-1", "give a number, more than 0"),
        ("--scale", "0", "give a number, more than 0"),
        ("--scale", "nan", "give a number, more than 0"),
        ("--scale", "inf", "give a number, more than 0"),
        ("--scale", "twice", "give a number, more than 0"),
        ("--start-up", "-5", "give a number, seconds from 0 on"),
        ("--start-up", "inf", "give a number, seconds from 0 on"),
        ("--replicas", "0", "give a whole number from 1 on"),
        ("--gpus", "0", "give a whole number from 1 on"),
        ("--where", "kind", "write COLUMN=TEXT"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_option(
    trace: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, wanted: str
) -> None:
    assert simulate("--trace", trace, "--format", "azure", f"{option}={value}") == 2
    usage, *error = capsys.readouterr().err.splitlines()
    assert usage.startswith("usage: tierkeeper simulate --trace FILE")
    assert error == [f"tierkeeper simulate: error: argument {option}: {value!r} cannot be; {wanted}"]


def test_an_unknown_option_is_answered_with_the_usage_of_the_command(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate("--trace", trace, "--format", "azure", "--speed", "3") == 2
    error = capsys.readouterr().err
    assert "usage: tierkeeper simulate --trace FILE" in error
    assert "tierkeeper simulate: error: unrecognized arguments: --speed 3" in error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--profile", "900b"], "profile '900b': neither a file nor a known name"),
        (["--scale", "0.000001"], "no request in it; give a trace with some, or a higher --scale"),
        (["--tier", "/dev/null"], "/dev/null holds no ServiceTier; give a file with one"),
        (["--tier", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_a_sentence(
    trace: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert simulate("--trace", trace, "--format", "azure", *arguments) == 1
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_planner_that_is_not_installed_is_told_before_the_others_run(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert simulate("--trace", trace, "--format", "azure", "--policy", "tierkeeper", "--policy", "dynamo") == 1
    out, error = capsys.readouterr()
    assert "--policy dynamo: NVIDIA Dynamo's planner is not installed" in error
    assert out == ""


def test_a_bad_line_is_named_with_its_column(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace.write_text(trace.read_text().replace(",800,60", ",many,60", 1))
    assert simulate("--trace", trace, "--format", "azure") == 1
    assert "trace.csv, line 2, column ContextTokens" in capsys.readouterr().err


def test_an_invalid_tier_is_refused_by_field(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tier = tmp_path / "gold.yaml"
    tier.write_text(TIER.replace("mode: Auto", "mode: Fast"))
    assert simulate("--trace", trace, "--format", "azure", "--tier", tier) == 1
    assert "spec.scaling.mode" in capsys.readouterr().err


def test_help_teaches_by_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--help") == 0
    out = capsys.readouterr().out
    assert (
        "tierkeeper simulate --trace bench/policy/data/azure2023_conv.csv.gz --format azure --report hour.html" in out
    )
    assert "req_per_min, requests_per_minute or req_per_min_mid" in out


def test_the_examples_of_the_help_name_files_that_ship(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--help") == 0
    out = capsys.readouterr().out
    named = re.findall(r"--(?:trace|tier) (\S+/\S+)", out)
    assert len(named) >= 6
    assert [file for file in named if not (ROOT / file).exists()] == []
    assert max(map(len, out.splitlines())) <= 120


def test_help_tells_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--help") == 0
    assert re.findall(r"^  (\d+)  ", capsys.readouterr().out, re.MULTILINE) == ["0", "1", "2", "130"]


def test_an_interrupt_ends_it_with_one_line(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tierkeeper.cli.simulation.simulate", interrupted)
    assert simulate("--trace", trace, "--format", "azure", "--json", tmp_path / "run.json") == 130
    assert capsys.readouterr().err.splitlines()[-1] == "tierkeeper simulate: interrupted"
    assert not (tmp_path / "run.json").exists()


def test_without_the_extra_it_says_what_to_install(trace: Path) -> None:
    code = (
        "import sys; sys.modules['numba'] = None\n"
        f"from tierkeeper.cli import main; main(['simulate', '--trace', {str(trace)!r}, '--format', 'azure'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "tierkeeper simulate needs numba: pip install 'tierkeeper[sim]'\n")


def test_the_other_commands_never_load_it() -> None:
    code = "import sys, tierkeeper.cli.simulate, tierkeeper.cli.run; print('numpy' in sys.modules)"
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("name", PROFILES)
def test_the_usual_tier_promises_what_the_profile_can_keep(name: str) -> None:
    step = PROFILES[name].latency
    tier = default_tier(PROFILES[name], long_prompt=30_000)
    assert tier.objective is not None
    assert (tier.objective.tpot_seconds or 0) >= 3.9 * step.base_seconds
    assert (tier.objective.ttft_seconds or 0) >= 3 * 30_000 * step.per_prefill_token_seconds
    assert tier.resources.gpus_per_replica == PROFILES[name].gpus_per_replica
