"""The work of ``tierkeeper simulate``; it needs the extra ``tierkeeper[sim]``."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
import time
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from tierkeeper.cli.plan import PlanError
from tierkeeper.cli.simulate import OptionError
from tierkeeper.cli.simulation.files import FileError, check_outputs, write
from tierkeeper.cli.simulation.tiers import default_tier, long_prompt, parts, sim_tiers, specs_of, traffic_of
from tierkeeper.cli.simulation.told import check, notes, show
from tierkeeper.sim.loop import ImpossibleRunError, Progress, Settings, SimTier, simulate
from tierkeeper.sim.peers import catalog
from tierkeeper.sim.peers.dynamo import MISSING
from tierkeeper.sim.policy import Ours, Paced, Policy, Static
from tierkeeper.sim.record import Run
from tierkeeper.sim.report import duration
from tierkeeper.slo.messages import percent

LINE_SECONDS = 10.0
"""Time between two lines on how far a run is, where there is no terminal."""


def run(arguments: argparse.Namespace) -> int:
    """Simulate, print, write. Exit code 1 where a file cannot be used. Raises OptionError."""
    check_outputs(arguments)
    try:
        policies = _policies(arguments.policy or ["tierkeeper"])
        try:
            played = parts(arguments)
            given = specs_of(arguments.tier, played)  # refused before a long trace is read, as all above
            traffic = traffic_of(arguments, played)
            specs = given or [default_tier(played[0].profile, long_prompt=long_prompt(traffic[0]))]
            tiers = sim_tiers(arguments, played, traffic, specs)
        except ValueError as error:  # what is drawn from or started with checks its own numbers
            raise FileError(str(error)) from error
        for note in notes(arguments, specs, tiers):
            print(f"tierkeeper simulate: note: {note}", file=sys.stderr)
        runs = [_simulate(tiers, policy, arguments) for policy in policies]
        show(runs, tiers)
        check(runs)
        write(runs, arguments, title="; ".join(part.title for part in played))
    except (FileError, PlanError, ImpossibleRunError, ModuleNotFoundError) as error:
        print(f"tierkeeper simulate: {error}", file=sys.stderr)
        return 1
    return 0


def _policies(names: Sequence[str]) -> list[Policy]:
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise OptionError(f"--policy {twice[0]} is given twice; a run would only be played again: leave one out")
    return [_policy(name) for name in names]


def _policy(name: str) -> Policy:
    if name == "tierkeeper":
        return Ours()
    if name == "static":
        return Static()
    if name not in catalog.DEFAULTS:
        known = ", ".join(["tierkeeper", "static", *catalog.DEFAULTS])
        raise OptionError(f"--policy {name!r} is not known: give one of {known}")
    if name == "dynamo" and importlib.util.find_spec("dynamo") is None:  # before others have run for an hour
        raise ModuleNotFoundError(f"--policy dynamo: {MISSING}")
    return catalog.peer(catalog.DEFAULTS[name])


def _simulate(tiers: Sequence[SimTier], policy: Policy, arguments: argparse.Namespace) -> Run:
    tick = policy.interval_seconds if isinstance(policy, Paced) else Settings().tick_seconds
    settings = Settings(tick_seconds=tick, gpus=arguments.gpus, seed=arguments.seed)
    with _progress(policy.name) as told:
        return simulate(tiers, policy, settings, progress=told)


@contextlib.contextmanager
def _progress(name: str) -> Iterator[Progress]:
    """A bar on a terminal; elsewhere, as in a pipe or a CI's log, a line now and then."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(name)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name)
        yield lambda now, end: bar.update(task, completed=now, total=end)


class _Lines:
    """Tells how far a run is, at most once in ``LINE_SECONDS``."""

    def __init__(self, name: str) -> None:
        self.name, self.told_at = name, time.monotonic()

    def __call__(self, now: float, end: float) -> None:
        if time.monotonic() - self.told_at >= LINE_SECONDS:
            self.told_at = time.monotonic()
            print(f"{self.name}: {percent(now / end)} of {duration(end)} simulated", file=sys.stderr, flush=True)
