"""Between tiers: who gets the GPUs when there are not enough for all. Pure; runs once a tick over every decision.

How many GPUs there are is not asked of anybody: that they are short is seen by a pod that finds no node. Tiers of one
GPU resource and one node selector compete; by priority, and those whose overflow is Defer come last.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from tierkeeper.scaling.context import changed_levers
from tierkeeper.scaling.evolve import evolve
from tierkeeper.scaling.memory import Memory, Taken
from tierkeeper.scaling.model import Decision, Lever, Limit, PoolState, Reason
from tierkeeper.scaling.wording import count
from tierkeeper.slo.model import Assessment, SignalState
from tierkeeper.tier import Mode, OverflowPolicy, TierKey, TierSpec
from tierkeeper.values import value

#: GPUs count as short for this long after a pod found no node: tiers that wait for one ask again every 25 minutes
#: (15 until it is given back, 10 until the next try), so twice that has shown none.
SHORT_SECONDS = 3000.0

#: A tier needs its GPUs, and lower tiers wait, for this long after it last burned: the shortest look-back window.
PRESSING_SECONDS = 60.0

#: A pod that has drained is gone, and its GPU free for the scheduler, within two scrapes of 15 s.
GONE_SECONDS = 30.0

#: Who waits for a GPU that has become free has it within this time: the scheduler's longest back-off is 10 s, and its
#: answer is seen two looks of 15 s later.
FOUND_SECONDS = 45.0

#: GPUs that were taken in vain are not taken again for so long: what a node holds seldom changes within a working day,
#: and each try costs the lower tiers what is above their minimum for minutes.
VAIN_SECONDS = 6 * 3600.0

_COMPETE = frozenset({Mode.AUTO, Mode.RECOMMEND})
_NO_MORE = frozenset({Reason.AT_MAXIMUM, Reason.INFEASIBLE, Reason.HOLD_EXTERNAL_SCALER})
"""Limits of a tier that GPUs would not mend."""


@value(frozen=True, slots=True)
class Claim:
    """One tier at one tick, as it would be if it were alone."""

    spec: TierSpec
    assessment: Assessment
    pool: PoolState
    decision: Decision
    memory: Memory

    @property
    def grows(self) -> bool:
        return self.decision.levers.replicas > self.pool.current.replicas

    @property
    def defers(self) -> bool:
        return self.spec.overflow.policy is OverflowPolicy.DEFER

    @property
    def gpus(self) -> int:
        return max(1, self.spec.resources.gpus_per_replica)

    def burns(self, now: float) -> bool:
        """Whether an objective burns or a queue stands, now or within the last minute. What slow windows remember of a
        burn that is over keeps nobody waiting: that would be half an hour."""
        pressed = self.memory.pressed_at
        if pressed is not None and now - pressed <= PRESSING_SECONDS:
            return True
        return any(slo.burns_now for slo in self.assessment.slos.values())

    def could_use_more(self) -> bool:
        """Whether GPUs would help: not at a limit of its own."""
        limited = self.decision.limited
        return limited is None or limited.reason not in _NO_MORE

    @property
    def fits_nowhere(self) -> bool:
        """Whether GPUs were freed for its pods lately and they found no node all the same: eight free ones on eight
        nodes are no use to a replica of eight."""
        return self.memory.taken is not None and self.memory.taken.vain

    def with_replicas(self, replicas: int, reason: Reason, message: str) -> Claim:
        """The same tier with other replicas decided, and its memory none the wiser."""
        levers = self.decision.levers.with_replicas(replicas)
        changed = changed_levers(self.pool.current, levers)
        live = [lever for lever in changed if lever is not Lever.REPLICAS]
        said = f"{self.decision.message}; {message}" if live else message
        decision = evolve(
            self.decision,
            levers=levers,
            reason=self.decision.reason if live and Lever.REPLICAS not in changed else reason,
            message=said,
            changed=changed,
            limited=Limit(reason, message),
        )
        decided = self.memory.decided
        memory = self.memory
        if decided is not None and self.spec.scaling.mode is not Mode.RECOMMEND:
            memory = evolve(memory, decided=decided.with_replicas(replicas), words=None)
        return Claim(self.spec, self.assessment, self.pool, decision, memory)


def arbitrate(now: float, claims: Mapping[TierKey, Claim]) -> dict[TierKey, tuple[Decision, Memory]]:
    """Every tier's decision and memory after the others were heard. Where nobody competes nothing changes.

    No tier grows while a higher one burns that GPUs would help. A higher one that burns without a node for its pods
    takes replicas above the minimum of the lowest tiers first. Tiers that defer grow only into what all others leave.
    Nothing is taken from a tier whose metrics are unknown, nor for one.
    """
    groups: dict[object, list[Claim]] = {}
    for claim in claims.values():
        if claim.spec.scaling.mode in _COMPETE:
            groups.setdefault(_gpu_class(claim.spec), []).append(claim)
    settled = dict(claims)
    for group in groups.values():
        if len(group) > 1:
            settled.update((claim.spec.key, claim) for claim in _share(now, sorted(group, key=_rank)))
    return {key: (claim.decision, claim.memory) for key, claim in settled.items()}


def _gpu_class(spec: TierSpec) -> tuple[object, ...]:
    selector = spec.pod.node_selector
    return spec.resources.gpu_resource_name, tuple(sorted(selector.items())) if selector else ()


def _rank(claim: Claim) -> tuple[bool, int, str, str]:
    """Highest first; between equals the name decides, so that every tick decides alike."""
    return (*_class(claim), *claim.spec.key)


def _class(claim: Claim) -> tuple[bool, int]:
    """Highest first; between equals nobody outranks the other."""
    return claim.defers, -claim.spec.priority


def _share(now: float, ranked: Sequence[Claim]) -> list[Claim]:
    """The claims of one GPU class, highest first, after each was held against those above it that press."""
    heard = ranked = [_judge(now, claim) for claim in ranked]
    if any(claim.grows for claim in ranked):
        short = any(_recently(now, claim.memory.short_at) for claim in ranked)
        first = {defers: _first_in_the_way(now, ranked, short=short, defers=defers) for defers in (False, True)}
        heard = [_hold_back(claim, first[claim.defers]) if claim.grows else claim for claim in ranked]
    return _take(now, heard)


def _judge(now: float, claim: Claim) -> Claim:
    """The claim, after what was last taken for its pods has shown whether it helped."""
    taken, pool, memory = claim.memory.taken, claim.pool, claim.memory
    if taken is None:
        return claim
    # Pods that are not created yet are not seen to lack a node: after a growth only Ready ones have found one.
    grown = memory.grown_at is not None and memory.grown_at > taken.at
    scheduled = pool.unschedulable < taken.unschedulable and pool.current.replicas >= taken.replicas
    found = pool.ready > taken.replicas - taken.unschedulable or (scheduled and not grown and not taken.vain)
    stale = now - taken.at > (VAIN_SECONDS if taken.vain else SHORT_SECONDS)
    if found or stale or taken.generation != claim.spec.generation:
        return dataclasses.replace(claim, memory=evolve(memory, taken=None))
    if not taken.vain and now >= taken.until and pool.unschedulable > 0 and claim.assessment.state.known:
        return dataclasses.replace(claim, memory=evolve(memory, taken=dataclasses.replace(taken, vain=True)))
    return claim


def _recently(now: float, at: float | None) -> bool:
    return at is not None and now - at <= SHORT_SECONDS


def _first_in_the_way(now: float, ranked: Sequence[Claim], *, short: bool, defers: bool) -> tuple[Claim, str] | None:
    """The highest tier that keeps lower ones from growing (``defers``: lower ones that defer), and what it does.

    Only that one need be asked: who does not rank below it ranks below no other. Asking all of them for each tier that
    grows would take a fleet of a thousand a million questions.
    """
    for claim in ranked:
        if claim.fits_nowhere:
            continue  # what others grow into is no use to it
        if (short or claim.could_use_more()) and claim.burns(now):
            return claim, "burns"
        if (short or defers) and (claim.grows or claim.pool.unschedulable > 0):
            return claim, "asks for GPUs"
    return None


def _hold_back(claim: Claim, first: tuple[Claim, str] | None) -> Claim:
    """A claim that grows, without its growth where somebody that outranks it is in the way."""
    if first is None or not _outranks(first[0], claim):
        return claim
    other, does = first
    message = f"{other.spec.key} {does} and comes first: no replica is added meanwhile"
    return claim.with_replicas(claim.pool.current.replicas, Reason.HOLD_PRIORITY, message)


def _outranks(other: Claim, claim: Claim) -> bool:
    return _class(other) < _class(claim)


def _take(now: float, ranked: list[Claim]) -> list[Claim]:
    """GPUs for the pods of burning tiers that found no node, from the lowest tiers' replicas above their minimum.

    What is on its way is counted first: replicas that a lower tier gave up and that still drain, and those that it
    gives up this very tick. It is worked out once a tier and not once a taker: a fleet of a thousand has many of both.
    """
    takers = [place for place, claim in enumerate(ranked) if _may_take(now, claim)]
    if not takers:
        return ranked
    settled, ranks = list(ranked), [_class(claim) for claim in ranked]
    freeing = [_freeing(now, claim) for claim in settled]
    givers = [place for place in reversed(range(len(settled))) if _spare(settled[place]) > 0]
    for place in takers:
        taker, below = settled[place], bisect_right(ranks, ranks[place])
        missing = taker.pool.unschedulable * taker.gpus - sum(freeing[below:])
        until = now
        for giver in givers:
            if missing <= 0 or giver < below:
                break
            settled[giver], freed = _give(now, settled[giver], missing, taker)
            freeing[giver] = _freeing(now, settled[giver])
            missing -= freed
            if freed:
                until = max(until, now + _gone_seconds(settled[giver]) + FOUND_SECONDS)
        if until > now:
            settled[place] = _remember_taken(now, taker, until)
    return settled


def _may_take(now: float, claim: Claim) -> bool:
    """Whether lower tiers make room for the pods of this one: it is known to burn, and GPUs were not freed in vain."""
    if claim.pool.unschedulable <= 0 or claim.assessment.state is not SignalState.OK or not claim.burns(now):
        return False
    taken = claim.memory.taken
    return taken is None or not (taken.vain or _is_being_found(now, claim, taken))


def _is_being_found(now: float, claim: Claim, taken: Taken) -> bool:
    """Whether the GPUs that were taken are free by now and the scheduler still has to say who fits there."""
    return taken.until - FOUND_SECONDS <= now < taken.until and claim.pool.unschedulable <= taken.unschedulable


def _remember_taken(now: float, taker: Claim, until: float) -> Claim:
    pool = taker.pool
    taken = Taken(now, until, pool.current.replicas, pool.unschedulable, taker.spec.generation)
    return dataclasses.replace(taker, memory=evolve(taker.memory, taken=taken))


def _freeing(now: float, claim: Claim) -> int:
    """GPUs that the tier has given up and whose pods may not be gone yet, and those of a shrink decided now."""
    freed, yielded = _holding(claim) - claim.decision.levers.replicas, claim.memory.yielded
    given = freed * claim.gpus if freed > 0 else 0
    if not yielded:
        return given
    gone = _gone_seconds(claim)
    return given + sum(gpus for at, gpus in yielded if now - at <= gone)


def _gone_seconds(claim: Claim) -> float:
    """Seconds after which a pod that was given up has left its GPU."""
    return claim.spec.rollout.drain_seconds + GONE_SECONDS


def _holding(claim: Claim) -> int:
    """Replicas that hold GPUs."""
    return claim.pool.current.replicas - claim.pool.unschedulable


def _spare(claim: Claim) -> int:
    """Replicas above the minimum that a higher tier may take; none of a tier that nobody can see."""
    mine = claim.pool.external_scaler is None and claim.spec.scaling.mode is Mode.AUTO
    if not mine or not claim.assessment.state.known:
        return 0
    return min(_holding(claim), claim.decision.levers.replicas) - claim.spec.scaling.replicas.min


def _give(now: float, claim: Claim, missing: int, taker: Claim) -> tuple[Claim, int]:
    """The claim with as many replicas less as free ``missing`` GPUs more, and how many that are."""
    given = min(_spare(claim), -(-missing // claim.gpus))
    if given <= 0:
        return claim, 0
    current, freed = claim.pool.current.replicas, given * claim.gpus
    kept = min(_holding(claim), claim.decision.levers.replicas) - given
    number = count(current - kept, "replica")
    message = f"{number} {current} → {kept} make room for {taker.spec.key}, which burns and has pods without a node"
    claim = claim.with_replicas(kept, Reason.YIELD_REPLICAS, message)
    recent = tuple(one for one in claim.memory.yielded if now - one[0] <= SHORT_SECONDS)
    return dataclasses.replace(claim, memory=evolve(claim.memory, yielded=(*recent, (now, freed)))), freed
