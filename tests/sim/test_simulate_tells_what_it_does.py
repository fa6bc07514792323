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
    error = capsys.readouterr().err
    assert error.splitlines()[0] == "static: 29% of 34 min simulated"
    assert len(error.splitlines()) == 3


def test_a_short_run_in_a_pipe_says_nothing_of_it(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--trace", trace, "--format", "azure", "--policy", "static") == 0
    assert capsys.readouterr().err == ""
