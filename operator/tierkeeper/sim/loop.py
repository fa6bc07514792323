"""Simulated tiers under a policy: pools are advanced, scraped, assessed, decided on and acted upon, tick by tick.

The assessment is the operator's own code. A policy is shown what a cluster would show: scraped samples, and pods by
state. It never sees an arrival, a length to come or a latency that no histogram holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tierkeeper.engine.flags import CUSTOM_BUCKETS, DEFAULT_BATCHED_TOKENS, live_resize
from tierkeeper.engine.latency import Profile
from tierkeeper.scaling.levers import starting_levers
from tierkeeper.scaling.model import Levers, PoolState
from tierkeeper.sim.columns import Columns
from tierkeeper.sim.model import PodCounts, PodPage, PoolConfig, Requests, Routing, Startup
from tierkeeper.sim.policy import Explains, Paced, Policy, TierView
from tierkeeper.sim.pool import Pool
from tierkeeper.sim.record import Recorder, Run, TierRun
from tierkeeper.sim.scrape import NO_FAULTS, Faults, Scraping, View
from tierkeeper.sim.source import Snapshot, Source
from tierkeeper.slo.assess import assess
from tierkeeper.slo.model import Assessment, SignalState
from tierkeeper.tier import TierKey, TierSpec

Progress = Callable[[float, float], None]
"""Called now and then with the seconds that are simulated and their total."""

SETTLE_SECONDS = 300.0
"""A run goes on for so long after the last arrival: 2,000 tokens at 100 ms take 200 s."""


class ImpossibleRunError(ValueError):
    """Tiers that cannot be run together, or not in the simulator; the text says which and what to change."""


@dataclass(frozen=True, slots=True)
class SimTier:
    """One tier of a run: what it promises, the replicas it would get, and who asks of it."""

    spec: TierSpec
    config: PoolConfig
    requests: Requests
    start: Levers | None = None
    """None: where the operator would start the tier."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run is done. Seconds."""

    tick_seconds: float = 15.0
    scraping: Scraping = field(default_factory=Scraping)
    faults: Faults = NO_FAULTS
    gpus: int | None = None
    """GPUs that all tiers share; None: as many as asked for. Pods beyond wait, higher priority first."""
    resize_seconds: float = 15.0
    """For so long after a change of the live limits the pods count as not having shown them yet."""
    seed: int = 0


def pool_config(
    spec: TierSpec,
    profile: Profile,
    *,
    kv_tokens: int,
    startup: Startup,
    routing: Routing = "least-loaded",
) -> PoolConfig:
    """The replicas that the operator would start for a tier: its GPUs, drain, queue limit and bucket edges."""
    objective, version = spec.objective, spec.engine.version
    edges = objective is not None and version is not None and version >= CUSTOM_BUCKETS
    promised = (objective.ttft_seconds, objective.tpot_seconds) if objective is not None and edges else (None, None)
    ttft, tpot = ((() if edge is None else (edge,)) for edge in promised)
    return PoolConfig(
        profile=profile,
        kv_tokens=kv_tokens,
        startup=startup,
        drain_seconds=float(spec.rollout.drain_seconds),
        gpus_per_replica=spec.resources.gpus_per_replica,
        routing=routing,
        max_queued_requests=spec.overflow.max_queued_requests,
        ttft_thresholds=ttft,
        tpot_thresholds=tpot,
    )


def simulate(
    tiers: Sequence[SimTier],
    policy: Policy,
    settings: Settings | None = None,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Run:
    """Run a policy over the tiers' traffic. A policy remembers: give each run a new one.

    ``seconds``: the length of the traffic, None: of all requests, in whole seconds. GPU time and changes count up to
    it, every request counts: cut the traffic itself to play less. The run goes on for ``SETTLE_SECONDS`` more. Raises
    ImpossibleRunError for tiers of one name, a tier that cannot be resized live, and fewer GPUs than the start needs.
    """
    settings = settings or Settings()
    if seconds is None:
        last = max((float(t.requests.arrival[-1]) for t in tiers if len(t.requests)), default=0.0)
        seconds = float(max(1, math.ceil(last)))
    world = _World(tiers, policy, settings, seconds)
    world.run(progress)
    return world.result()


@dataclass(slots=True)
class _Member:
    """A tier in the middle of a run."""

    tier: SimTier
    pool: Pool
    levers: Levers
    recorder: Recorder
    assessment: Assessment
    """The last one; before the first tick nothing is known."""
    ready_since: float | None = 0.0
    resized_at: float = -math.inf
    gpu_seconds: float = 0.0
    """At the end of the scored traffic."""
    live_pods: tuple[str, ...] = ()
    in_system: int = 0
    """Requests that had arrived and were not done at the last look."""
    _seen: PodCounts | None = None

    def look(self) -> list[PodPage]:
        """The pages of all pods, now."""
        pages = self.pool.pages()
        self._seen = self.pool.counts()
        self.live_pods = tuple(page.name for page in pages if not page.draining)
        self.in_system = self.pool.held + sum(page.running + page.waiting for page in pages)
        return pages

    def note_pods(self, now: float) -> None:
        """Which pods are Ready at a tick, and since when there is one without a break.

        The last look is still right where the counts are: a pod gets Ready and another one leaves in two counts.
        """
        if self.pool.counts() != self._seen:
            self.look()
        self.ready_since = (now if self.ready_since is None else self.ready_since) if self.live_pods else None


@dataclass(slots=True)
class _World:
    """The state of a run. See ``simulate``."""

    tiers: Sequence[SimTier]
    policy: Policy
    settings: Settings
    seconds: float
    _members: dict[TierKey, _Member] = field(init=False)
    _source: Source = field(init=False)
    _by_priority: list[_Member] = field(init=False)
    _jitter: np.random.Generator = field(init=False)
    _clock: float = 0.0
    _assessed_at: float = -math.inf

    def __post_init__(self) -> None:
        keys = [tier.spec.key for tier in self.tiers]
        if len(set(keys)) < len(keys) or not keys:
            raise ImpossibleRunError(
                f"tiers {', '.join(map(str, keys)) or '(none)'}: give one or more, each with its own name"
            )
        ticks = math.ceil((self.seconds + SETTLE_SECONDS) / self.settings.tick_seconds) + 1
        self._members = {
            tier.spec.key: _member(tier, seed=self.settings.seed + place, ticks=ticks)
            for place, tier in enumerate(self.tiers)
        }
        asked = sum(m.levers.replicas * m.tier.config.gpus_per_replica for m in self._members.values())
        if self.settings.gpus is not None and asked > self.settings.gpus:
            raise ImpossibleRunError(
                f"gpus: {self.settings.gpus} are fewer than the {asked} that the tiers start with; give more"
            )
        self._by_priority = sorted(self._members.values(), key=lambda m: -m.tier.spec.priority)
        objectives = [tier.spec.objective for tier in self.tiers]
        self._source = Source(
            {t.spec.key: Columns(t.config.ttft_edges, t.config.tpot_edges) for t in self.tiers},
            self.settings.scraping,
            budget_days={o.window_days for o in objectives if o is not None},
            faults=self.settings.faults,
            seed=self.settings.seed,
        )
        self._jitter = np.random.default_rng(self.settings.seed)

    def run(self, progress: Progress | None) -> None:
        """Tick until the traffic and what it left is over."""
        tick, end = self.settings.tick_seconds, self.seconds + SETTLE_SECONDS
        scrapes = self._scrapes()
        due, offset = next(scrapes)
        for number in range(1, math.floor(end / tick) + 1):
            now = number * tick
            while due <= now:
                self._scrape(due, offset)
                due, offset = next(scrapes)
            self._advance(now)
            self._tick(now)
            if progress is not None and number % 40 == 0:
                progress(now, end)

    def result(self) -> Run:
        runs = {
            key: TierRun(
                spec=member.tier.spec,
                requests=member.tier.requests,
                outcome=member.pool.outcomes(),
                series=member.recorder.series(),
                decisions=member.recorder.entries,
                profile=member.tier.config.profile,
                startup_seconds=member.tier.config.startup.median_seconds,
                gpu_seconds=member.gpu_seconds,
            )
            for key, member in self._members.items()
        }
        return Run(
            policy=self.policy.name,
            seconds=self.seconds,
            tick_seconds=self.settings.tick_seconds,
            gpus=self.settings.gpus,
            tiers=runs,
        )

    def _scrapes(self) -> Iterator[tuple[float, int]]:
        """Times of the scrapes, ascending, each with its offset; a round is begun before its first one."""
        scraping, number = self.settings.scraping, 0
        while True:
            start = number * scraping.interval_seconds
            for scraper in self._source.scrapers.values():
                scraper.next_round(start)
            for offset in range(scraping.offsets):
                share = (offset + 0.5) / scraping.offsets
                jitter = self._jitter.uniform(-scraping.jitter_seconds, scraping.jitter_seconds)
                yield start + share * scraping.interval_seconds + jitter, offset
            number += 1

    def _scrape(self, at: float, offset: int) -> None:
        self._advance(at)
        for key, member in self._members.items():
            self._source.scrapers[key].scrape(member.look(), at=at, offset=offset)

    def _advance(self, until: float) -> None:
        """Pools on their way, with the GPUs there are: who has one keeps it, free ones go by priority."""
        if self._clock < self.seconds < until:
            self._advance(self.seconds)
        self._clock = until
        self._share_gpus()
        for member in self._members.values():
            member.pool.advance(until)
            if until <= self.seconds:
                member.gpu_seconds = member.pool.gpu_seconds
        self._share_gpus()

    def _share_gpus(self) -> None:
        gpus = self.settings.gpus
        if gpus is None:
            return
        held = {}
        for member in self._by_priority:
            counts = member.pool.counts()
            held[member.tier.spec.key] = counts.ready + counts.starting + counts.draining
        free = gpus - sum(pods * self._members[key].tier.config.gpus_per_replica for key, pods in held.items())
        for member in self._by_priority:
            size = max(1, member.tier.config.gpus_per_replica)
            granted = min(member.pool.counts().unschedulable, max(0, free) // size)
            free -= granted * size
            member.pool.schedulable = held[member.tier.spec.key] + granted

    def _tick(self, now: float) -> None:
        interval = self.settings.scraping.interval_seconds
        snapshot = None
        if not isinstance(self.policy, Paced) or now - self._assessed_at >= interval:
            snapshot, self._assessed_at = self._source.snapshot(now), now
        samples = self._source.views(now) if snapshot is None else snapshot.views
        for key, member in self._members.items():
            member.note_pods(now)
            if snapshot is not None:
                self._assess(key, member, now, snapshot)
        views = {key: self._view(member, now, samples[key]) for key, member in self._members.items()}
        wanted = self.policy.decide(now=now, views=views)
        decisions = self.policy.decisions if isinstance(self.policy, Explains) else {}
        for key, member in self._members.items():
            levers = _bounded(member.tier.spec, wanted.get(key, member.levers))
            decision = decisions.get(key)
            reason, message = (decision.reason.value, decision.message) if decision else ("", "")
            member.recorder.decision(at=now, pool=views[key].pool, after=levers, reason=reason, message=message)
            _actuate(member, levers, now)
        self._share_gpus()
        for key, member in self._members.items():
            member.recorder.tick(
                at=now,
                levers=member.levers,
                counts=member.pool.counts(),
                gpu_seconds=member.pool.gpu_seconds,
                in_system=member.in_system,
                assessment=views[key].assessment,
            )

    def _assess(self, key: TierKey, member: _Member, now: float, snapshot: Snapshot) -> None:
        member.assessment = assess(
            now=now,
            key=key,
            objective=member.tier.spec.objective,
            readings=snapshot.readings.get(key),
            live_pods=member.live_pods,
            ready_since=member.ready_since,
            previous=member.assessment,
            scrape_interval_seconds=self.settings.scraping.interval_seconds,
            source_error=snapshot.error,
            windows=self._source.windows,
        )

    def _view(self, member: _Member, now: float, samples: View) -> TierView:
        """The tier as the operator would see it now."""
        resizing = now - member.resized_at <= self.settings.resize_seconds
        pool = _pool_state(member, resizing=resizing)
        return TierView(spec=member.tier.spec, assessment=member.assessment, pool=pool, samples=samples)


def _member(tier: SimTier, *, seed: int, ticks: int) -> _Member:
    spec = tier.spec
    support = live_resize(spec)
    if not support.supported:
        raise ImpossibleRunError(
            f"{spec.key}: {support.message}; a run changes limits live: set spec.engine to one that can"
        )
    levers = tier.start or starting_levers(spec)
    pool = Pool(
        tier.config,
        tier.requests,
        replicas=levers.replicas,
        max_num_seqs=levers.max_num_seqs,
        max_num_batched_tokens=levers.max_num_batched_tokens or _engine_budget(spec),
        seed=seed,
    )
    unknown = Assessment(key=spec.key, state=SignalState.NO_DATA, reason="WaitingForSamples", said="")
    return _Member(tier=tier, pool=pool, levers=levers, recorder=Recorder(ticks), assessment=unknown)


def _engine_budget(spec: TierSpec) -> int:
    """The token budget that the engine has of itself."""
    return spec.engine.max_num_batched_tokens or DEFAULT_BATCHED_TOKENS


def _pool_state(member: _Member, *, resizing: bool) -> PoolState:
    """The pool by its pods, as ``control.pool`` derives it from the objects of a cluster."""
    counts = member.pool.counts()
    short = f"0/1 nodes are available: 1 Insufficient {member.tier.spec.resources.gpu_resource_name}"
    return PoolState(
        current=member.levers,
        ready=counts.ready,
        unschedulable=counts.unschedulable,
        startup_seconds=member.pool.startup_seconds(),
        unschedulable_message=f"scheduler: {short}" if counts.unschedulable else "",
        resizing=resizing,
    )


def _bounded(spec: TierSpec, levers: Levers) -> Levers:
    """Within what the tier allows, whoever asks."""
    scaling = spec.scaling
    tokens = levers.max_num_batched_tokens
    if tokens is not None and scaling.max_num_batched_tokens is not None:
        tokens = scaling.max_num_batched_tokens.clamp(tokens)
    return Levers(
        replicas=scaling.replicas.clamp(levers.replicas),
        max_num_seqs=scaling.max_num_seqs.clamp(levers.max_num_seqs),
        max_num_batched_tokens=tokens,
    )


def _actuate(member: _Member, levers: Levers, now: float) -> None:
    before, member.levers = member.levers, levers
    if levers.replicas != before.replicas:
        member.pool.set_replicas(levers.replicas)
    limits = (levers.max_num_seqs, levers.max_num_batched_tokens)
    if limits != (before.max_num_seqs, before.max_num_batched_tokens):
        member.resized_at = now
        member.pool.set_limits(
            max_num_seqs=levers.max_num_seqs,
            max_num_batched_tokens=levers.max_num_batched_tokens or _engine_budget(member.tier.spec),
        )
