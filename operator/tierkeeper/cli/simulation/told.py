"""What a run shows on the terminal: the table, and a word on what is wrong with it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from tierkeeper.cli.simulation.tiers import long_prompt
from tierkeeper.sim.loop import SimTier
from tierkeeper.sim.model import Status
from tierkeeper.sim.record import Run, TierRun
from tierkeeper.sim.report import COLUMNS, cells, duration, promise
from tierkeeper.sim.score import score
from tierkeeper.slo.messages import count
from tierkeeper.tier import TierSpec

PIPE_WIDTH = 400
"""Characters of a line where there is no terminal: no table is as wide, and a pipe has no border."""

LOOK_SECONDS = 6.0
"""Pages are scraped at three moments of 15 s, give or take 0.2 s: each tick follows one of them."""


def show(runs: Sequence[Run], tiers: Sequence[SimTier], console: Console | None = None) -> None:
    """Say what was played, and print the figures of every run and tier: as a table where its lines fit."""
    console = console or Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    for tier in tiers:
        console.print(_about(tier, runs[0].seconds, named=len(tiers) > 1), highlight=False, soft_wrap=True)
    if runs[0].gpus is not None:
        console.print(f"{count(runs[0].gpus, 'GPU')} in all", highlight=False)
    rows = [cells(one, part, score(one, part)) for one in runs for part in one.tiers.values()]
    table = _table(rows)
    if console.measure(table, options=console.options.update(width=PIPE_WIDTH)).maximum <= console.width:
        console.print(table)
        return
    for row in rows:
        console.print(_block(row))


def notes(arguments: argparse.Namespace, given: Sequence[TierSpec], tiers: Sequence[SimTier]) -> Iterator[str]:
    """What may not be as one thinks, a line each. ``given``: the tiers as their files have them."""
    if arguments.tier is None:
        chosen = tiers[0]
        yield (
            f"no --tier: a promise is chosen from {chosen.config.profile.name} and the trace's P99 prompt of"
            f" {long_prompt(chosen.requests):,.0f} tokens; give --tier for one of your own"
        )
    for spec, tier in zip(given, tiers, strict=True):
        yield from _differences(spec, tier)
    kinds = sorted({spec.resources.gpu_resource_name for spec in given})
    if arguments.gpus is not None and len(kinds) > 1:
        yield f"--gpus counts {' and '.join(kinds)} as one kind, which a cluster does not; play each kind on its own"


def _differences(spec: TierSpec, tier: SimTier) -> Iterator[str]:
    """Where a tier's run is not what its file and its trace say."""
    name, gpus = spec.key.name, tier.config.gpus_per_replica
    if spec.resources.gpus_per_replica != gpus:
        yield (
            f"{name}: spec.resources.gpusPerReplica is {spec.resources.gpus_per_replica}, and the profile, which stands"
            f" for model and GPUs, has {count(gpus, 'GPU')} a replica; give a --profile of that size"
        )
    tokens = tier.requests.prompt.astype(np.int64) + tier.requests.output
    if lost := int((tokens - 1 > tier.config.kv_tokens).sum()):
        yield (
            f"{name}: requests beyond the {tier.config.kv_tokens:,} tokens of a replica's KV cache, which count as"
            f" lost: {lost:,} of {len(tokens):,}; give a larger --profile, or leave them out of the trace"
        )
    limit = spec.engine.max_model_len
    if limit is not None and (beyond := int((tokens > limit).sum())):
        yield (
            f"{name}: requests beyond spec.engine.maxModelLen, {limit:,} tokens: {beyond:,} of {len(tokens):,}; vLLM"
            " would refuse or cut them, here they are played whole"
        )


def _table(rows: Iterable[Sequence[str]]) -> Table:
    table = Table()
    for number, (name, _) in enumerate(COLUMNS):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _block(row: Sequence[str]) -> Table:
    """One line a figure, under the policy's name."""
    block = Table(title=row[0], title_justify="left", show_header=False)
    block.add_column()
    block.add_column(justify="right")
    for (name, _), cell in zip(COLUMNS[1:], row[1:], strict=True):
        block.add_row(name, cell)
    return block


def _about(tier: SimTier, seconds: float, *, named: bool) -> str:
    spec = tier.spec
    asked = f"{len(tier.requests):,} requests in {duration(seconds)}"
    return "; ".join(
        (
            f"{spec.key.name} (priority {spec.priority}): {asked}" if named else asked,
            promise(spec),
            tier.config.profile.name,
            f"starts with {count(tier.start.replicas, 'replica')}" if tier.start is not None else "",
        )
    )


def check(runs: Sequence[Run]) -> None:
    """Say where a run breaks Little's law: its figures are then worth nothing."""
    for one in runs:
        for tier in one.tiers.values():
            if wrong := miscounted(tier):
                print(
                    f"tierkeeper simulate: at {wrong} of {len(tier.series.at)} ticks under {one.policy} there were"
                    " not as many requests in the pool as had come and not gone (Little's law): a fault of the"
                    " simulator, please report it",
                    file=sys.stderr,
                )


def miscounted(tier: TierRun) -> int:
    """At how many ticks the requests that the pool showed are not those that had arrived and not ended.

    Where there is none, the mean number of requests is their rate times their mean time in the pool, as exactly as
    ticks can tell. The pool was looked at some time in the ``LOOK_SECONDS`` before a tick, so every number that there
    was in between is right. Cut requests have no end: a run with such counts as right.
    """
    outcome, arrival = tier.outcome, tier.requests.arrival
    if (outcome.status == Status.CUT).any():
        return 0
    ended = np.where(outcome.status == Status.REJECTED, arrival, outcome.finish)
    ended = ended[np.isfinite(ended)]
    times = np.concatenate([arrival, ended])
    order = np.argsort(times, kind="stable")
    steps = np.concatenate([np.ones(len(arrival)), -np.ones(len(ended))])[order]
    present = np.concatenate([[0], np.cumsum(steps)])
    first = np.searchsorted(times[order], tier.series.at - LOOK_SECONDS, side="left")
    last = np.searchsorted(times[order], tier.series.at, side="right")
    spans = (present[begin : end + 1] for begin, end in zip(first, last, strict=True))
    shown = zip(spans, tier.series.in_system, strict=True)
    return sum(not span.min() <= counted <= span.max() for span, counted in shown)
