"""Everything one decision looks at, and the figures derived from it."""

from __future__ import annotations

from tierkeeper.engine.latency import LLAMA_8B_2XA100, Profile, tpot_growth
from tierkeeper.scaling.diagnose import Finding
from tierkeeper.scaling.memory import Memory, lengths
from tierkeeper.scaling.model import Lever, Levers, Limit, PoolState, Reason, serving
from tierkeeper.scaling.pace import overspent
from tierkeeper.scaling.returns import STANDS_SECONDS
from tierkeeper.scaling.sizing import Plan
from tierkeeper.slo.model import Assessment, SignalState, SloAssessment, Traffic
from tierkeeper.tier import TierSpec
from tierkeeper.values import value

#: TPOT has room while its P99 is below this share of the target. A cap raise of half costs at most half more TPOT
#: (a step is never worse than proportional to its batch), so 0.8 leaves the prediction to say how far to go.
ROOM_SHARE = 0.8

#: A max-num-seqs that burned TPOT is not tried again for this long: the slow control pair looks back 30 minutes.
CAP_MARK_SECONDS = 1800.0

#: After a change that only histograms can see: the shortest window (60 s) and one scrape (15 s) must lie behind it.
SETTLE_WINDOW_SECONDS = 75.0

#: A change of direction waits for twice the start-up time: any sooner, it was a swing and not the load.
STARTS_BEFORE_TURNING = 2.0

#: A live resize that has not reached every pod by now is stuck (it takes 5 s, and 90 s where kubelet is not nudged):
#: the live levers count as out of reach and replicas must do.
RESIZE_STUCK_SECONDS = 120.0


@value(frozen=True, slots=True)
class Proposal:
    """Levers that somebody wants, why, and what was held back. Guards turn one into another."""

    levers: Levers
    reason: Reason
    why: str
    """The cause of a change, a clause that follows the named change; of a hold, the whole sentence."""
    limited: Limit | None = None
    demanded: int = 0
    """Replicas that measured demand asks for; the rest of a growth is a reaction to what burns."""

    def with_levers(
        self,
        *,
        replicas: int | None = None,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
    ) -> Proposal:
        """The same proposal with some levers set otherwise; None leaves one as it is."""
        levers = Levers(
            replicas=self.levers.replicas if replicas is None else replicas,
            max_num_seqs=self.levers.max_num_seqs if max_num_seqs is None else max_num_seqs,
            max_num_batched_tokens=(
                self.levers.max_num_batched_tokens if max_num_batched_tokens is None else max_num_batched_tokens
            ),
        )
        return Proposal(levers, self.reason, self.why, self.limited, self.demanded)


@value(frozen=True, slots=False)
class Context:
    now: float
    spec: TierSpec
    assessment: Assessment
    pool: PoolState
    memory: Memory
    finding: Finding
    plan: Plan | None = None
    """None while the pool has not shown its speed: replicas then follow slots and burn alone."""
    profile: Profile = LLAMA_8B_2XA100

    @property
    def current(self) -> Levers:
        return self.pool.current

    @property
    def traffic(self) -> Traffic:
        return self.assessment.traffic

    @property
    def window(self) -> float:
        """The stabilization window in seconds."""
        return float(self.spec.scaling.scale_down_stabilization_seconds)

    @property
    def shrink_window(self) -> float:
        """How long fewer replicas must have been enough before one leaves: the stabilization window, and twice the
        start-up where that is longer, since what is given back is missed for so long."""
        return max(self.window, STARTS_BEFORE_TURNING * (self.memory.known_startup or 0.0))

    @property
    def serving(self) -> int:
        return serving(self.pool, self.traffic)

    @property
    def load(self) -> float:
        """Requests in the pool: running and waiting."""
        return self.traffic.running + self.traffic.waiting

    @property
    def worst_load(self) -> float:
        """The load if each Ready pod without fresh series were full: what a shrink must assume."""
        unseen = max(0, self.pool.ready - self.traffic.observed_pods)
        return self.load + unseen * self.current.max_num_seqs

    @property
    def batch(self) -> float:
        """Mean running batch of a pod, at least one sequence."""
        return max(1.0, self.traffic.running / self.serving)

    @property
    def live_reachable(self) -> bool:
        """Whether cap and token budget can be moved without a restart, and the last move arrived."""
        since = self.memory.resizing_since
        return self.pool.live_resize and (since is None or self.elapsed(since) < RESIZE_STUCK_SECONDS)

    @property
    def budget_frozen(self) -> bool:
        """Whether some error budget is spent beyond the share at which its policy freezes voluntary change."""
        spent = self.assessment.budget_spent_percent
        return (
            self.spec.objective is not None and spent is not None and spent >= self.spec.objective.budget.freeze_percent
        )

    @property
    def budget_gone(self) -> bool:
        """Whether a load that comes back must find its replicas: there is no budget left to miss its first minutes."""
        here = self.memory.knowledge.here
        return here is not None and (self.budget_frozen or overspent(here.objective, self.assessment))

    @property
    def queued_seconds(self) -> float:
        """For how long the queue has been too long; zero where it is not."""
        return 0.0 if self.memory.queue_since is None else self.now - self.memory.queue_since

    @property
    def queue_stands(self) -> bool:
        """Whether the queue is too long, and no burst's."""
        return self.queued_seconds >= STANDS_SECONDS

    def elapsed(self, since: float | None) -> float:
        """Seconds since a time; infinite where it never happened."""
        return float("inf") if since is None else self.now - since

    def tpot_allows(self, cap: int) -> bool:
        """Whether P99 TPOT, scaled by the latency model, stays within the target at a full batch of ``cap``."""
        tpot = self.assessment.tpot
        if tpot is None:
            return True
        if not has_room(tpot) or tpot.p99 is None:
            return False
        growth = tpot_growth(
            self.profile, batch_from=min(self.batch, cap), batch_to=cap, lengths=lengths(self.assessment)
        )
        return tpot.p99.seconds * growth <= tpot.threshold_seconds

    def cap_ceiling(self, *, tpot: bool = True) -> int:
        """The largest max-num-seqs that the spec allows and that has not gone wrong lately; where ``tpot`` is given up,
        only what the engine did not survive or had no KV cache for counts as wrong."""
        ceiling = self.spec.scaling.max_num_seqs.max
        if self.memory.cap_bound is not None:
            ceiling = min(ceiling, self.memory.cap_bound)
        mark = self.memory.cap_mark
        if mark is not None and (tpot or mark.of_cache) and self.elapsed(mark.at) < CAP_MARK_SECONDS:
            ceiling = min(ceiling, mark.cap)
        return ceiling

    def tokens_ceiling(self) -> int | None:
        """The largest token budget that has not burned TPOT lately; None: no such experience."""
        mark = self.memory.tokens_mark
        return mark.cap if mark is not None and self.elapsed(mark.at) < CAP_MARK_SECONDS else None


def has_room(slo: SloAssessment | None) -> bool:
    """Whether an SLO can take some worsening. One that is not promised always can; one without figures never."""
    if slo is None:
        return True
    minute = slo.window(60)
    if slo.state is not SignalState.OK or slo.p99 is None or slo.p99.at_or_above:
        return False
    calm = minute is None or minute.burn.point < 1.0
    return calm and slo.p99.seconds <= ROOM_SHARE * slo.threshold_seconds


def changed_levers(before: Levers, after: Levers) -> tuple[Lever, ...]:
    changed = []
    if before.replicas != after.replicas:
        changed.append(Lever.REPLICAS)
    if before.max_num_seqs != after.max_num_seqs:
        changed.append(Lever.MAX_NUM_SEQS)
    if before.max_num_batched_tokens != after.max_num_batched_tokens:
        changed.append(Lever.TOKEN_BUDGET)
    return tuple(changed)
