"""What one tick costs: assess, decide and arbitrate for many tiers on one core, without I/O.

    python -m bench.tick [--tiers 1000] [--ticks 12]

A simulated pool of eight replicas supplies the readings; every tier reads the same figures and keeps its own memory.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator

from tierkeeper.scaling.arbitrate import Claim, arbitrate
from tierkeeper.scaling.decide import decide
from tierkeeper.scaling.memory import Memory
from tierkeeper.scaling.model import Levers, PoolState
from tierkeeper.sim.columns import Columns
from tierkeeper.sim.loop import pool_config
from tierkeeper.sim.model import Startup
from tierkeeper.sim.pool import Pool
from tierkeeper.sim.profiles import PROFILES
from tierkeeper.sim.scrape import Scraping
from tierkeeper.sim.source import Source
from tierkeeper.sim.traffic import AZURE_CONVERSATION, Curve, synthesize
from tierkeeper.slo.assess import assess
from tierkeeper.slo.model import Assessment
from tierkeeper.slo.readings import Readings
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
    worst, typical = max(spent), statistics.median(spent)
    print(
        f"tick of {args.tiers} tiers: median {typical:.3f} s, worst {worst:.3f} s of CPU over {len(spent)} ticks "
        f"(goal {GOAL_SECONDS} s)"
    )


def measure(tiers: int, ticks: int) -> list[float]:
    """CPU seconds of each measured tick."""
    specs = [_spec(number) for number in range(tiers)]
    assessments: dict[TierKey, Assessment] = {}
    memories = {spec.key: Memory.fresh(WARM_SECONDS) for spec in specs}
    pool = PoolState(Levers(REPLICAS, 64, 512), ready=REPLICAS)
    spent = []
    for now, readings, pods in _snapshots(2 * ticks):
        started = time.process_time()
        claims = {}
        for spec in specs:
            assessment = assess(
                now=now,
                key=spec.key,
                objective=spec.objective,
                readings=readings,
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
        spent.append(time.process_time() - started)
    return spent[ticks:]


def _snapshots(ticks: int) -> Iterator[tuple[float, Readings, list[str]]]:
    """Time, readings and pod names of so many ticks of a pool under load."""
    spec, engine = _spec(0), PROFILES["8b-2xa100"]
    config = pool_config(spec, engine.latency, kv_tokens=engine.kv_tokens, startup=Startup(120.0))
    seconds = WARM_SECONDS + (ticks + 1) * TICK
    requests = synthesize(Curve.constant(40.0, seconds=seconds), lengths=AZURE_CONVERSATION, seed=1)
    pool = Pool(config, requests, replicas=REPLICAS, max_num_seqs=64, max_num_batched_tokens=512, seed=1)
    source = Source({spec.key: Columns(config.ttft_edges, config.tpot_edges)}, Scraping(), budget_days=(30,))
    scraper = source.scrapers[spec.key]
    for number in range(1, round(seconds / TICK)):
        now = number * TICK
        pool.advance(now)
        scraper.next_round(now)
        for offset in range(source.scraping.offsets):
            scraper.scrape(pool.pages(), at=now, offset=offset)
        snapshot = source.snapshot(now + 1.0)
        if now > WARM_SECONDS and spec.key in snapshot.readings:
            yield now, snapshot.readings[spec.key], [page.name for page in pool.pages()]


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
