"""What the decision code remembers between two ticks: plain values, never saved.

An operator that starts anew has a fresh memory. It may grow a pool at once and shrink one only after a full
stabilization window, because it cannot know what happened before.
"""

from __future__ import annotations

import math
from dataclasses import field

from tierkeeper.engine.latency import Lengths, Profile
from tierkeeper.scaling import knowledge as known
from tierkeeper.scaling.evolve import evolve
from tierkeeper.scaling.knowledge import STARTUP_SECONDS, Knowledge
from tierkeeper.scaling.model import Levers, PoolState, Reason
from tierkeeper.scaling.returns import Returns
from tierkeeper.slo.model import Assessment
from tierkeeper.tier import TierSpec
from tierkeeper.values import value


@value(frozen=True, slots=True)
class Recommendation:
    """How many replicas a tick wanted, before any guard."""

    at: float
    replicas: int


@value(frozen=True, slots=True)
class CapRaise:
    """The last raise of max-num-seqs, kept until it has proven harmless."""

    at: float
    before: int
    after: int
    failing: int
    """Pods that were failing already when the cap was raised."""


@value(frozen=True, slots=True)
class CapMark:
    """A live limit above which the pool did not keep TPOT or ran out of KV cache."""

    at: float
    cap: int
    of_cache: bool = False
    """The KV cache was to blame, and not TPOT."""


@value(frozen=True, slots=True)
class Strain:
    """How many requests ran in each replica when replicas had to be added: more than one replica can take."""

    at: float
    running_per_replica: float


@value(frozen=True, slots=True)
class Taken:
    """GPUs that lower tiers gave up for pods of this one that had found no node."""

    at: float
    until: float
    """When they are free for the scheduler, and have been for long enough."""
    replicas: int
    unschedulable: int
    generation: int
    """Of the spec: another one may ask for less of a node."""
    vain: bool = False
    """They were freed and no pod found a node all the same: its pods ask for what no node has."""


@value(frozen=True, slots=True)
class Words:
    """What a calm pool last said, and of which levers."""

    reason: Reason
    message: str
    levers: Levers
    wanted_at: float
    """When it was last the right thing to say."""


#: A rate over a minute is half a minute old.
RATE_AGE_SECONDS = 30.0

#: Weight of one more measured start: a handful of them make the mean.
STARTUP_WEIGHT = 0.3

#: Ticks are 5 to 15 s apart: so long without one that wanted anything is a gap, and no slow tick.
GAP_SECONDS = 60.0

#: A queue's trend is read over this long: six looks at a 5 s tick, two or three at 15 s.
DRAIN_LOOK_SECONDS = 30.0


@value(frozen=True, slots=False)
class Memory:
    """State of one tier's loop. Times are monotonic seconds; None means that it has not happened."""

    started_at: float
    spec: TierSpec | None = None
    """The spec that the measured figures belong to; another engine, model or GPU forgets them."""
    seen: Levers | None = None
    """Levers as the last tick found them."""
    decided: Levers | None = None
    """Levers as the last tick left them; arbitration may have put other replicas in its place."""
    decided_at: float | None = None
    ready: int | None = None
    replicas_at: float | None = None
    """Last change of the replicas, by the loop or by another hand."""
    grown_at: float | None = None
    """Last time that they became more."""
    live_at: float | None = None
    """Last change of max-num-seqs or of the token budget."""
    capacity_at: float | None = None
    """Last time a pod became Ready."""
    starting_since: float | None = None
    asked: tuple[float, ...] = ()
    """When each replica in flight was asked for, older first."""
    startup_seconds: float | None = None
    """Measured: from a replica asked for to one more Ready, the last ones smoothed."""
    startup_told: float | None = None
    """What the pods' objects say of their own starts: taken while none was measured."""
    unschedulable_since: float | None = None
    released_at: float | None = None
    """When a stuck scale-up was given back."""
    resizing_since: float | None = None
    queue_since: float | None = None
    """Since when requests have to wait too long, without a break."""
    queued_at: float | None = None
    """Last time that requests had to wait too long."""
    pressed_at: float | None = None
    """Last time that an objective burned or requests had to wait too long."""
    calm_since: float | None = None
    """Since when nothing burned, queued or was unknown, without a break."""
    last_raise: CapRaise | None = None
    cap_bound: int | None = None
    """The largest max-num-seqs that has not killed a pod, where a larger one did."""
    cap_mark: CapMark | None = None
    tokens_mark: CapMark | None = None
    """The same for the token budget."""
    stands_open: bool = False
    """Whether the live limits stand open for an overload."""
    strain: Strain | None = None
    yielded: tuple[tuple[float, int], ...] = ()
    """(time, GPUs) given up for a higher tier, while their pods may still drain."""
    taken: Taken | None = None
    """What was last taken from lower tiers, until a pod has found a node."""
    short_at: float | None = None
    """Last time that a replica found no node."""
    knowledge: Knowledge = field(default_factory=Knowledge)
    recommendations: tuple[Recommendation, ...] = ()
    """The sliding maximum: older first, each larger than the next."""
    returns: Returns = Returns()
    words: Words | None = None
    drift: str = ""
    """What another hand changed since the last tick; said once."""

    @classmethod
    def fresh(cls, now: float) -> Memory:
        """The memory of an operator that has just started, or of a tier seen for the first time."""
        return cls(started_at=now)

    def highest_recommendation(self, *, since: float, default: int) -> int:
        return max((r.replicas for r in self.recommendations if r.at >= since), default=default)

    def drain_seconds(self) -> float:
        """Seconds until the queue is empty at the pace of the last looks; infinite where it does not shrink."""
        looks = self.knowledge.looks
        if not looks:
            return math.inf
        last = looks[-1]
        first = next(look for look in looks if look.at >= last.at - DRAIN_LOOK_SECONDS)
        gone, took = first.waiting - last.waiting, last.at - first.at
        return last.waiting * took / gone if gone > 0 and took > 0 else math.inf

    @property
    def lead_seconds(self) -> float:
        """How old the demand is when a replica that is asked for now begins to serve: its start-up, else
        STARTUP_SECONDS, and half of the minute that rates look back."""
        return (self.known_startup or STARTUP_SECONDS) + RATE_AGE_SECONDS

    @property
    def known_startup(self) -> float | None:
        """The start-up time, measured or told by the pods; None where neither was."""
        return self.startup_told if self.startup_seconds is None else self.startup_seconds

    @property
    def changed_at(self) -> float | None:
        """Last change of any lever."""
        replicas, live = self.replicas_at, self.live_at
        return replicas if live is None or (replicas is not None and replicas > live) else live

    @property
    def relieved_at(self) -> float | None:
        """Since when look-back windows may show the present state: the last change, new pod or end of a backlog."""
        times = [self.changed_at, self.capacity_at, self.queued_at if self.queue_since is None else None]
        return max([time for time in times if time is not None], default=None)


def in_flight(pool: PoolState, assessment: Assessment) -> int:
    """Replicas that were asked for and are still to come: created and loading, or not created yet.

    Overload can make every pod fail its readiness probe. Pods that serve requests while none is Ready are not loading:
    a pod that loads has no series.
    """
    traffic = assessment.traffic
    serving = traffic.observed_pods if pool.ready == 0 and traffic.running > 0 else pool.ready
    return max(0, pool.current.replicas - serving - pool.unschedulable - pool.failing)


def lengths(assessment: Assessment) -> Lengths:
    """Mean token lengths the pool shows, or the default where it does not."""
    traffic, default = assessment.traffic, Lengths()
    return Lengths(
        prompt_tokens=traffic.mean_prompt_tokens or default.prompt_tokens,
        output_tokens=traffic.mean_output_tokens or default.output_tokens,
    )


def observe(
    memory: Memory, *, now: float, spec: TierSpec, assessment: Assessment, pool: PoolState, profile: Profile
) -> Memory:
    """The memory after looking at the pool, before anything is decided."""
    if memory.spec is not spec and not _serve_alike(memory.spec, spec):
        memory = evolve(
            memory,
            spec=spec,
            startup_seconds=None,
            last_raise=None,
            cap_bound=None,
            cap_mark=None,
            tokens_mark=None,
            strain=None,
            returns=Returns(),
            knowledge=known.of_another_engine(memory.knowledge),
        )
    elif memory.spec is not None and memory.spec.objective != spec.objective:
        memory = evolve(memory, returns=Returns())  # another promise needs other replicas for the same load
    memory = _observe_replicas(memory, now=now, current=pool.current)
    coming = in_flight(pool, assessment)
    grew = memory.ready is not None and pool.ready > memory.ready
    asked, startup = _startup(memory, now=now, coming=coming, grew=grew, pool=pool)
    return evolve(
        memory,
        spec=spec,  # that serves alike, and the next tick sees it at once
        ready=pool.ready,
        capacity_at=now if grew else memory.capacity_at,
        asked=asked,
        startup_seconds=startup,
        startup_told=pool.startup_seconds,
        starting_since=since(memory.starting_since, coming > 0, now),
        unschedulable_since=since(memory.unschedulable_since, pool.unschedulable > 0, now),
        resizing_since=since(memory.resizing_since, pool.resizing, now),
        short_at=now if pool.unschedulable > 0 else memory.short_at,
        knowledge=known.learn(
            memory.knowledge,
            now=now,
            spec=spec,
            assessment=assessment,
            pool=pool,
            profile=profile,
            lead_seconds=memory.lead_seconds,
        ),
    )


def _serve_alike(before: TierSpec | None, spec: TierSpec) -> bool:
    """Whether what was measured of one holds for the other: the same engine serves the same model on the same GPUs."""
    return (
        before is not None
        and before.engine == spec.engine
        and (before.model.id, before.model.revision) == (spec.model.id, spec.model.revision)
        and before.resources == spec.resources
        and before.pod.node_selector == spec.pod.node_selector
    )


def _startup(
    memory: Memory, *, now: float, coming: int, grew: bool, pool: PoolState
) -> tuple[tuple[float, ...], float | None]:
    """The replicas still asked for, and the start-up time after those that became Ready: first asked, first Ready.

    What was in flight before the operator looked has no known beginning and is not measured. Nor has what was not asked
    for as a replica more: a pod that is not Ready for a moment, or that was made anew.
    """
    asked, startup = memory.asked, memory.startup_seconds
    if grew and memory.ready is not None:
        came, asked = asked[: pool.ready - memory.ready], asked[pool.ready - memory.ready :]
        for took in (now - at for at in came if at > memory.started_at):
            startup = took if startup is None else startup + STARTUP_WEIGHT * (took - startup)
    new = max(0, coming - len(asked))
    more = min(new, max(0, pool.current.replicas - memory.seen.replicas)) if memory.seen is not None else new
    return (*asked[:coming], *([memory.started_at] * (new - more)), *([now] * more)), startup


def since(start: float | None, holds: bool, now: float) -> float | None:
    """Since when something holds without a break: its start, now where it begins, None where it does not hold."""
    if not holds:
        return None
    return now if start is None else start


def _observe_replicas(memory: Memory, *, now: float, current: Levers) -> Memory:
    """When the replicas last changed. A count that is neither what was seen nor what was decided is another hand's."""
    seen, decided = memory.seen, memory.decided
    if seen is None or decided is None or current.replicas == seen.replicas:
        return memory if not memory.drift else evolve(memory, drift="")
    if current.replicas > seen.replicas:
        memory = evolve(memory, grown_at=now)
    if current.replicas == decided.replicas:
        return evolve(memory, drift="", replicas_at=memory.decided_at)
    drift = f"replicas were changed {decided.replicas} → {current.replicas} by another hand"
    return evolve(memory, drift=drift, replicas_at=now)


def remember_recommendation(
    memory: Memory, *, now: float, replicas: int, current: int, window_seconds: float
) -> Memory:
    """Adds what this tick wanted to the sliding maximum; what is older than the window, or lower, can never count.

    After a time without ticks that wanted anything (paused, fixed, or a process that stood still) nobody can say that
    fewer than the ``current`` replicas would have been enough, and the window begins anew.
    """
    last = memory.recommendations[-1].at if memory.recommendations else memory.started_at
    if now - last > GAP_SECONDS:
        replicas = max(replicas, current)
    kept = tuple(r for r in memory.recommendations if r.at >= now - window_seconds and r.replicas > replicas)
    return evolve(memory, recommendations=(*kept, Recommendation(now, replicas)))
