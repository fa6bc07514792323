"""The scoreboard: the control law beside its peers and beside an oracle, on the same traffic.

    python -m bench.policy                   every scenario and policy; hours, kept and resumed by content
    python -m bench.policy --quick           minutes: usual start-up, a part of each long scenario
    python -m bench.policy --faults          lost scrapes, NaN, resets, a frozen source, wrong profiles, slow starts
    python -m bench.policy --tune            find the peers' settings on other traffic anew (bench/policy/tuned.json)

Writes policy.json, .html, .md and .png into build/bench; with --picture the last one is docs/images/policy.png.
--faults writes policy-faults.json there instead. Interrupted, it keeps what is finished: run it again to go on.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import tempfile
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.policy import jobs, tuning
from bench.policy.board import NONE, SUMMARY, Line, Sheet, as_dict, columns, markdown, summary
from bench.policy.checks import little
from bench.policy.faults import FAULTS
from bench.policy.jobs import Job
from bench.policy.measures import Row
from bench.policy.page import page, picture
from bench.policy.policies import GRIDS, HERE, Entry, chosen, missing
from bench.policy.runner import Runner
from bench.policy.scenarios import SCENARIOS, STARTUPS
from bench.policy.screen import say, show

OUT = Path("build/bench")
PICTURE = Path("docs/images/policy.png")

MATRIX_SCENARIOS = ("azure-2023", "step-2x", "three-tiers")
"""Where faults are tried: recorded bursts, a step, and several tiers."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 for a value that cannot be used, found before the first run, and where Little's law is broken; 130
    after an interrupt."""
    options = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 220)
    try:
        _check(options)
        entries, names = chosen(options.policy), _scenarios(options.scenario)
        runner = Runner(workers=options.jobs)
    except ValueError as error:
        print(f"bench.policy: {error}", file=sys.stderr)
        return 1
    try:
        return _play(console, runner, entries, names, options)
    except KeyboardInterrupt:
        print("bench.policy: interrupted; what is finished is kept, run it again to go on", file=sys.stderr)
        return 130


def _play(
    console: Console, runner: Runner, entries: Sequence[Entry], names: list[str], options: argparse.Namespace
) -> int:
    if options.tune:
        peers = [name for name in GRIDS if not options.policy or any(fnmatchcase(name, p) for p in options.policy)]
        found = tuning.tune(runner, peers, quick=options.quick, seed=options.seed, command=_command(options))
        _show_tuned(console, found)
        return 0
    if options.faults:
        rows = _matrix(console, runner, entries, names if options.scenario else list(MATRIX_SCENARIOS), options)
        return _checked(console, ((f"{row['scenario']}, {row['fault']}, {row['policy']}", row) for row in rows))
    sheets = _sheets(runner, entries, names, options)
    _print(console, sheets, _notes(sheets, options.policy))
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


def _check(options: argparse.Namespace) -> None:
    """Raises ValueError for a value that no run can use or a folder that takes no file: hours of runs come first."""
    if options.seed < 0:
        raise ValueError(f"--seed {options.seed}: give 0 or more")
    for seconds in options.startup:
        if not 0 <= seconds < math.inf:
            raise ValueError(f"--startup {seconds:g}: give seconds, 0 or more")
    if not options.tune:
        _takes_files("--out", options.out)
    if options.picture:
        _takes_files("--picture", PICTURE.parent)


def _takes_files(option: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (FileExistsError, NotADirectoryError) as error:
        raise ValueError(f"{option} {folder}: {error.filename} is no folder; give another one") from error
    except OSError as error:
        raise ValueError(f"{option} {folder}: cannot be written: {error.strerror}; give another folder") from error


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
    say(console, told)
    return 0 if holds else 1


def _print(console: Console, sheets: Sequence[Sheet], notes: Sequence[str]) -> None:
    for sheet in sheets:
        shown = columns(sheet)
        show(
            console,
            f"{sheet.title}: {sheet.story}",
            [name for name, _, _ in shown],
            [[text(sheet, line) for _, _, text in shown] for line in sheet.lines],
            styles=["bold" if line.policy == "tierkeeper" else "dim" if line.knows else None for line in sheet.lines],
        )
    heads = [name for name, _ in SUMMARY]
    show(console, "All of them together", heads, summary(sheets), left=(0, len(heads) - 1))
    for note in notes:
        say(console, note)


def _notes(sheets: Sequence[Sheet], asked: Sequence[str]) -> list[str]:
    """What the signs in the tables mean, where they are there, and why a policy that was asked for is not."""
    lines = [line for sheet in sheets for line in sheet.lines]
    notes = []
    if not all(line.row["kept"] for line in lines):
        notes.append("* an objective was missed in some tier.")
    if any(sheet.bound is None for sheet in sheets):
        notes.append(f"{NONE} under / oracle and efficiency: no oracle to compare with; add --policy budget-oracle.")
    if any(line.row.get("worst_hour_burn") is None for line in lines):
        notes.append(f"{NONE} beside an oracle: a schedule from the whole traffic, which takes no decisions.")
    reason = missing("dynamo")
    if reason and (not asked or any(fnmatchcase("dynamo", pattern) for pattern in asked)):
        notes.append(f"No row for dynamo: {reason}")
    return notes


def _write(sheets: Sequence[Sheet], options: argparse.Namespace) -> None:
    drawn = PICTURE if options.picture else options.out / PICTURE.name
    whole: dict[str, Any] = {"command": _command(options), "seed": options.seed, "quick": options.quick}
    whole["sheets"] = [as_dict(sheet) for sheet in sheets]
    notes = [_command(options), *_notes(sheets, options.policy)]
    picture(sheets, drawn)
    texts = {
        "policy.json": json.dumps(whole, ensure_ascii=False, indent=1) + "\n",
        "policy.html": page(sheets, title="The policy scoreboard", notes=notes, drawn=drawn.read_bytes()),
        "policy.md": markdown(sheets),
    }
    for name, text in texts.items():
        (options.out / name).write_text(text, encoding="utf-8")
    _wrote(*(options.out / name for name in texts), drawn)


def _wrote(*files: Path) -> None:
    print(f"wrote {', '.join(str(file) for file in files)}", file=sys.stderr)


def _matrix(
    console: Console, runner: Runner, entries: Sequence[Entry], names: Sequence[str], options: argparse.Namespace
) -> list[Row]:
    """Attainment by fault, how far it is from the same run without one, and GPU-hours. The rows, with what each is
    of."""
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
    written: list[Row] = []
    for name in names:
        clean: dict[str, float] = {}
        lines = []
        for fault in found:
            cells = []
            for entry in shown:
                row = next(rows)
                cells.append(_fault_cell(row, clean.get(entry.name)))
                clean.setdefault(entry.name, row["attainment"])
                written.append({"scenario": name, "fault": fault.name, "policy": entry.name, **row})
            lines.append([f"{fault.name}: {fault.about}", *cells])
        title = f"{name}: attainment (points against no fault) and GPU-hours"
        show(console, title, ["fault", *(entry.name for entry in shown)], lines)
    blind = [f"{row['scenario']}, {row['fault']}, {row['policy']}" for row in written if row["blind_shrinks"]]
    say(console, f"Replicas were taken away while the metrics could not be believed: {'; '.join(blind) or 'never'}.")
    file = options.out / "policy-faults.json"
    text = json.dumps({"command": _command(options), "rows": written}, ensure_ascii=False, indent=1)
    file.write_text(text + "\n", encoding="utf-8")
    _wrote(file)
    return written


def _fault_cell(row: Row, clean: float | None) -> str:
    """``99.17 % (-0.49), 16.1``; without a difference where there is nothing to compare with."""
    points = "" if clean is None else f" ({round(100 * (row['attainment'] - clean), 2) + 0.0:+.2f})"
    return f"{100 * row['attainment']:.2f} %{points}, {row['gpu_hours']:,.1f}"


def _show_tuned(console: Console, found: Any) -> None:
    lines, styles = [], []
    for peer, changed in found["chosen"].items():
        for trial in found["trials"][peer]:
            knob = {name: value for name, value in trial.items() if name not in ("attainment", "gpuHours")}
            lines.append([peer, str(knob), str(trial["attainment"]), str(trial["gpuHours"])])
            styles.append("bold" if all(trial[name] == value for name, value in changed.items()) else None)
    heads = ["peer", "setting", "attainment", "GPU-hours"]
    show(console, "Chosen on the tuning traffic", heads, lines, styles=styles, left=range(4))


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
