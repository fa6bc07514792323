"""Runs jobs, with what is stored first, in one process or several; one bar for all, or a line each in a pipe."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

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

                def told(place: int, row: Row) -> None:
                    found[place] = row
                    bar.advance(task)

                if self._workers > 1:
                    self._spread(wanted, todo, told, quiet=not bar.disable)
                else:
                    for number, place in enumerate(todo, start=1):
                        job = wanted[place]
                        bar.update(task, description=job.title, share="")
                        _say(number, len(todo), job, quiet=not bar.disable)
                        told(place, jobs.do(job, lambda share: bar.update(task, share=f"{share:.0%}")))
        return [row for row in found if row is not None]

    def _spread(
        self, wanted: Sequence[Job], todo: Sequence[int], told: Callable[[int, Row], None], *, quiet: bool
    ) -> None:
        """Whole scenarios to one process each, as building one takes a while."""
        groups: dict[object, list[int]] = {}
        for place in todo:
            job = wanted[place]
            groups.setdefault((job.scenario, job.startup_seconds, job.fault.startup_seconds), []).append(place)
        numbers = {place: number for number, place in enumerate(todo, start=1)}
        pool = ProcessPoolExecutor(self._workers, initializer=_leave_ctrl_c_to_the_parent)
        try:
            waiting = {}
            for group in groups.values():
                tasks = [(numbers[place], wanted[place]) for place in group]
                waiting[pool.submit(_all, tasks, len(todo), quiet=quiet)] = group
            for future in as_completed(waiting):
                for place, row in zip(waiting[future], future.result(), strict=True):
                    told(place, row)
        except BaseException:  # an interrupt, too: the processes would play on to the end of what they were given
            for child in multiprocessing.active_children():
                child.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _leave_ctrl_c_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _all(tasks: Sequence[tuple[int, Job]], of: int, *, quiet: bool) -> list[Row]:
    rows = []
    for number, job in tasks:
        _say(number, of, job, quiet=quiet)
        rows.append(jobs.do(job))
    return rows


def _say(number: int, of: int, job: Job, *, quiet: bool) -> None:
    """What begins now, for a log; ``quiet``: a bar tells it."""
    if not quiet:
        print(f"{number} of {of}: {job.title}", file=sys.stderr, flush=True)
