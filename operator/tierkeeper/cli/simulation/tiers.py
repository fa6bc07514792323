"""Which tiers a run has: what each promises, which replicas it would get, and who asks of it."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from tierkeeper.cli.plan import PlanError, kinds, tiers_of
from tierkeeper.cli.simulate import OptionError
from tierkeeper.scaling.levers import starting_levers
from tierkeeper.scaling.model import Levers
from tierkeeper.sim.binned import capacity
from tierkeeper.sim.loop import SimTier, pool_config
from tierkeeper.sim.model import Requests, Startup
from tierkeeper.sim.profiles import DEFAULT_PROFILE, EngineProfile, find_profile
from tierkeeper.sim.traffic import POISSON, Law, TraceError, TraceFormat, load_requests, parse_law
from tierkeeper.slo.messages import count
from tierkeeper.tier import Bounds, Engine, Mode, Model, Objective, Resources, Scaling, TierKey, TierSpec

FIRST_SECONDS = 300.0
"""The start of the traffic, by which the first replicas are counted."""

FIRST_SHARE = 0.7
"""Share of what a replica can carry on average that the first replicas are loaded with: P99 needs room."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One trace, and what the options say of it and of its tier's pool."""

    trace: str
    form: TraceFormat
    scale: float
    law: Law
    profile: EngineProfile
    start_up: float
    """Seconds, median."""
    replicas: int | None
    """None: what the first minutes need."""

    @property
    def title(self) -> str:
        return f"{Path(self.trace).name}, {self.scale:g} x"


def parts(arguments: argparse.Namespace) -> list[Part]:
    """The options by trace. Raises OptionError where there is another number of them than one or one a trace."""
    traces: list[str] = arguments.trace

    def each(option: str, default: Value, given: list[Value] | None) -> list[Value]:
        values = given or [default]
        if len(values) == 1:
            return values * len(traces)
        if len(values) != len(traces):
            wanted = f"once, or {len(traces)} times: one for each --trace" if len(traces) > 1 else "once"
            raise OptionError(
                f"{option} is given {len(values)} times for {count(len(traces), 'trace')}; give it {wanted}"
            )
        return values

    found = [
        Part(trace=trace, form=form, scale=scale, law=_law(law), profile=find_profile(name), start_up=wait, replicas=n)
        for trace, form, scale, law, name, wait, n in zip(
            traces,
            each("--format", "azure", arguments.format),
            each("--scale", 1.0, arguments.scale),
            each("--law", "poisson", arguments.law),
            each("--profile", DEFAULT_PROFILE, arguments.profile),
            each("--start-up", 120.0, arguments.start_up),
            each("--replicas", None, arguments.replicas),
            strict=True,
        )
    ]
    requests = [part for part in found if part.form != "rate"]
    own = len(arguments.law or ()) > 1 and any(part.law != POISSON for part in requests)
    if own or ((arguments.law or arguments.where) and len(requests) == len(found)):
        raise OptionError(
            "--law and --where are for traces of format rate; others have their own arrivals: leave them out"
        )
    return found


def traffic_of(arguments: argparse.Namespace, played: Sequence[Part]) -> list[Requests]:
    """The requests of each trace. Raises TraceError for a file, OptionError for a scale that cannot be."""
    where = dict(arguments.where)
    return [_requests(part, seed=arguments.seed + place, where=where) for place, part in enumerate(played)]


def sim_tiers(
    arguments: argparse.Namespace, played: Sequence[Part], traffic: Sequence[Requests], specs: Sequence[TierSpec]
) -> list[SimTier]:
    """The tiers of a run, in the order of their traces; their replicas have the profiles' GPUs."""
    found = []
    for part, requests, given in zip(played, traffic, specs, strict=True):
        engine = part.profile
        resources = dataclasses.replace(given.resources, gpus_per_replica=engine.gpus_per_replica)
        spec = dataclasses.replace(given, resources=resources)
        config = pool_config(spec, engine.latency, kv_tokens=engine.kv_tokens, startup=Startup(part.start_up))
        found.append(SimTier(spec=spec, config=config, requests=requests, start=_start(part, spec, requests)))
    return found if arguments.gpus is None else _within(arguments.gpus, played, found)


def _law(text: str) -> Law:
    try:
        return parse_law(text)
    except ValueError as error:
        raise OptionError(f"--law: {error}") from error


def _requests(part: Part, *, seed: int, where: dict[str, str]) -> Requests:
    chosen = where if part.form == "rate" and where else None
    try:
        found = load_requests(part.trace, form=part.form, seed=seed, factor=part.scale, law=part.law, where=chosen)
    except TraceError:
        raise
    except ValueError as error:  # more than can be drawn, or laid over each other
        raise OptionError(f"--scale {part.scale:g}: {error}") from error
    if not len(found):
        raise PlanError(f"{part.trace}: no request in it; give a trace with some, or a higher --scale")
    return found


def specs_of(files: list[str] | None, played: Sequence[Part]) -> list[TierSpec] | None:
    """The tiers of the files as they stand there, one for each trace; None where no file is given."""
    if files is None:
        if len(played) > 1:
            raise OptionError(
                f"{len(played)} traces and no --tier; give {len(played)} tiers, one for each trace in order"
            )
        return None
    found = [spec for file in files for spec in _tiers_in(file)]
    if len(found) != len(played):
        raise OptionError(
            f"{count(len(found), 'tier')} ({', '.join(spec.key.name for spec in found)}) and"
            f" {count(len(played), 'trace')}; give {count(len(found), '--trace')}, one for each tier in order"
        )
    keys = [spec.key for spec in found]
    if twice := sorted({str(key) for key in keys if keys.count(key) > 1}):
        raise OptionError(f"--tier: {', '.join(twice)} is given more than once; give each tier a name of its own")
    return found


def _tiers_in(file: str) -> list[TierSpec]:
    found = tiers_of(file)
    if not found:
        others = ", ".join(kinds(file))
        raise PlanError(f"{file} holds no ServiceTier{f' but {others}' if others else ''}; give a file with one")
    return found


def long_prompt(requests: Requests) -> float:
    """P99 of the prompts, tokens."""
    return float(np.quantile(requests.prompt, 0.99))


def default_tier(profile: EngineProfile, *, long_prompt: float) -> TierSpec:
    """A tier as many would write it, by what one replica can do for a request alone: P99 TTFT 1.5 s, or three times
    what a prompt of ``long_prompt`` tokens takes (40,000 tokens at 0.062 ms: 7.5 s); TPOT 40 ms, or four times the
    profile's shortest step (27.5 ms: 110 ms)."""
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


def _start(part: Part, spec: TierSpec, requests: Requests) -> Levers:
    levers, allowed = starting_levers(spec), spec.scaling.replicas
    if part.replicas is None:
        return dataclasses.replace(levers, replicas=allowed.clamp(_first_replicas(part, spec, levers, requests)))
    if allowed.clamp(part.replicas) != part.replicas:
        raise OptionError(
            f"--replicas {part.replicas} is outside {spec.key.name}'s spec.scaling.replicas;"
            f" give {allowed.min} to {allowed.max}, or change the tier"
        )
    return dataclasses.replace(levers, replicas=part.replicas)


def _first_replicas(part: Part, spec: TierSpec, levers: Levers, requests: Requests) -> int:
    """So many that the first five minutes load each to 70 % of what it can carry on average."""
    first = requests.arrival < FIRST_SECONDS
    if not first.any():
        return 1
    span = min(FIRST_SECONDS, float(requests.arrival[-1]) or FIRST_SECONDS)
    one = capacity(
        part.profile.latency,
        sequences=levers.max_num_seqs,
        tpot=spec.objective.tpot_seconds if spec.objective is not None else None,
        prompt=float(requests.prompt[first].mean()),
        output=float(requests.output[first].mean()),
    )
    return max(1, math.ceil(int(first.sum()) / span / (FIRST_SHARE * one)))


def _within(gpus: int, played: Sequence[Part], tiers: Sequence[SimTier]) -> list[SimTier]:
    """The tiers with no more replicas at the start than there are GPUs for: what ``--replicas`` says and every tier's
    minimum first, then by priority what the first minutes need."""
    wanted = [_levers(tier).replicas for tier in tiers]
    given = [
        want if part.replicas is not None else tier.spec.scaling.replicas.min
        for part, tier, want in zip(played, tiers, wanted, strict=True)
    ]
    sizes = [tier.config.gpus_per_replica for tier in tiers]
    least = sum(number * size for number, size in zip(given, sizes, strict=True))
    if least > gpus:
        raise OptionError(
            f"--gpus {gpus}: the start needs {least}, for {_named(tiers, given)}; {_remedy(gpus, least, tiers)}"
        )
    free = gpus - least
    for place in sorted(range(len(tiers)), key=lambda place: -tiers[place].spec.priority):
        more = min(wanted[place] - given[place], free // sizes[place])
        given[place] += more
        free -= more * sizes[place]
    return [
        dataclasses.replace(tier, start=dataclasses.replace(_levers(tier), replicas=number))
        for tier, number in zip(tiers, given, strict=True)
    ]


def _levers(tier: SimTier) -> Levers:
    return tier.start or starting_levers(tier.spec)


def _named(tiers: Sequence[SimTier], replicas: Sequence[int]) -> str:
    return " and ".join(f"{count(n, 'replica')} of {t.spec.key.name}" for t, n in zip(tiers, replicas, strict=True))


def _remedy(gpus: int, least: int, tiers: Sequence[SimTier]) -> str:
    """More GPUs, or fewer replicas where those would do."""
    more = f"give --gpus {least} or more"
    minimum = [tier.spec.scaling.replicas.min for tier in tiers]
    if sum(number * tier.config.gpus_per_replica for number, tier in zip(minimum, tiers, strict=True)) <= gpus:
        most = gpus // tiers[0].config.gpus_per_replica
        return f"{more}, or --replicas {most} or fewer" if len(tiers) == 1 else f"{more}, or fewer --replicas"
    return f"{more}, or lower spec.scaling.replicas.min" if max(minimum) > 1 else more
