"""The demo's live table: what the clients see beside what the operator says and does."""

from __future__ import annotations

import sys
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from e2e.demo.story import ACTS, PROMISES, starts, total_seconds
from e2e.demo.timeline import Timeline
from e2e.load.report import LoadReport, Snapshot

#: Seconds of answers behind each shown P99: long enough for a few dozen requests, short enough to see a step.
WINDOW_SECONDS = 30

COLUMNS = ("tier", "req/s", "TTFT P99", "TPOT P99", "burn", "replicas", "seqs", "last decision")


def act_at(second: float) -> str:
    return next((act.name for act in reversed(ACTS) if second >= starts()[act.name]), ACTS[0].name)


def _against(value: float | None, target: int | None) -> str:
    shown = "–" if value is None else f"{value:.0f}"
    if target is None:
        return f"{shown} ms"
    color = "red" if value is not None and value > target else "green"
    return f"[{color}]{shown}[/] / {target} ms"


def render(report: LoadReport, timeline: Timeline) -> Table:
    """One frame."""
    elapsed = report.elapsed
    table = Table(title=f"{act_at(elapsed)}  {min(elapsed, total_seconds()):.0f} / {total_seconds()} s", expand=True)
    for name in COLUMNS:
        table.add_column(name, overflow="fold", ratio=4 if name == "last decision" else None)
    for tier, snapshot in report.window(WINDOW_SECONDS).items():
        table.add_row(tier, *_cells(tier, snapshot, timeline))
    bar = ProgressBar(total=total_seconds(), completed=min(elapsed, total_seconds()))
    outer = Table.grid(expand=True)
    outer.add_row(table)
    outer.add_row(bar)
    return outer


def _cells(tier: str, snapshot: Snapshot, timeline: Timeline) -> tuple[str, ...]:
    last, promise = timeline.last(tier), PROMISES[tier]
    latency = (_against(snapshot.ttft_p99_ms, promise.ttft_ms), _against(snapshot.tpot_p99_ms, promise.tpot_ms))
    if last is None:
        return (f"{snapshot.arrivals_per_s:.1f}", *latency, "", "", "", "")
    replicas = f"{last.ready}" if last.ready == last.desired else f"{last.ready} → {last.desired}"
    marks = [m for m in timeline.marks if m.tier == tier]
    said = f"{marks[-1].reason}: {marks[-1].message}" if marks else f"{last.reason}: {last.message}"
    return (f"{snapshot.arrivals_per_s:.1f}", *latency, last.burn, replicas, str(last.max_num_seqs), said)


class Screen:
    """A live table on a terminal; elsewhere the columns' names and one plain line a tier every ten seconds."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._console = Console()
        self._live = Live(console=self._console, refresh_per_second=2) if sys.stdout.isatty() else None
        self._shown = -10.0

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, report: LoadReport) -> None:
        if self._live:
            self._live.update(render(report, self._timeline))
        elif report.elapsed - self._shown >= 10:
            if self._shown < 0:
                print(f"{'at':>5}    {'act':18} {COLUMNS[0]:9} {' | '.join(COLUMNS[1:])}")
            self._shown = report.elapsed
            for tier, snapshot in report.window(WINDOW_SECONDS).items():
                cells = _cells(tier, snapshot, self._timeline)
                plain = " | ".join(cells).replace("[green]", "").replace("[red]", "").replace("[/]", "")
                print(f"{report.elapsed:5.0f} s  {act_at(report.elapsed):18} {tier:9} {plain}", flush=True)
