"""What ``tierkeeper simulate`` says: a table that can be read at any width, how far it is, and what is odd."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.sim.worlds import sim_tier, tier_spec, traffic
from tierkeeper.cli import main
from tierkeeper.cli.simulation.told import PIPE_WIDTH, show
from tierkeeper.sim.loop import Settings, simulate
from tierkeeper.sim.peers import catalog
from tierkeeper.sim.policy import Ours, Static
from tierkeeper.sim.report import COLUMNS

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "trace.csv"
    file.write_text(HEADER + "".join(f"{at},800,20\n" for at in range(60)))
    return file


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *map(str, arguments)])
    return int(ended.value.code or 0)


def shown(width: int) -> list[str]:
    tiers = [sim_tier(tier_spec(name), traffic((120.0, 2.0))) for name in ("platinum", "batch")]
    runs = [simulate(tiers, policy, Settings()) for policy in (Ours(), Static(), catalog.peer(catalog.DEFAULTS["hpa"]))]
    console = Console(width=width, file=io.StringIO())
    show(runs, tiers, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, PIPE_WIDTH])
def test_every_figure_is_whole_at_any_width(width: int) -> None:
    lines = shown(width)
    assert "…" not in "".join(lines)
    assert all(len(line) <= width for line in lines if not line.startswith(("platinum (", "batch (")))
    for name, _ in COLUMNS[1:]:
        assert any(name in line for line in lines), name
    assert sum("100.00%" in line for line in lines) == 6


def test_a_narrow_terminal_gets_a_line_a_figure() -> None:
    lines = shown(80)
    assert [line.strip() for line in lines if line.strip().startswith(("tierkeeper,", "hpa,"))] == [
        "tierkeeper, platinum",
        "tierkeeper, batch",
        "hpa, platinum",
        "hpa, batch",
    ]


def test_a_pipe_gets_lines_on_how_far_it_is(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tierkeeper.cli.simulation.LINE_SECONDS", 0.0)
    trace.write_text(HEADER + "".join(f"{at * 30},800,20\n" for at in range(60)))
    assert run("--trace", trace, "--format", "azure", "--policy", "static") == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "simulated" in line]
    assert lines[0] == "static: 29% of 34 min simulated"
    assert len(lines) == 3


def test_a_short_run_in_a_pipe_says_nothing_of_it(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--trace", trace, "--format", "azure", "--policy", "static") == 0
    assert "simulated" not in capsys.readouterr().err


TIER = """\
apiVersion: tierkeeper.dev/v1alpha1
kind: ServiceTier
metadata: {name: gold, namespace: llm}
spec:
  model: {id: example/model}
  engine: {image: "vllm/vllm-openai:v0.32.0", maxNumSeqs: 16, maxModelLen: 2048}
  scaling: {replicas: {min: 1, max: 4}, maxNumSeqs: {min: 8, max: 64}}
"""


def noted(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    assert run("--format", "azure", "--policy", "static", *arguments) == 0
    return capsys.readouterr().err.splitlines()


def test_a_promise_that_nobody_gave_is_named_as_chosen(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert noted(capsys, "--trace", trace) == [
        "tierkeeper simulate: note: no --tier: a promise is chosen from Llama-3.1-8B on 2 x A100 and the trace's P99"
        " prompt of 800 tokens; give --tier for one of your own"
    ]


def test_a_tier_that_is_played_as_it_stands_needs_no_note(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gold.yaml").write_text(TIER)
    assert noted(capsys, "--trace", trace, "--tier", tmp_path / "gold.yaml", "--profile", "8b-a100") == []


def test_where_the_profile_or_the_trace_differ_from_the_tier_a_line_says_so(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gold.yaml").write_text(TIER)
    trace.write_text(HEADER + "0,100,10\n1,2000,49\n2,2000000,1\n")
    gpus, lost, long = noted(capsys, "--trace", trace, "--tier", tmp_path / "gold.yaml")
    assert "gold: spec.resources.gpusPerReplica is 1, and the profile" in gpus
    assert "has 2 GPUs a replica; give a --profile of that size" in gpus
    assert "gold: requests beyond the 1,018,000 tokens of a replica's KV cache, which count as lost: 1 of 3" in lost
    assert "gold: requests beyond spec.engine.maxModelLen, 2,048 tokens: 2 of 3" in long


def test_gpus_of_two_kinds_under_one_number_are_told(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = TIER.replace("gold", "silver").replace(
        "  scaling", "  resources: {gpuResourceName: amd.com/gpu}\n  scaling"
    )
    (tmp_path / "two.yaml").write_text(f"{TIER}---\n{other}")
    traces = ("--trace", trace, "--trace", trace)
    (note,) = noted(capsys, *traces, "--tier", tmp_path / "two.yaml", "--profile", "8b-a100", "--gpus", "4")
    assert "--gpus counts amd.com/gpu and nvidia.com/gpu as one kind" in note


def test_a_policy_twice_is_refused(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--trace", trace, "--format", "azure", *["--policy", "hpa"] * 2) == 2
    assert "--policy hpa is given twice" in capsys.readouterr().err


def test_a_file_without_a_tier_is_answered_with_what_it_holds(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("kind: Deployment\n---\nkind: Service\n---\nreplicas: 3\n")
    assert run("--trace", trace, "--format", "azure", "--tier", file) == 1
    assert "holds no ServiceTier but Deployment, Service, an object without a kind" in capsys.readouterr().err
