"""What the operator remembers of a tier while it runs. Losing it costs nothing: all of it is found again."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from tierkeeper.engine.limits import Limits
from tierkeeper.ports import Object
from tierkeeper.scaling.memory import Memory
from tierkeeper.scaling.model import Decision, Levers, PoolState
from tierkeeper.slo.model import Assessment
from tierkeeper.tier import TierKey, TierSpec


@dataclass(frozen=True, slots=True)
class Resize:
    """Live limits that not every Ready pod has shown yet. Times are monotonic seconds."""

    wanted: Limits
    started_at: float
    before: Limits | None
    """The limits that were in force; None where nothing was changed and a young pod merely has yet to show them."""
    waiting_for: tuple[str, ...] = ()
    """Pods that have not shown them."""


@dataclass(frozen=True, slots=True)
class Resized:
    """A resize that every Ready pod has shown."""

    before: Limits
    after: Limits
    pods: int
    seconds: float


@dataclass(slots=True)
class WriteGuard:
    """Refuses a write that has been made again and again to no effect: something else writes it back.

    After a first write, ``repeats`` writes of the same content are allowed within ``window_seconds``. Other content is
    a new wish, and starts anew.
    """

    repeats: int = 3
    window_seconds: float = 600.0
    _made: dict[Hashable, tuple[str, list[float]]] = field(default_factory=dict)

    def allows(self, thing: Hashable, content: str, *, now: float) -> bool:
        return len(self._recent(thing, content, now)) <= self.repeats

    def made(self, thing: Hashable, content: str, *, now: float) -> None:
        """Note a write."""
        self._made[thing] = content, [*self._recent(thing, content, now), now]

    def _recent(self, thing: Hashable, content: str, now: float) -> list[float]:
        known, times = self._made.get(thing, ("", []))
        return [at for at in times if known == content and now - at < self.window_seconds]


@dataclass(slots=True)
class TierRecord:
    """One tier's working memory, shared by the SLO loop (which decides) and the reconciler (which writes)."""

    key: TierKey
    uid: str = ""
    spec: TierSpec | None = None
    """The last valid spec seen, to save the conversion where the generation has not moved."""
    decision: Decision | None = None
    decided_at: float = 0.0
    """Wall clock, when the decision's reason or levers last became what they are."""
    decided_for: int | None = None
    """Generation of the spec that the decision is about."""
    pending: Levers | None = None
    """Levers of a decision that changed something and is not written yet."""
    pending_id: str | None = None
    """Id of the tick that last changed a lever: the log lines that carry it out name it."""
    pending_span: object = None
    """That tick's span: what carries the decision out is shown below it."""
    memory: Memory | None = None
    assessment: Assessment | None = None
    pool: PoolState | None = None
    ready_since: float | None = None
    """When the first of the present Ready pods became Ready; None while there is none."""
    shown: Mapping[str, Limits] = field(default_factory=dict)
    """The limits that each Ready pod has shown to obey, by pod name."""
    resize: Resize | None = None
    resized: Resized | None = None
    resizes: int = 0
    """Resizes that this process has seen through."""
    resizes_before: int | None = None
    """What status counted when this process first wrote it; None until then."""
    guard: WriteGuard = field(default_factory=WriteGuard)
    replicas_set: int | None = None
    """Replicas as this process last left them: found otherwise, somebody else has changed them."""
    children: set[Hashable] = field(default_factory=set)
    """Objects of the pool that this process has seen: one of them that is missing was deleted by somebody."""
    contested: str | None = None
    """Who changes the replicas back each time, once the guard has given up."""
    rollout: tuple[str, int] = ("", 0)
    """Uid and generation of the Deployment at which this process last changed its template."""
    status_at: float | None = None
    """Monotonic seconds of the last status write of this process."""
    failing_since: float | None = None
    """Monotonic seconds since when each write of the pool has failed; None while the last one did not."""
    looked_at: float | None = None
    """Monotonic seconds of the last finished reconcile."""

    def rollout_generation(self, deployment: Object | None) -> int:
        """Generation of the last rollout; 0 for a Deployment made anew since then, whose generations begin at 1."""
        uid, generation = self.rollout
        return generation if deployment is not None and deployment["metadata"]["uid"] == uid else 0


@dataclass(slots=True)
class Records:
    """All records by key."""

    _records: dict[TierKey, TierRecord] = field(default_factory=dict)

    def of(self, key: TierKey, uid: str) -> TierRecord:
        """The record of that very object: a tier deleted and created anew starts with an empty one."""
        record = self._records.get(key)
        if record is None or (record.uid and record.uid != uid):
            record = self._records[key] = TierRecord(key)
        record.uid = uid
        return record

    def find(self, key: TierKey) -> TierRecord | None:
        return self._records.get(key)

    def forget(self, key: TierKey) -> None:
        self._records.pop(key, None)

    def __iter__(self) -> Iterator[TierRecord]:
        return iter(list(self._records.values()))
