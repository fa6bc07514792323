"""The work of ``tierkeeper simulate``; it needs the extra ``tierkeeper[sim]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from tierkeeper.cli.plan import PlanError
from tierkeeper.cli.simulate import OptionError
from tierkeeper.cli.simulation.files import FileError, check_outputs, write
from tierkeeper.cli.simulation.tiers import parts, sim_tiers
from tierkeeper.cli.simulation.told import check, show
from tierkeeper.sim.loop import ImpossibleRunError, Settings, SimTier, simulate
from tierkeeper.sim.peers import catalog
from tierkeeper.sim.policy import Ours, Paced, Policy, Static
from tierkeeper.sim.record import Run


def run(arguments: argparse.Namespace) -> int:
    """Simulate, print, write. Exit code 1 where a file cannot be used. Raises OptionError."""
    check_outputs(arguments)
    try:
        try:
            played = parts(arguments)
            tiers = sim_tiers(arguments, played)
        except ValueError as error:  # what is drawn from or started with checks its own numbers
            raise FileError(str(error)) from error
        policies = [_policy(name) for name in arguments.policy or ["tierkeeper"]]
        runs = [_simulate(tiers, policy, arguments) for policy in policies]
        show(runs, tiers)
        check(runs)
        write(runs, arguments, title="; ".join(part.title for part in played))
    except (FileError, PlanError, ImpossibleRunError, ModuleNotFoundError) as error:
        print(f"tierkeeper simulate: {error}", file=sys.stderr)
        return 1
    return 0


def _policy(name: str) -> Policy:
    if name == "tierkeeper":
        return Ours()
    if name == "static":
        return Static()
    if name not in catalog.DEFAULTS:
        known = ", ".join(["tierkeeper", "static", *catalog.DEFAULTS])
        raise OptionError(f"--policy {name!r} is not known: give one of {known}")
    return catalog.peer(catalog.DEFAULTS[name])


def _simulate(tiers: Sequence[SimTier], policy: Policy, arguments: argparse.Namespace) -> Run:
    tick = policy.interval_seconds if isinstance(policy, Paced) else Settings().tick_seconds
    settings = Settings(tick_seconds=tick, gpus=arguments.gpus, seed=arguments.seed)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task: TaskID = bar.add_task(policy.name)

        def told(now: float, end: float) -> None:
            bar.update(task, completed=now, total=end)

        return simulate(tiers, policy, settings, progress=told)
