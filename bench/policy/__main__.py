"""The scoreboard: the control law beside its peers and beside an oracle, on the same traffic.

    python -m bench.policy                   every scenario and policy; hours, kept and resumed by content
    python -m bench.policy --quick           minutes: usual start-up, a part of each long scenario
    python -m bench.policy --faults          lost scrapes, NaN, resets, a frozen source, wrong profiles, slow starts
    python -m bench.policy --tune            find the peers' settings on other traffic anew (bench/policy/tuned.json)

Writes policy.json, .html, .md and .png into build/bench; with --picture the last one is docs/images/policy.png.
--faults writes policy-faults.json there instead.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.policy import jobs, tuning
from bench.policy.board import SUMMARY, Line, Sheet, as_dict, columns, markdown, summary
from bench.policy.checks import little
from bench.policy.faults import FAULTS
from bench.policy.jobs import Job
from bench.policy.measures import Row
from bench.policy.page import page, picture
from bench.policy.policies import GRIDS, HERE, Entry, chosen, missing
from bench.policy.runner import Runner
from bench.policy.scenarios import SCENARIOS, STARTUPS

OUT = Path("build/bench")
PICTURE = Path("docs/images/policy.png")

MATRIX_SCENARIOS = ("azure-2023", "step-2x", "three-tiers")
"""Where faults are tried: recorded bursts, a step, and several tiers."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 220)
    try:
        entries, names = chosen(options.policy), _scenarios(options.scenario)
        runner = Runner(workers=options.jobs)
    except ValueError as error:
        print(f"bench.policy: {error}", file=sys.stderr)
        return 1
    if options.tune:
        peers = [name for name in GRIDS if not options.policy or any(fnmatchcase(name, p) for p in options.policy)]
        found = tuning.tune(runner, peers, quick=options.quick, seed=options.seed, command=_command(options))
        _show_tuned(console, found)
        return 0
    if options.faults:
        rows = _matrix(console, runner, entries, names if options.scenario else list(MATRIX_SCENARIOS), options)
        return _checked(console, ((f"{row['scenario']}, {row['fault']}, {row['policy']}", row) for row in rows))
    sheets = _sheets(runner, entries, names, options)
    _print(console, sheets)
    _write(sheets, options)
    return _checked(console, ((f"{sheet.title}, {line.policy}", line.row) for sheet in sheets for line in sheet.lines))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.policy", description="The policy scoreboard.")
    parser.add_argument("--quick", action="store_true", help="the usual start-up, a part of each long scenario")
    parser.add_argument("--scenario", action="append", default=[], metavar="NAME", help="only these; may be a pattern")
    parser.add_argument("--policy", action="append", default=[], metavar="NAME", help="only these; may be a pattern")
    parser.add_argument("--startup", action="append", default=[], type=float, metavar="S", help="median start-up times")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (0)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (1)")
    parser.add_argument("--here", action="store_true", help=f"tune {' and '.join(HERE)} on each recorded scenario too")
    parser.add_argument("--faults", action="store_true", help="the fault matrix instead: policy-faults.json")
    parser.add_argument("--tune", action="store_true", help="find the peers' settings on the tuning scenarios")
    parser.add_argument("--picture", action="store_true", help=f"draw {PICTURE} rather than beside the rest")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help=f"where results go ({OUT})")
    return parser


def _scenarios(patterns: Sequence[str]) -> list[str]:
    every = list(SCENARIOS)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in every):
            raise ValueError(f"--scenario {pattern}: no such scenario; there are {', '.join(every)}")
    return [name for name in every if not patterns or any(fnmatchcase(name, p) for p in patterns)]


def _sheets(runner: Runner, entries: Sequence[Entry], names: list[str], options: argparse.Namespace) -> list[Sheet]:
    """Every scenario and start-up with all entries, in order; what is stored is not run again."""
    places = [
        (name, startup)
        for name in names
        for startup in jobs.startups(name, tuple(options.startup), STARTUPS, quick=options.quick)
    ]
    wanted = [Job(name, entry, startup, options.seed, options.quick) for name, startup in places for entry in entries]
    rows = runner(wanted)
    sheets = []
    for number, (name, startup) in enumerate(places):
        found = rows[number * len(entries) : (number + 1) * len(entries)]
        lines = [Line(e.name, row, e.about, e.knows) for e, row in zip(entries, found, strict=True)]
        for peer in HERE if options.here and found[0]["recorded"] else ():
            entry, row = tuning.tuned_here(
                runner, peer, name, startup_seconds=startup, quick=options.quick, seed=options.seed
            )
            lines.append(Line(entry.name, row, entry.about, entry.knows))
        sheets.append(Sheet(name, found[0]["story"], startup, found[0]["recorded"], lines))
    return sheets


def _checked(console: Console, runs: Iterable[tuple[str, Row]]) -> int:
    """The exit status: 1 where a run breaks Little's law, whose figures are then worth nothing."""
    told, holds = little(runs)
    console.print(told, highlight=False, markup=False, soft_wrap=True)
    return 0 if holds else 1


def _print(console: Console, sheets: Sequence[Sheet]) -> None:
    for sheet in sheets:
        shown = columns(sheet)
        table = Table(title=f"{sheet.title}: {sheet.story}", title_justify="left")
        for number, (name, _, _) in enumerate(shown):
            table.add_column(name, justify="right" if number else "left")
        for line in sheet.lines:
            style = "bold" if line.policy == "tierkeeper" else "dim" if line.knows else None
            table.add_row(*(text(sheet, line) for _, _, text in shown), style=style)
        console.print(table)
    table = Table(title="All of them together", title_justify="left")
    for number, (name, _) in enumerate(SUMMARY):
        table.add_column(name, justify="right" if 0 < number < len(SUMMARY) - 1 else "left")
    for cells in summary(sheets):
        table.add_row(*cells)
    console.print(table)
    for note in _notes():
        console.print(note, highlight=False, markup=False, soft_wrap=True)


def _notes() -> list[str]:
    reason = missing("dynamo")
    notes = ["* an objective was missed in some tier."]
    return [*notes, f"No row for dynamo: {reason}"] if reason else notes


def _write(sheets: Sequence[Sheet], options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    whole: dict[str, Any] = {"command": _command(options), "seed": options.seed, "quick": options.quick}
    whole["sheets"] = [as_dict(sheet) for sheet in sheets]
    (options.out / "policy.json").write_text(json.dumps(whole, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    text = page(sheets, title="The policy scoreboard", notes=[_command(options), *_notes()])
    (options.out / "policy.html").write_text(text, encoding="utf-8")
    (options.out / "policy.md").write_text(markdown(sheets), encoding="utf-8")
    picture(sheets, PICTURE if options.picture else options.out / PICTURE.name)


def _matrix(
    console: Console, runner: Runner, entries: Sequence[Entry], names: Sequence[str], options: argparse.Namespace
) -> list[Row]:
    """Attainment by fault, and how far it is below the same run without one. The rows, with what each is of."""
    shown = [entry for entry in entries if entry.make is not None and not entry.knows]
    shown = shown if options.policy else shown[:1]
    found = list(FAULTS.values())
    startup = options.startup[0] if options.startup else 120.0
    wanted = [
        Job(name, entry, startup, options.seed, options.quick, fault)
        for name in names
        for fault in found
        for entry in shown
    ]
    rows = iter(runner(wanted))
    written = []
    for name in names:
        table = Table(title=f"{name}: attainment, and blind shrinks", title_justify="left")
        table.add_column("fault")
        for entry in shown:
            table.add_column(entry.name, justify="right")
        clean: dict[str, float] = {}
        for fault in found:
            cells = []
            for entry in shown:
                row = next(rows)
                clean.setdefault(entry.name, row["attainment"])
                cells.append(_fault_cell(row, clean[entry.name]))
                written.append({"scenario": name, "fault": fault.name, "policy": entry.name, **row})
            table.add_row(f"{fault.name}: {fault.about}", *cells)
        console.print(table)
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"command": _command(options), "rows": written}, ensure_ascii=False, indent=1)
    (options.out / "policy-faults.json").write_text(text + "\n", encoding="utf-8")
    return written


def _fault_cell(row: dict[str, Any], clean: float) -> str:
    points = 100 * (row["attainment"] - clean)
    blind = f", {row['blind_shrinks']} blind" if row["blind_shrinks"] else ""
    return f"{100 * row['attainment']:.2f} % ({points:+.2f}){blind}"


def _show_tuned(console: Console, found: Any) -> None:
    table = Table(title="Chosen on the tuning traffic", title_justify="left")
    for name in ("peer", "setting", "attainment", "GPU-hours"):
        table.add_column(name)
    for peer, changed in found["chosen"].items():
        for trial in found["trials"][peer]:
            best = all(trial[name] == value for name, value in changed.items())
            knob = {name: value for name, value in trial.items() if name not in ("attainment", "gpuHours")}
            cells = (peer, str(knob), str(trial["attainment"]), str(trial["gpuHours"]))
            table.add_row(*cells, style="bold" if best else None)
    console.print(table)


def _command(options: argparse.Namespace) -> str:
    flags = [f"--{name}" for name in ("quick", "here", "faults", "tune", "picture") if getattr(options, name)]
    lists = [
        f"--{name} {shlex.quote(str(value))}"
        for name in ("scenario", "policy", "startup")
        for value in getattr(options, name)
    ]
    seed = [f"--seed {options.seed}"] if options.seed else []
    return " ".join(["python -m bench.policy", *flags, *lists, *seed])


if __name__ == "__main__":
    sys.exit(main())
