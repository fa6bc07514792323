"""Runs jobs, with what is stored first, one bar for all, in one process or several."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from bench.policy import jobs
from bench.policy.jobs import Job
from bench.policy.measures import Row


class Runner:
    """Call it with jobs to get their rows in the same order. Interrupted, it loses the runs under way only."""

    def __init__(self, *, workers: int = 1) -> None:
        if workers < 1:
            raise ValueError(f"--jobs {workers}: give 1 or more processes")
        self._workers = workers

    def __call__(self, wanted: Sequence[Job]) -> list[Row]:
        found = [jobs.done(job) for job in wanted]
        todo = [place for place, row in enumerate(found) if row is None]
        if todo:
            bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[share]}"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
                disable=not sys.stderr.isatty(),
            )
            with bar:
                task = bar.add_task("policies", total=len(todo), share="")
                for place, row in self._run(wanted, todo, bar, task):
                    found[place] = row
                    bar.advance(task)
        return [row for row in found if row is not None]

    def _run(self, wanted: Sequence[Job], todo: Sequence[int], bar: Progress, task: TaskID):  # type: ignore[no-untyped-def]
        """Yields (place, row) as they are done."""
        if self._workers > 1:
            yield from self._spread(wanted, todo)
            return
        for place in todo:
            job = wanted[place]
            name = f"{job.scenario}, {job.entry.name}"
            bar.update(task, description=name, share="")
            if bar.disable:
                print(name, file=sys.stderr, flush=True)
            yield place, jobs.do(job, lambda share: bar.update(task, share=f"{share:.0%}"))

    def _spread(self, wanted: Sequence[Job], todo: Sequence[int]):  # type: ignore[no-untyped-def]
        """Whole scenarios to one process each, as building one takes a while."""
        groups: dict[object, list[int]] = {}
        for place in todo:
            job = wanted[place]
            groups.setdefault((job.scenario, job.startup_seconds, job.fault.startup_seconds), []).append(place)
        with ProcessPoolExecutor(self._workers) as pool:
            waiting = {pool.submit(_all, [wanted[place] for place in group]): group for group in groups.values()}
            for future in as_completed(waiting):
                yield from zip(waiting[future], future.result(), strict=True)


def _all(group: Sequence[Job]) -> list[Row]:
    return [jobs.do(job) for job in group]
