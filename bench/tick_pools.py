"""The pools behind ``bench.tick``: simulated, each in another state, and all moved by what their tiers decide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from tierkeeper.render.promql import Query, queries
from tierkeeper.scaling.model import Decision, Levers, PoolState
from tierkeeper.sim.columns import Columns
from tierkeeper.sim.loop import pool_config
from tierkeeper.sim.model import Startup
from tierkeeper.sim.pool import Pool
from tierkeeper.sim.profiles import PROFILES
from tierkeeper.sim.scrape import Scraping, View
from tierkeeper.sim.source import LABELS, Source, answer
from tierkeeper.sim.traffic import AZURE_CONVERSATION, Curve, gamma, plateau, synthesize
from tierkeeper.slo.model import Sample
from tierkeeper.slo.signals import Signal
from tierkeeper.tier import Bounds, Engine, Mode, Model, Objective, Resources, Scaling, TierKey, TierSpec

TICK = 15.0
SECONDS = 5400.0
"""Traffic for an hour and a half: longer than any run."""


@dataclass(frozen=True, slots=True)
class State:
    """One kind of tier."""

    name: str
    rate: float
    """Requests a second."""
    replicas: int
    """At the start."""
    most: int = 24
    """spec.scaling.replicas.max."""
    seqs: int = 64
    """max-num-seqs, at the start and at most four times as many."""
    priority: int = 1
    nodes: int | None = None
    """Pods that find a node; None: all."""
    wave: bool = False
    """The load swings between once and twice as much every ten minutes."""
    scraped: bool = True
    tpot_seconds: float = 0.04

    @property
    def spec(self) -> TierSpec:
        """The tier as a user would write it, without a name of its own."""
        return TierSpec(
            key=TierKey("llm", self.name),
            uid="0",
            generation=1,
            model=Model("example/model", "example"),
            objective=Objective(ratio=0.99, ttft_seconds=1.5, tpot_seconds=self.tpot_seconds),
            engine=Engine(image="vllm/vllm-openai:v0.32.0", version=(0, 32, 0), max_num_seqs=self.seqs),
            resources=Resources(gpus_per_replica=2),
            scaling=Scaling(Mode.AUTO, Bounds(1, self.most), Bounds(8, 4 * self.seqs), Bounds(512, 8192)),
            priority=self.priority,
        )


STATES = (
    State("calm", rate=40.0, replicas=8, priority=2),
    State("swinging", rate=20.0, replicas=5, priority=2, wave=True),
    State("queue-bound", rate=40.0, replicas=4, most=4, priority=3),
    State("tpot-bound", rate=14.0, replicas=2, most=2, seqs=256, tpot_seconds=0.02, priority=1),
    State("at-least", rate=2.0, replicas=1, priority=0),
    State("idle", rate=0.0, replicas=2, priority=0),
    State("no-data", rate=10.0, replicas=3, priority=1, scraped=False),
    State("no-node", rate=40.0, replicas=5, nodes=5, priority=3),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """One pool at a tick."""

    pool: PoolState
    live_pods: Sequence[str]


@dataclass(frozen=True, slots=True)
class Look:
    """What a tick has to go on."""

    now: float
    answers: Iterator[tuple[Signal, list[Sample]]]
    """What is due to be asked, about all tiers, one answer after the other."""
    pools: Sequence[Seen]
    """By state."""


class World:
    """All pools, scraped and moved in step."""

    def __init__(self) -> None:
        engine = PROFILES["8b-2xa100"]
        configs = [
            pool_config(s.spec, engine.latency, kv_tokens=engine.kv_tokens, startup=Startup(120.0)) for s in STATES
        ]
        self._levers = [Levers(state.replicas, state.seqs, 512) for state in STATES]
        self._pools = [
            Pool(
                config,
                synthesize(_curve(state), law=gamma(cv=1.1), lengths=AZURE_CONVERSATION, seed=number),
                replicas=state.replicas,
                max_num_seqs=state.seqs,
                max_num_batched_tokens=512,
                seed=number,
            )
            for number, (state, config) in enumerate(zip(STATES, configs, strict=True))
        ]
        for state, pool in zip(STATES, self._pools, strict=True):
            pool.schedulable = state.nodes
        columns = {s.spec.key: Columns(c.ttft_edges, c.tpot_edges) for s, c in zip(STATES, configs, strict=True)}
        self._source = Source(columns, Scraping(), budget_days=(30,))
        self._queries = queries(LABELS, self._source.windows, budget_days=(30,))
        self._asked: dict[Signal, float] = {}
        self._moved = [-inf] * len(STATES)
        self.now = 0.0

    def next_tick(self, keys: Sequence[TierKey]) -> Look:
        """The next tick of tiers with these names: tier k has the figures of state k modulo their number."""
        self.now += TICK
        source = self._source
        for pool, scraper in zip(self._pools, source.scrapers.values(), strict=True):
            pool.advance(self.now)
            scraper.next_round(self.now)
            for offset in range(source.scraping.offsets):
                scraper.scrape(pool.pages(), at=self.now, offset=offset)
        views = [scraper.at(self.now + 1.0 - source.scraping.late) for scraper in source.scrapers.values()]
        due = [
            query for query in self._queries if self.now - self._asked.get(query.signal, -inf) >= query.every_seconds
        ]
        self._asked.update((query.signal, self.now) for query in due)
        shown = [(key, views[number % len(STATES)]) for number, key in enumerate(keys)]
        shown = [one for number, one in enumerate(shown) if STATES[number % len(STATES)].scraped]
        return Look(self.now, _answers(due, shown), [self._seen(number) for number in range(len(STATES))])

    def act(self, decisions: Sequence[Decision]) -> None:
        """Pull the levers as one tier of each state has decided."""
        for number, decision in enumerate(decisions):
            levers, pool = decision.levers, self._pools[number]
            if levers == self._levers[number]:
                continue
            self._levers[number], self._moved[number] = levers, self.now
            pool.set_replicas(levers.replicas)
            pool.set_limits(
                max_num_seqs=levers.max_num_seqs, max_num_batched_tokens=levers.max_num_batched_tokens or 8192
            )

    def _seen(self, number: int) -> Seen:
        pool = self._pools[number]
        counts = pool.counts()
        shown = PoolState(
            current=self._levers[number],
            ready=counts.ready,
            unschedulable=counts.unschedulable,
            unschedulable_message="scheduler: 0/9 nodes are available: 9 Insufficient nvidia.com/gpu",
            resizing=self.now - self._moved[number] <= TICK,
            startup_seconds=pool.startup_seconds(),
        )
        return Seen(shown, [page.name for page in pool.pages() if not page.draining])


def _curve(state: State) -> Curve:
    rate = Curve.constant(state.rate, seconds=SECONDS)
    if state.wave:
        for start in range(600, int(SECONDS) - 600, 1200):
            rate = rate.times(plateau(2.0, start=float(start), end=start + 600.0, slope_seconds=60.0))
    return rate


def _answers(due: Iterable[Query], shown: Sequence[tuple[TierKey, View]]) -> Iterator[tuple[Signal, list[Sample]]]:
    for query in due:
        yield (
            query.signal,
            [one for key, view in shown for one in answer(query.signal, key, view, stepped=query.optional)],
        )
