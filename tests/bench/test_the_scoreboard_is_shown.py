"""The scoreboard as table, page and picture, and the choice of a tuned setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.policy.__main__ import main
from bench.policy.board import Line, Sheet, columns, markdown, summary
from bench.policy.measures import Row
from bench.policy.page import page, picture
from bench.policy.policies import GRIDS, tuned
from bench.policy.tuning import Trial, choose


def row(*, attainment: float, hours: float, kept: bool = True) -> Row:
    return {
        "requests": 1000,
        "good": round(1000 * attainment),
        "attainment": attainment,
        "kept": kept,
        "budget_use": (1 - attainment) / 0.01,
        "worst_hour_burn": 1.0,
        "gpu_hours": hours,
        "reversals_per_day": 0.0,
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


def test_a_missed_objective_is_marked() -> None:
    assert cells(sheet(), "hpa")["attainment"] == "95.00 % *"


def test_reactions_are_not_shown_where_nothing_changes() -> None:
    assert "first action" not in cells(sheet(), "hpa")


def test_the_summary_counts_kept_promises_and_takes_ratios_of_recorded_traffic_only() -> None:
    lines = {line[0]: line for line in summary([sheet(), sheet("step", recorded=False)])}
    assert lines["tierkeeper"][1:5] == ["2 of 2", "99.50 %", "1 of 1", "1.10"]
    assert lines["hpa"][1] == "0 of 2"


def test_the_page_holds_every_policy_and_escapes_what_it_is_given() -> None:
    text = page([sheet()], title="t", notes=[])
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


def test_every_tuned_setting_is_one_of_its_grid() -> None:
    found = tuned()
    assert found
    assert all(changed in [dict(one) for one in GRIDS[peer]] for peer, changed in found.items())
