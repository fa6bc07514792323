"""What one tick costs: assess, decide and arbitrate for many tiers on one core, without I/O.

    python -m bench.tick [--tiers 1000] [--ticks 12]

A simulated pool of eight replicas supplies the figures. Every tier has its own copy of them, as samples of its own, and
keeps its own memory: nothing that is worked out for one tier can serve another. What it costs to sort the samples by
tier is told beside, because the fast windows' answers are sorted at each tick too. The goal is shown, not enforced: how
fast a core is differs from machine to machine.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from tierkeeper.render.promql import Query, queries
from tierkeeper.scaling.arbitrate import Claim, arbitrate
from tierkeeper.scaling.decide import decide
from tierkeeper.scaling.memory import Memory
from tierkeeper.scaling.model import Levers, PoolState
from tierkeeper.sim.columns import Columns
from tierkeeper.sim.loop import pool_config
from tierkeeper.sim.model import Startup
from tierkeeper.sim.pool import Pool
from tierkeeper.sim.profiles import PROFILES
from tierkeeper.sim.scrape import Scraping, View
from tierkeeper.sim.source import LABELS, Source, answer
from tierkeeper.sim.traffic import AZURE_CONVERSATION, Curve, synthesize
from tierkeeper.slo.assess import assess
from tierkeeper.slo.model import Assessment, Sample
from tierkeeper.slo.readings import Share, join, sort
from tierkeeper.slo.signals import Signal
from tierkeeper.tier import Bounds, Engine, Mode, Model, Objective, Resources, Scaling, TierKey, TierSpec

TICK = 15.0
WARM_SECONDS = 1800.0
REPLICAS = 8
GOAL_SECONDS = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiers", type=int, default=1000)
    parser.add_argument("--ticks", type=int, default=12, help="measured ticks, after as many that are not")
    args = parser.parse_args()
    spent = measure(args.tiers, args.ticks)
    print(f"tick of {args.tiers} tiers, CPU seconds over {len(spent)} ticks (goal {GOAL_SECONDS} for the decisions):")
    for what, seconds in (("sort", [one.sort for one in spent]), ("decide", [one.decide for one in spent])):
        print(f"  {what:<6}  median {statistics.median(seconds):.3f}, worst {max(seconds):.3f}")


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds of one tick: to sort the new answers by tier, and to assess, decide and arbitrate."""

    sort: float
    decide: float


def measure(tiers: int, ticks: int) -> list[Spent]:
    """The cost of each measured tick."""
    specs = [_spec(number) for number in range(tiers)]
    assessments: dict[TierKey, Assessment] = {}
    memories = {spec.key: Memory.fresh(WARM_SECONDS) for spec in specs}
    pool = PoolState(Levers(REPLICAS, 64, 512), ready=REPLICAS)
    spent = []
    shares: dict[Signal, Mapping[TierKey, Share]] = {}
    gc.freeze()  # the compiler of the simulator is no part of the operator
    for now, answers, pods in _snapshots([spec.key for spec in specs], 2 * ticks):
        sorting = 0.0
        for signal, samples in answers:
            started = time.process_time()
            shares[signal] = sort(signal, samples, LABELS)
            sorting += time.process_time() - started
        started = time.process_time()
        readings = join(shares)
        joined = time.process_time()
        claims = {}
        for spec in specs:
            assessment = assess(
                now=now,
                key=spec.key,
                objective=spec.objective,
                readings=readings.get(spec.key),
                live_pods=pods,
                ready_since=0.0,
                previous=assessments.get(spec.key),
                scrape_interval_seconds=TICK,
            )
            decision, memory = decide(now=now, spec=spec, assessment=assessment, pool=pool, memory=memories[spec.key])
            assessments[spec.key] = assessment
            claims[spec.key] = Claim(spec, assessment, pool, decision, memory)
        for key, (_, memory) in arbitrate(now, claims).items():
            memories[key] = memory
        spent.append(Spent(sorting + joined - started, time.process_time() - joined))
    return spent[ticks:]


def _snapshots(
    keys: Sequence[TierKey], ticks: int
) -> Iterator[tuple[float, Iterator[tuple[Signal, list[Sample]]], list[str]]]:
    """Time, new answers about all tiers one by one, and pod names of so many ticks of a pool under load."""
    spec, engine = _spec(0), PROFILES["8b-2xa100"]
    config = pool_config(spec, engine.latency, kv_tokens=engine.kv_tokens, startup=Startup(120.0))
    seconds = WARM_SECONDS + (ticks + 1) * TICK
    requests = synthesize(Curve.constant(40.0, seconds=seconds), lengths=AZURE_CONVERSATION, seed=1)
    pool = Pool(config, requests, replicas=REPLICAS, max_num_seqs=64, max_num_batched_tokens=512, seed=1)
    source = Source({spec.key: Columns(config.ttft_edges, config.tpot_edges)}, Scraping(), budget_days=(30,))
    scraper = source.scrapers[spec.key]
    wanted = queries(LABELS, source.windows, budget_days=(30,))
    asked: dict[Signal, float] = {}
    for number in range(1, round(seconds / TICK)):
        now = number * TICK
        pool.advance(now)
        scraper.next_round(now)
        for offset in range(source.scraping.offsets):
            scraper.scrape(pool.pages(), at=now, offset=offset)
        if now <= WARM_SECONDS:
            continue
        view = scraper.at(now + 1.0 - source.scraping.late)
        due = [query for query in wanted if now - asked.get(query.signal, -inf) >= query.every_seconds]
        asked.update((query.signal, now) for query in due)
        yield now, _answers(due, keys, view), [page.name for page in pool.pages()]


def _answers(due: Iterable[Query], keys: Sequence[TierKey], view: View) -> Iterator[tuple[Signal, list[Sample]]]:
    for query in due:
        yield query.signal, [one for key in keys for one in answer(query.signal, key, view, stepped=query.optional)]


def _spec(number: int) -> TierSpec:
    return TierSpec(
        key=TierKey("llm", f"tier-{number}"),
        uid=str(number),
        generation=1,
        model=Model("example/model", "example"),
        objective=Objective(ratio=0.99, ttft_seconds=1.5, tpot_seconds=0.04),
        engine=Engine(image="vllm/vllm-openai:v0.32.0", version=(0, 32, 0), max_num_seqs=64),
        resources=Resources(gpus_per_replica=2),
        scaling=Scaling(Mode.AUTO, Bounds(1, 24), Bounds(8, 256), Bounds(512, 8192)),
        priority=number % 4,
    )


if __name__ == "__main__":
    main()
