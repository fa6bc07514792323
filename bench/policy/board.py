"""The scoreboard as text: what each policy kept and what it took, by scenario and over all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.policy.measures import Row
from tierkeeper.sim.report import reversals

NONE = "–"


@dataclass(frozen=True, slots=True)
class Line:
    """One policy on one scenario."""

    policy: str
    row: Row
    about: str = ""
    knows: bool = False
    """No rival: it knows the traffic."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """All policies on one scenario."""

    scenario: str
    story: str
    startup_seconds: float
    recorded: bool
    lines: Sequence[Line] = field(default_factory=tuple)

    @property
    def title(self) -> str:
        return f"{self.scenario}, start-up {self.startup_seconds:g} s"

    @property
    def bound(self) -> Row | None:
        """The budget-aware oracle's figures, where it was run."""
        return next((line.row for line in self.lines if line.policy == "budget-oracle"), None)

    def ratio(self, line: Line) -> float:
        """GPU-hours / the budget-aware oracle's."""
        return line.row["gpu_hours"] / self.bound["gpu_hours"] if self.bound else math.nan

    def efficiency(self, line: Line) -> float:
        """Good requests per GPU-hour / the budget-aware oracle's."""
        if not self.bound:
            return math.nan
        mine, best = (row["good"] / row["gpu_hours"] for row in (line.row, self.bound))
        return float(mine / best)


Column = tuple[str, str, Callable[[Sheet, Line], str]]

COLUMNS: Sequence[Column] = (
    ("policy", "The policy", lambda _, line: line.policy),
    ("attainment", "Requests that met every target, of all that arrived", lambda _, line: _attainment(line.row)),
    ("budget used", "Bad requests / the error budget", lambda _, line: _percent(line.row.get("budget_use"), 0)),
    ("worst 1 h burn", "Budgets an hour spends at its worst", lambda _, line: _number(line.row.get("worst_hour_burn"))),
    ("GPU-hours", "From each pod scheduled until gone", lambda _, line: f"{line.row['gpu_hours']:,.1f}"),
    ("/ oracle", "GPU-hours / the budget-aware oracle's", lambda sheet, line: _number(sheet.ratio(line), 2)),
    (
        "efficiency",
        "Good requests per GPU-hour / the budget-aware oracle's",
        lambda sheet, line: _number(sheet.efficiency(line), 2),
    ),
    (
        "reversals",
        "Directions changed within twice the start-up; a day, in runs of a day or more",
        lambda _, line: _reversals(line.row),
    ),
    (
        "first action",
        "Seconds from the change of the load to the first change of a lever",
        lambda _, line: _reactions(line.row, "first_action", _seconds),
    ),
    (
        "back within SLO",
        "Seconds from the change to five minutes within the SLO",
        lambda _, line: _reactions(line.row, "recovered", _seconds, never="never"),
    ),
    (
        "overshoot",
        "Most replicas / those of the last ten minutes",
        lambda _, line: _reactions(line.row, "overshoot", _number2),
    ),
    (
        "TPOT back",
        "Minutes from the change until P99 TPOT is within its target for two minutes",
        lambda _, line: _reactions(line.row, "minutes_back", _minutes, never="never"),
    ),
    ("late TPOT", "All minutes whose P99 TPOT missed the target", lambda _, line: _late(line.row)),
    (
        "inversions",
        "Seconds in which a lower tier grew while a higher one burned",
        lambda _, line: _seconds(line.row.get("inversion_seconds")),
    ),
)
_CHANGES = ("first action", "back within SLO", "overshoot", "TPOT back", "late TPOT")


def columns(sheet: Sheet) -> list[Column]:
    """Those that say something of a scenario: reactions where something changes, inversions where GPUs are shared."""
    changes = any(_by_change(line.row) for line in sheet.lines)
    shared = any(len(line.row.get("tiers", {})) > 1 for line in sheet.lines)
    return [one for one in COLUMNS if (one[0] not in _CHANGES or changes) and (one[0] != "inversions" or shared)]


SUMMARY: Sequence[tuple[str, str]] = (
    ("policy", "The policy, with one setting for all scenarios"),
    ("kept", "Scenarios in which every tier kept its objective"),
    ("lowest", "The lowest attainment of all scenarios"),
    ("traces kept", "The same of those with recorded traffic"),
    ("traces / oracle", "Geometric mean of GPU-hours / the budget-aware oracle's over the recorded ones"),
    ("efficiency", "Geometric mean of good requests per GPU-hour / the oracle's, over all"),
    ("settings", "What it was set to"),
)


def summary(sheets: Sequence[Sheet]) -> list[list[str]]:
    """One line a policy, in the order of ``SUMMARY``."""
    names = list(dict.fromkeys(line.policy for sheet in sheets for line in sheet.lines))
    return [_summed(name, [(s, line) for s in sheets for line in s.lines if line.policy == name]) for name in names]


def markdown(sheets: Sequence[Sheet]) -> str:
    """All tables for a document: the summary first."""
    parts = [_grid([name for name, _ in SUMMARY], summary(sheets))]
    for sheet in sheets:
        shown = columns(sheet)
        lines = [[text(sheet, line) for _, _, text in shown] for line in sheet.lines]
        parts.append(f"**{sheet.title}**: {sheet.story}\n\n{_grid([name for name, _, _ in shown], lines)}")
    return "\n\n".join(parts) + "\n"


def _grid(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [heads, ["---", *["---:"] * (len(heads) - 1)], *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def as_dict(sheet: Sheet) -> Mapping[str, Any]:
    """A sheet as its file holds it."""
    return {
        "scenario": sheet.scenario,
        "story": sheet.story,
        "startup_seconds": sheet.startup_seconds,
        "recorded": sheet.recorded,
        "policies": [
            {
                "policy": line.policy,
                "about": line.about,
                "knows_the_traffic": line.knows,
                "ratio_to_oracle": _json(sheet.ratio(line)),
                "efficiency": _json(sheet.efficiency(line)),
                **line.row,
            }
            for line in sheet.lines
        ],
    }


def _summed(name: str, found: Sequence[tuple[Sheet, Line]]) -> list[str]:
    traces = [(sheet, line) for sheet, line in found if sheet.recorded]
    return [
        name,
        f"{sum(line.row['kept'] for _, line in found)} of {len(found)}",
        _percent(min(line.row["attainment"] for _, line in found), 2),
        f"{sum(line.row['kept'] for _, line in traces)} of {len(traces)}" if traces else NONE,
        _number(_mean(sheet.ratio(line) for sheet, line in traces), 2),
        _number(_mean(sheet.efficiency(line) for sheet, line in found), 2),
        found[0][1].about,
    ]


def _mean(values: Iterable[float]) -> float:
    """The geometric one; NaN without values or with one that is not known."""
    known = list(values)
    if not known or not all(value > 0 for value in known):
        return math.nan
    return math.exp(sum(math.log(value) for value in known) / len(known))


def _by_change(row: Row) -> list[list[Row]]:
    """Reactions by tier."""
    return [tier["reactions"] for tier in row.get("tiers", {}).values() if tier.get("reactions")]


def _attainment(row: Row) -> str:
    return _percent(row["attainment"], 2) + ("" if row["kept"] else " *")


def _reversals(row: Row) -> str:
    per_day = row.get("reversals_per_day")
    return NONE if per_day is None else reversals(per_day, seconds=row["seconds"])


def _late(row: Row) -> str:
    tiers = _by_change(row)
    return f"{sum(one['late_minutes'] for tier in tiers for one in tier):.0f} min" if tiers else NONE


def _reactions(row: Row, name: str, shown: Callable[[float | None], str], *, never: str = NONE) -> str:
    """One value a change of a single tier; of several tiers the range would say little, see the file."""
    tiers = _by_change(row)
    if len(tiers) != 1:
        return NONE
    return " / ".join(never if one[name] is None else shown(one[name]) for one in tiers[0])


def _percent(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{100 * value:.{digits}f} %"


def _number(value: float | None, digits: int = 1) -> str:
    return NONE if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def _number2(value: float | None) -> str:
    return _number(value, 2)


def _seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.0f} s"


def _minutes(value: float | None) -> str:
    return NONE if value is None else f"{value:.0f} min"


def _json(value: float) -> float | None:
    return value if math.isfinite(value) else None
