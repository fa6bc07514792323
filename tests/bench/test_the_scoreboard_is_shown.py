"""The scoreboard as table, page and picture, and the choice of a tuned setting."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from bench.policy import __main__ as scoreboard
from bench.policy import cache, jobs
from bench.policy.__main__ import main
from bench.policy.board import Line, Sheet, columns, markdown, summary
from bench.policy.faults import FAULTS
from bench.policy.jobs import Job
from bench.policy.measures import Row
from bench.policy.page import page, picture
from bench.policy.policies import GRIDS, entries, tuned
from bench.policy.scenarios import Scenario
from bench.policy.tuning import Trial, choose
from tests.bench import small

BOTH = ("--scenario", "cap-8", "--startup", "60", "--policy", "tierkeeper", "--policy", "hpa")


def row(*, attainment: float, hours: float, kept: bool = True) -> Row:
    return {
        "requests": 1000,
        "good": round(1000 * attainment),
        "attainment": attainment,
        "kept": kept,
        "budget_use": (1 - attainment) / 0.01,
        "worst_hour_burn": 1.0,
        "gpu_hours": hours,
        "reversals_per_day": 48.0,
        "seconds": 1800.0,
        "inversion_seconds": 0.0,
        "tiers": {},
    }


def sheet(name: str = "day", *, recorded: bool = True) -> Sheet:
    lines = [
        Line("tierkeeper", row(attainment=0.995, hours=11.0)),
        Line("hpa", row(attainment=0.95, hours=10.0, kept=False)),
        Line("budget-oracle", row(attainment=0.99, hours=10.0), knows=True),
    ]
    return Sheet(name, "a <day>", 120.0, recorded, lines)


def cells(of: Sheet, policy: str) -> dict[str, str]:
    line = next(one for one in of.lines if one.policy == policy)
    return {name: text(of, line) for name, _, text in columns(of)}


def test_hours_and_efficiency_are_told_against_the_budget_aware_oracle() -> None:
    seen = cells(sheet(), "tierkeeper")
    assert seen["/ oracle"] == "1.10"
    assert seen["efficiency"] == "0.91"
    assert seen["attainment"] == "99.50 %"


def test_reversals_of_half_an_hour_are_a_count() -> None:
    assert cells(sheet(), "tierkeeper")["reversals"] == "1"


def test_the_page_holds_the_picture() -> None:
    drawn = page([sheet()], title="t", notes=[], drawn=b"picture")
    assert 'src="data:image/png;base64,cGljdHVyZQ=="' in drawn


def test_a_missed_objective_is_marked() -> None:
    assert cells(sheet(), "hpa")["attainment"] == "95.00 % *"


def test_reactions_are_not_shown_where_nothing_changes() -> None:
    assert "first action" not in cells(sheet(), "hpa")


def test_the_summary_counts_kept_promises_and_takes_ratios_of_recorded_traffic_only() -> None:
    lines = {line[0]: line for line in summary([sheet(), sheet("step", recorded=False)])}
    assert lines["tierkeeper"][1:5] == ["2 of 2", "99.50 %", "1 of 1", "1.10"]
    assert lines["hpa"][1] == "0 of 2"


def test_the_page_holds_every_policy_and_escapes_what_it_is_given() -> None:
    text = page([sheet()], title="t", notes=[], drawn=b"picture")
    assert "a &lt;day&gt;" in text
    assert all(f">{name}<" in text for name in ("tierkeeper", "hpa", "budget-oracle"))
    assert "http://" not in text
    assert "<script" not in text


def test_every_line_of_a_markdown_table_has_as_many_cells() -> None:
    tables = markdown([sheet()]).split("\n\n")
    for table in (tables[0], tables[2]):
        assert len({line.count("|") for line in table.strip().splitlines()}) == 1


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    picture([sheet()], tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_tuning_takes_the_cheapest_that_keeps_the_promise_everywhere() -> None:
    cheap = Trial({"x": 1}, [row(attainment=0.98, hours=5.0, kept=False), row(attainment=1.0, hours=5.0)])
    good = Trial({"x": 2}, [row(attainment=0.99, hours=8.0), row(attainment=0.99, hours=8.0)])
    dear = Trial({"x": 3}, [row(attainment=1.0, hours=9.0), row(attainment=1.0, hours=9.0)])
    assert choose([cheap, good, dear]) is good


def test_tuning_takes_the_least_bad_where_nothing_keeps_it() -> None:
    one = Trial({"x": 1}, [row(attainment=0.9, hours=5.0, kept=False), row(attainment=0.5, hours=5.0, kept=False)])
    two = Trial({"x": 2}, [row(attainment=0.8, hours=9.0, kept=False), row(attainment=0.7, hours=9.0, kept=False)])
    assert choose([one, two]) is two


@pytest.mark.parametrize("flag", ["--scenario", "--policy"])
def test_an_unknown_name_is_refused_with_those_there_are(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag, "nonsense"]) == 1
    told = capsys.readouterr().err
    assert "nonsense" in told
    assert "step-2x" in told or "tierkeeper" in told


def test_no_process_is_refused_with_the_flag_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--jobs", "0"]) == 1
    assert "bench.policy: --jobs 0" in capsys.readouterr().err


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is done at once, and nothing is stored."""

    def do(job: Job, *_: object) -> Row:
        hours = 12.0 if job.fault.name == "frozen" else 10.0
        story = {"story": "a day", "recorded": True, "blind_shrinks": 0}
        return row(attainment=0.995 if job.fault.name == "down" else 0.9951, hours=hours) | story

    monkeypatch.setattr(jobs, "done", lambda _: None)
    monkeypatch.setattr(jobs, "do", do)


def terminal(monkeypatch: pytest.MonkeyPatch, *, columns: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--seed", "-1"], "--seed -1: give 0 or more"),
        (["--startup", "-1"], "--startup -1: give seconds"),
        (["--startup", "nan"], "--startup nan: give seconds"),
        (["--startup", "inf"], "--startup inf: give seconds"),
        (["--out", __file__], "is no folder"),
        (["--out", f"{__file__}/below"], "is no folder"),
        (["--out", "/proc/below"], "--out /proc/below: cannot be written"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_run(
    given: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "do", lambda *_: pytest.fail("something was played"))
    assert main(given) == 1
    said = capsys.readouterr().err
    assert said.startswith("bench.policy: --")
    assert told in said
    assert said.count("\n") == 1


@pytest.mark.usefixtures("instant")
def test_a_pipe_is_told_what_begins_and_where_results_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", "cap-*", "--policy", "hpa", "--startup", "60", "--out", str(tmp_path)]) == 0
    first, second, wrote = capsys.readouterr().err.splitlines()
    assert first == "1 of 2: cap-8, start-up 60 s, hpa"
    assert second == "2 of 2: cap-256, start-up 60 s, hpa"
    assert wrote.removeprefix("wrote ").split(", ") == [
        str(tmp_path / name) for name in ("policy.json", "policy.html", "policy.md", "policy.png")
    ]
    assert all(Path(file).stat().st_size for file in wrote.removeprefix("wrote ").split(", "))


@pytest.mark.usefixtures("instant")
def test_faults_are_named_as_they_begin_and_shown_with_their_gpu_hours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--faults", "--scenario", "cap-8", "--policy", "hpa", "--out", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    lines = {name: next(line for line in out.splitlines() if f" {name}: " in line) for name in ("none", *FAULTS)}
    assert "99.51 %, 10.0" in lines["none"]
    assert "99.50 % (-0.01), 10.0" in lines["down"]
    assert "99.51 % (+0.00), 12.0" in lines["frozen"]
    assert "could not be believed: never." in out
    assert "cap-8, start-up 120 s, hpa, fault down" in err
    assert "cap-8, start-up 600 s, hpa, fault start-600" in err
    assert err.splitlines()[-1] == f"wrote {tmp_path / 'policy-faults.json'}"


@pytest.mark.usefixtures("instant")
def test_a_figure_without_an_oracle_says_what_to_add(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    advice = "no oracle to compare with; add --policy budget-oracle"
    given = ["--scenario", "cap-8", "--startup", "60", "--policy", "hpa", "--out", str(tmp_path)]
    main(given)
    assert advice in capsys.readouterr().out
    main([*given, "--policy", "budget-oracle"])
    assert advice not in capsys.readouterr().out


@pytest.mark.usefixtures("instant")
@pytest.mark.parametrize(("asked", "hinted"), [([], True), (["*"], True), (["d*", "hpa"], True), (["hpa"], False)])
def test_what_a_missing_peer_needs_is_told_to_who_asked_for_it(
    asked: list[str],
    hinted: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = entries()
    monkeypatch.setattr(scoreboard, "chosen", lambda _: every[:1])
    monkeypatch.setattr(scoreboard, "missing", lambda _: "not installed")
    main(["--scenario", "cap-8", "--startup=60", "--out", str(tmp_path), *(f"--policy={name}" for name in asked)])
    assert ("No row for dynamo: not installed" in capsys.readouterr().out) is hinted


@pytest.mark.usefixtures("instant")
def test_on_a_narrow_terminal_every_policy_is_a_block_of_whole_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal(monkeypatch, columns=80)
    main([*BOTH, "--out", str(tmp_path)])
    lines = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
    board = lines[: next(place for place, line in enumerate(lines) if "All of them together" in line)]
    assert [line for line in board if line in ("tierkeeper", "hpa")] == ["tierkeeper", "hpa"]
    assert [line.split() for line in board if "GPU-hours" in line] == [["GPU-hours", "10.0"]] * 2
    assert "…" not in "".join(lines)


@pytest.mark.usefixtures("instant")
def test_on_a_wide_terminal_the_policies_share_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal(monkeypatch, columns=200)
    main([*BOTH, "--out", str(tmp_path)])
    assert len(re.findall("GPU-hours", capsys.readouterr().out)) == 1


def test_an_interrupt_is_one_line_and_keeps_what_is_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def traffic(name: str, *_: object) -> Scenario:
        if name == "cap-256":
            raise KeyboardInterrupt
        return small.scenario()

    monkeypatch.setattr(jobs, "traffic", traffic)
    monkeypatch.setattr(cache, "FOLDER", tmp_path / "cache")
    assert main(["--scenario", "cap-*", "--policy", "hpa", "--startup", "60", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err.splitlines()[2:] == [
        "bench.policy: interrupted; what is finished is kept, run it again to go on"
    ]
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_every_tuned_setting_is_one_of_its_grid() -> None:
    found = tuned()
    assert found
    assert all(changed in [dict(one) for one in GRIDS[peer]] for peer, changed in found.items())
