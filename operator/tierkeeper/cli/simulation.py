"""The work of ``tierkeeper simulate``; it needs the extra ``tierkeeper[sim]``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic.alias_generators import to_camel
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from tierkeeper.cli.plan import PlanError, tiers_of
from tierkeeper.scaling.levers import starting_levers
from tierkeeper.scaling.model import Levers
from tierkeeper.sim.binned import capacity
from tierkeeper.sim.loop import ImpossibleRunError, Settings, SimTier, pool_config, simulate
from tierkeeper.sim.model import Requests, Startup, Status
from tierkeeper.sim.peers import catalog
from tierkeeper.sim.policy import Ours, Paced, Policy, Static
from tierkeeper.sim.profiles import EngineProfile, find_profile
from tierkeeper.sim.record import Run, TierRun
from tierkeeper.sim.report import COLUMNS, cells, duration, promise, report
from tierkeeper.sim.score import inversion_seconds, score
from tierkeeper.sim.traffic import load_requests, parse_law
from tierkeeper.slo.messages import count
from tierkeeper.tier import (
    Bounds,
    Engine,
    Mode,
    Model,
    Objective,
    Resources,
    Scaling,
    TierKey,
    TierSpec,
)

FIRST_SECONDS = 300.0
"""The start of the traffic, by which the first replicas are counted."""

FIRST_SHARE = 0.7
"""Share of what a replica can carry on average that the first replicas are loaded with: P99 needs room."""

LOOK_SECONDS = 6.0
"""Pages are scraped at three moments of 15 s, give or take 0.2 s: each tick follows one of them."""


class UsageError(Exception):
    """Arguments or files that cannot be used; the text says which, why and what to do."""


def run(arguments: argparse.Namespace) -> int:
    """Simulate, print, write. Exit code 1 where something cannot be used."""
    try:
        try:
            tier = _sim_tier(arguments)
        except ValueError as error:  # what is drawn from or started with checks its own numbers
            raise UsageError(str(error)) from error
        policies = [_policy(name) for name in arguments.policy or ["tierkeeper"]]
        runs = [_simulate(tier, policy, arguments) for policy in policies]
        _print(runs, tier)
        _check(runs)
        _write(runs, arguments)
    except (UsageError, PlanError, ImpossibleRunError, ModuleNotFoundError) as error:
        print(f"tierkeeper simulate: {error}", file=sys.stderr)
        return 1
    return 0


def _sim_tier(arguments: argparse.Namespace) -> SimTier:
    profile = find_profile(arguments.profile)
    requests = _requests(arguments)
    spec = _spec(arguments.tier, profile, requests)
    config = pool_config(spec, profile.latency, kv_tokens=profile.kv_tokens, startup=Startup(arguments.start_up))
    levers = starting_levers(spec)
    given, allowed = arguments.replicas, spec.scaling.replicas
    replicas = _first_replicas(requests, spec, profile, levers) if given is None else given
    if given is not None and allowed.clamp(given) != given:
        raise UsageError(f"--replicas {replicas} is outside the tier's {allowed.min} to {allowed.max}")
    start = dataclasses.replace(levers, replicas=allowed.clamp(replicas))
    return SimTier(spec=spec, config=config, requests=requests, start=start)


def _requests(arguments: argparse.Namespace) -> Requests:
    where = dict(_pair(text) for text in arguments.where)
    if arguments.format != "rate" and (where or arguments.law != "poisson"):
        raise UsageError(f"--law and --where are for the format rate; a {arguments.format} trace has its own arrivals")
    found = load_requests(
        arguments.trace,
        form=arguments.format,
        seed=arguments.seed,
        factor=arguments.scale,
        law=parse_law(arguments.law),
        where=where or None,
    )
    if not len(found):
        raise UsageError(f"{arguments.trace}: no request in it; give a trace with some, or a higher --scale")
    return found


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--where {text}: write COLUMN=TEXT")
    return name, value


def _spec(file: str | None, profile: EngineProfile, requests: Requests) -> TierSpec:
    """The tier of the file, or a usual one; its replicas have the profile's GPUs."""
    if file is None:
        return default_tier(profile, long_prompt=float(np.quantile(requests.prompt, 0.99)))
    found = tiers_of(file)
    if len(found) != 1:
        raise UsageError(f"{file} holds {len(found)} ServiceTiers: give a file with one")
    resources = dataclasses.replace(found[0].resources, gpus_per_replica=profile.gpus_per_replica)
    return dataclasses.replace(found[0], resources=resources)


def default_tier(profile: EngineProfile, *, long_prompt: float) -> TierSpec:
    """A tier as many would write it, that one replica alone can keep: P99 TTFT 1.5 s, or three times what a prompt of
    ``long_prompt`` tokens takes (40,000 tokens at 0.062 ms: 7.5 s); TPOT 40 ms, or four times the profile's shortest
    step (27.5 ms: 110 ms)."""
    step = profile.latency
    ttft = max(1.5, math.ceil(3 * long_prompt * step.per_prefill_token_seconds * 2) / 2)
    tpot = max(0.04, math.ceil(step.base_seconds * 400) / 100)
    return TierSpec(
        key=TierKey("default", "default"),
        uid="",
        generation=1,
        model=Model(id=profile.latency.name, served_name=profile.latency.name),
        objective=Objective(ratio=0.99, ttft_seconds=ttft, tpot_seconds=tpot),
        engine=Engine(image="vllm/vllm-openai:v0.32.0", version=(0, 32, 0), max_num_seqs=32),
        resources=Resources(gpus_per_replica=profile.gpus_per_replica),
        scaling=Scaling(
            mode=Mode.AUTO,
            replicas=Bounds(1, 64),
            max_num_seqs=Bounds(8, 128),
            max_num_batched_tokens=Bounds(512, 8192),
        ),
    )


def _first_replicas(requests: Requests, spec: TierSpec, profile: EngineProfile, levers: Levers) -> int:
    """So many that the first five minutes load each to 70 % of what it can carry on average."""
    first = requests.arrival < FIRST_SECONDS
    if not first.any():
        return 1
    span = min(FIRST_SECONDS, float(requests.arrival[-1]) or FIRST_SECONDS)
    one = capacity(
        profile.latency,
        sequences=levers.max_num_seqs,
        tpot=spec.objective.tpot_seconds if spec.objective is not None else None,
        prompt=float(requests.prompt[first].mean()),
        output=float(requests.output[first].mean()),
    )
    return max(1, math.ceil(int(first.sum()) / span / (FIRST_SHARE * one)))


def _policy(name: str) -> Policy:
    if name == "tierkeeper":
        return Ours()
    if name == "static":
        return Static()
    if name not in catalog.DEFAULTS:
        known = ", ".join(["tierkeeper", "static", *catalog.DEFAULTS])
        raise UsageError(f"--policy {name!r} is not known: give one of {known}")
    return catalog.peer(catalog.DEFAULTS[name])


def _simulate(tier: SimTier, policy: Policy, arguments: argparse.Namespace) -> Run:
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

        return simulate([tier], policy, settings, progress=told)


def _print(runs: Sequence[Run], tier: SimTier) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    about = (
        f"{len(tier.requests):,} requests in {duration(runs[0].seconds)}",
        promise(tier.spec),
        tier.config.profile.name,
        f"starts with {count(tier.start.replicas, 'replica')}" if tier.start is not None else "",
    )
    console.print("; ".join(about), highlight=False, soft_wrap=True)
    table = Table()
    for number, (name, _) in enumerate(COLUMNS):
        table.add_column(name, justify="right" if number else "left")
    for one in runs:
        for part in one.tiers.values():
            table.add_row(*cells(one, part, score(one, part)))
    console.print(table)


def _check(runs: Sequence[Run]) -> None:
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


def _write(runs: Sequence[Run], arguments: argparse.Namespace) -> None:
    if arguments.json:
        text = json.dumps({"runs": [as_dict(one) for one in runs]}, ensure_ascii=False, separators=(",", ":"))
        _save(arguments.json, text + "\n")
    if arguments.report:
        _save(arguments.report, report(runs, title=f"{Path(arguments.trace).name}, {arguments.scale:g} x"))


def _save(file: str, text: str) -> None:
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}; give another path") from error
    print(f"wrote {file}", file=sys.stderr)


def as_dict(one: Run) -> dict[str, Any]:
    """A run as JSON holds it: names in camelCase, seconds, no number that JSON does not know."""
    return {
        "policy": one.policy,
        "seconds": one.seconds,
        "tickSeconds": one.tick_seconds,
        "gpus": one.gpus,
        "inversionSeconds": inversion_seconds(one),
        "tiers": {str(key): _tier_dict(one, tier) for key, tier in one.tiers.items()},
    }


def _tier_dict(one: Run, tier: TierRun) -> dict[str, Any]:
    objective = tier.spec.objective
    return {
        "objective": None if objective is None else _camel(dataclasses.asdict(objective)),
        "profile": tier.profile.name,
        "startupSeconds": tier.startup_seconds,
        "score": _camel(dataclasses.asdict(score(one, tier))),
        "series": _camel({f.name: getattr(tier.series, f.name) for f in dataclasses.fields(tier.series)}),
        "decisions": [_camel(dataclasses.asdict(entry)) for entry in tier.decisions],
    }


def _camel(values: Mapping[str, Any]) -> dict[str, Any]:
    return {to_camel(name): _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    if isinstance(value, dict):
        return _camel(value)
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
