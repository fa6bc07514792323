"""The scenarios on which policies are compared: who asks, what is promised, where the pools start.

Nothing of a scenario is told to a policy beyond the tier's spec, which holds promises and bounds as a user writes them.
Rates are set so that pools have 4 to 20 replicas. ``TUNING`` is other traffic, for peers whose settings must be tuned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from tierkeeper.scaling.model import Levers
from tierkeeper.sim.loop import SimTier, pool_config
from tierkeeper.sim.model import Requests, Startup
from tierkeeper.sim.profiles import PROFILES
from tierkeeper.sim.traffic import (
    Clients,
    Curve,
    TableLengths,
    TraceLengths,
    burst,
    cut,
    gamma,
    jitter,
    night,
    plateau,
    ramp,
    read_azure,
    read_clients,
    read_lengths,
    read_mooncake,
    read_rate,
    scale,
    shift_mix,
    step,
    synthesize,
    synthesize_clients,
)
from tierkeeper.tier import Bounds, Engine, Mode, Model, Objective, Resources, Rollout, Scaling, TierKey, TierSpec

DATA = Path(__file__).parent / "data"
DAY = 86_400.0
WEEK = 7 * DAY

STARTUPS = (30.0, 120.0, 300.0)
"""Median seconds from a pod scheduled to Ready: weights on the node, a usual start, a cold one."""

RATE = 20.0
"""Requests/s of the shaped scenarios before their shape: 4 to 5 replicas of the 8B model on 2 x A100."""

CONVERSATION = gamma(cv=1.1)
"""Gaps of the Azure 2023 conversation trace have a coefficient of variation of 1.09."""
MINUTE_NOISE = 0.06
"""Of the same trace, see ``jitter``; the digitised week has no bursts of its own."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run to be scored."""

    name: str
    story: str
    tiers: tuple[SimTier, ...]
    seconds: float
    """Traffic that is played and scored."""
    recorded: bool = False
    """The arrivals or the rates are those of a production service."""
    gpus: int | None = None
    """GPUs that all tiers share; None: no limit."""
    changes: tuple[float, ...] = ()
    """Seconds at which the load, the mix or its direction changes."""


Builder = Callable[[float, int], Scenario]
"""Start-up median in seconds and seed to a scenario."""


def scenario(name: str, *, startup_seconds: float = 120.0, seed: int = 0) -> Scenario:
    """A scenario of SCENARIOS or TUNING by its name. Raises ValueError that lists the names."""
    builder = {**SCENARIOS, **TUNING}.get(name)
    if builder is None:
        raise ValueError(f"scenario {name!r} is not known; use one of {', '.join([*SCENARIOS, *TUNING])}")
    return builder(startup_seconds, seed)


def azure_2023(startup_seconds: float, seed: int) -> Scenario:
    """The recorded hour at six times its rate: 33 requests/s."""
    requests = scale(_azure(), 6.0, seed=seed)
    tier = _tier(_chat("gold"), "8b-2xa100", startup_seconds, requests, replicas=8)
    return Scenario("azure-2023", "Azure 2023 conversation, an hour", (tier,), 3500.0, recorded=True)


def mooncake(startup_seconds: float, seed: int) -> Scenario:
    """The recorded hour at five times its rate: 17 requests/s of 12,000 prompt tokens."""
    requests = scale(read_mooncake(DATA / "mooncake_conv.csv.gz", seed=seed), 5.0, seed=seed)
    # A prompt of the longest 1 % (85,000 tokens) takes 2.0 s of prefill alone.
    spec = _spec("gold", ttft=5.0, tpot=0.1, gpus=1)
    tier = _tier(spec, "8b-h100", startup_seconds, requests, replicas=11)
    return Scenario("mooncake", "Mooncake conversation, an hour of long prompts", (tier,), 3530.0, recorded=True)


def azure_2024_week(startup_seconds: float, seed: int) -> Scenario:
    """The digitised week at 24 requests/s in the mean, with the noise and the lengths of the 2023 trace."""
    rate = read_rate(DATA / "azure2024_conv_rate.csv.gz", lines=True).with_mean(24.0)
    requests = _conversation(rate.times(jitter(sigma=MINUTE_NOISE, seconds=rate.end, seed=seed)), seed)
    tier = _tier(_chat("gold"), "8b-2xa100", startup_seconds, requests, replicas=7)
    return Scenario("azure-2024-week", "Azure 2024 conversation, a week", (tier,), rate.end, recorded=True)


def servegen_week(startup_seconds: float, seed: int) -> Scenario:
    """The first week of the clients of a large model, at 24 requests/s in the mean."""
    requests = _servegen(0.0, WEEK, seed)
    tier = _tier(_large("gold"), "70b-4xh100", startup_seconds, requests, replicas=10)
    return Scenario("servegen-week", "ServeGen m-large, a week", (tier,), WEEK, recorded=True)


def load_step(factor: float) -> Builder:
    """A step of the load after half an hour, held to the end."""

    def build(startup_seconds: float, seed: int) -> Scenario:
        rate = Curve.constant(RATE, seconds=5400.0).times(step(factor, at=1800.0))
        tier = _tier(_chat("gold"), "8b-2xa100", startup_seconds, _conversation(rate, seed), replicas=5)
        story = f"The load rises to {factor:g} times at once"
        return Scenario(f"step-{factor:g}x", story, (tier,), rate.end, changes=(1800.0,))

    return build


def load_ramp(startup_seconds: float, seed: int) -> Scenario:
    """Three times the load within an hour, held for half an hour, and back within an hour."""
    rate = Curve.constant(RATE, seconds=12_600.0)
    rate = rate.times(plateau(3.0, start=1800.0, end=10_800.0, slope_seconds=3600.0))
    tier = _tier(_chat("gold"), "8b-2xa100", startup_seconds, _conversation(rate, seed), replicas=5)
    changes = (1800.0, 5400.0, 7200.0, 10_800.0)
    return Scenario("ramp", "The load rises to three times in an hour, and falls", (tier,), rate.end, changes=changes)


def bursts(startup_seconds: float, seed: int) -> Scenario:
    """Ten minutes of twice the load and ten of a fifth of it in turn, for six hours: longer than any stabilization
    window, and gone before replicas that were given back are there again."""
    seconds, each = 6 * 3600.0, 600.0
    starts = np.arange(0.0, seconds, each)
    rate = Curve.hold(starts, [RATE * (2.0 if turn % 2 == 0 else 0.2) for turn in range(len(starts))], end=seconds)
    tier = _tier(_chat("gold"), "8b-2xa100", startup_seconds, _conversation(rate, seed), replicas=8)
    return Scenario("bursts", "Ten minutes of load and ten of hardly any in turn", (tier,), seconds)


def idle_night(startup_seconds: float, seed: int) -> Scenario:
    """A day with seven hours without one request; evening and morning take half an hour."""
    dusk, dawn = 8 * 3600.0, 16 * 3600.0
    rate = Curve.constant(RATE, seconds=DAY).times(night(start=dusk, end=dawn, slope_seconds=1800.0))
    tier = _tier(_chat("gold"), "8b-2xa100", startup_seconds, _conversation(rate, seed), replicas=5)
    return Scenario("idle-night", "A night without a request", (tier,), rate.end, changes=(dusk, dawn - 1800.0))


def mix_shift(startup_seconds: float, seed: int) -> Scenario:
    """Prompts four times as long within ten minutes, and back within ten; the request rate stays."""
    start, end, slope = 1800.0, 6600.0, 600.0
    longer = plateau(4.0, start=start, end=end, slope_seconds=slope)
    steady = _conversation(Curve.constant(RATE, seconds=9000.0), seed)
    requests = shift_mix(steady, prompt=longer, max_tokens=32_768)
    # Four times the longest 1 % are 16,600 tokens: 1.0 s of prefill alone.
    spec = _spec("gold", ttft=3.0, tpot=0.05, gpus=2)
    tier = _tier(spec, "8b-2xa100", startup_seconds, requests, replicas=5)
    story = "Prompts become four times as long within ten minutes, and short again"
    return Scenario("mix-shift", story, (tier,), 9000.0, changes=(start, start + slope, end - slope, end))


def wrong_cap(max_num_seqs: int, *, replicas: int) -> Builder:
    """A steady load on a pool whose max-num-seqs was set wrongly.

    8 on five replicas: they would do, but 8 sequences at once carry 2.9 requests/s, not 4. 256 on three: a little too
    few, and so many sequences at once make tokens late (P99 TPOT 47 ms where 40 ms are promised).
    """

    def build(startup_seconds: float, seed: int) -> Scenario:
        requests = _conversation(Curve.constant(RATE, seconds=3600.0), seed)
        tier = _tier(
            _chat("gold"), "8b-2xa100", startup_seconds, requests, replicas=replicas, max_num_seqs=max_num_seqs
        )
        story = f"max-num-seqs was set to {max_num_seqs}"
        return Scenario(f"cap-{max_num_seqs}", story, (tier,), 3600.0, changes=(0.0,))

    return build


def three_tiers(startup_seconds: float, seed: int) -> Scenario:
    """Three tiers on 24 GPUs, 12 replicas, whose loads grow one after the other to need about 16."""
    seconds = 10_800.0
    flat = Curve.constant(1.0, seconds=seconds)
    loads = {
        "platinum": flat.times(8.0).times(burst(3.0, at=3600.0, seconds=3600.0)),
        "gold": flat.times(12.0).times(ramp(2.0, start=1800.0, end=4800.0)),
        "standard": flat.times(12.0).times(burst(2.0, at=2400.0, seconds=6000.0)),
    }
    specs = (
        _spec("platinum", ttft=1.0, tpot=0.03, gpus=2, priority=1000, most=12),
        _spec("gold", ttft=1.5, tpot=0.04, gpus=2, priority=800, most=12),
        _spec("standard", ttft=10.0, tpot=0.1, gpus=2, priority=400, most=12),
    )
    tiers = tuple(
        _tier(spec, "8b-2xa100", startup_seconds, _conversation(loads[spec.key.name], seed * 3 + place), replicas=start)
        for place, (spec, start) in enumerate(zip(specs, (3, 3, 3), strict=True))
    )
    changes = (1800.0, 2400.0, 3600.0, 4800.0, 7200.0, 8400.0)
    return Scenario("three-tiers", "Three tiers share 24 GPUs", tiers, seconds, gpus=24, changes=changes)


def tuning_day(startup_seconds: float, seed: int) -> Scenario:
    """A day with one wave, from 10 to 30 requests/s, and bursty arrivals: none of the recorded ones."""
    times = np.arange(0.0, DAY + 1.0, 600.0)
    wave = Curve.through(list(zip(times, RATE * (1.0 - 0.5 * np.cos(2 * np.pi * times / DAY)), strict=True)))
    rate = wave.times(jitter(sigma=0.1, seconds=DAY, seed=seed))
    requests = synthesize(rate, law=gamma(cv=1.5), lengths=TraceLengths(cut(_azure(), 0.0, 1750.0)), seed=seed)
    tier = _tier(_chat("gold"), "8b-2xa100", startup_seconds, requests, replicas=4)
    return Scenario("tuning-day", "A day with one wave", (tier,), DAY)


def tuning_servegen(startup_seconds: float, seed: int) -> Scenario:
    """Two days of the ServeGen clients' second week."""
    requests = _servegen(WEEK + DAY, WEEK + 3 * DAY, seed)
    tier = _tier(_large("gold"), "70b-4xh100", startup_seconds, requests, replicas=10)
    return Scenario("tuning-servegen", "ServeGen m-large, two days of its second week", (tier,), 2 * DAY, recorded=True)


SCENARIOS: Mapping[str, Builder] = {
    "azure-2023": azure_2023,
    "mooncake": mooncake,
    "azure-2024-week": azure_2024_week,
    "servegen-week": servegen_week,
    "step-1.5x": load_step(1.5),
    "step-2x": load_step(2.0),
    "step-4x": load_step(4.0),
    "ramp": load_ramp,
    "idle-night": idle_night,
    "bursts": bursts,
    "mix-shift": mix_shift,
    "cap-8": wrong_cap(8, replicas=5),
    "cap-256": wrong_cap(256, replicas=3),
    "three-tiers": three_tiers,
}

TUNING: Mapping[str, Builder] = {"tuning-day": tuning_day, "tuning-servegen": tuning_servegen}


def _chat(name: str) -> TierSpec:
    """The promise of the 8B scenarios: P99 TTFT 1.5 s and P99 TPOT 40 ms."""
    return _spec(name, ttft=1.5, tpot=0.04, gpus=2)


def _large(name: str) -> TierSpec:
    return _spec(name, ttft=2.5, tpot=0.06, gpus=4)


def _spec(name: str, *, ttft: float, tpot: float, gpus: int, priority: int = 800, most: int = 24) -> TierSpec:
    """A tier as a user would write it; ``gpus`` a replica, ``most`` replicas."""
    return TierSpec(
        key=TierKey("llm", name),
        uid=name,
        generation=1,
        model=Model(id="meta-llama/Llama-3.1", served_name=name),
        objective=Objective(ratio=0.99, ttft_seconds=ttft, tpot_seconds=tpot),
        engine=Engine(image="vllm/vllm-openai:v0.32.0", version=(0, 32, 0), max_num_seqs=32, tensor_parallel_size=gpus),
        resources=Resources(gpus_per_replica=gpus),
        scaling=Scaling(
            mode=Mode.AUTO,
            replicas=Bounds(1, most),
            max_num_seqs=Bounds(8, 256),
            max_num_batched_tokens=Bounds(512, 8192),
        ),
        priority=priority,
        rollout=Rollout(drain_seconds=120),
    )


def _tier(
    spec: TierSpec,
    profile: str,
    startup_seconds: float,
    requests: Requests,
    *,
    replicas: int,
    max_num_seqs: int | None = None,
) -> SimTier:
    engine = PROFILES[profile]
    config = pool_config(spec, engine.latency, kv_tokens=engine.kv_tokens, startup=Startup(startup_seconds))
    start = Levers(replicas=replicas, max_num_seqs=max_num_seqs or spec.engine.max_num_seqs)
    return SimTier(spec=spec, config=config, requests=requests, start=start)


def _conversation(rate: Curve, seed: int) -> Requests:
    return synthesize(rate, law=CONVERSATION, lengths=TraceLengths(_azure()), seed=seed)


def _servegen(start: float, end: float, seed: int) -> Requests:
    clients = _clients()
    factor = 24.0 / clients.cut(0.0, WEEK).rate.mean
    return synthesize_clients(clients.cut(start, end), lengths=_servegen_lengths(), seed=seed, factor=factor)


@lru_cache(maxsize=1)
def _azure() -> Requests:
    return read_azure(DATA / "azure2023_conv.csv.gz")


@lru_cache(maxsize=1)
def _clients() -> Clients:
    total = read_rate(DATA / "servegen_m-large_rate.csv.gz")
    return read_clients(DATA / "servegen_m-large_top12_clients.csv.gz", total=total)


@lru_cache(maxsize=1)
def _servegen_lengths() -> TableLengths:
    return read_lengths(DATA / "servegen_m-large_token_quantiles.csv.gz")
