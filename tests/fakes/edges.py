"""The other outside edges: clock, metrics source, engine probe and Event recorder."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tierkeeper.ports import AppliedLimits


@dataclass
class FakeClock:
    """Moves only when told to."""

    now: float = 1_000.0
    epoch: float = 1_790_000_000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.epoch + self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class FakeMetrics:
    """Answers each query as ``answer`` says; it may raise MetricsError."""

    answer: Callable[[str], list] = lambda _: []
    asked: list[str] = field(default_factory=list)

    async def query(self, promql):
        self.asked.append(promql)
        return self.answer(promql)


@dataclass
class FakeProbe:
    """What each pod, by IP, says of its limits; a pod that is not listed does not answer."""

    pods: dict[str, AppliedLimits] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    default: AppliedLimits | None = None

    async def limits(self, *, pod_ip, port):  # noqa: ARG002
        self.asked.append(pod_ip)
        return self.pods.get(pod_ip, self.default)


@dataclass(frozen=True)
class Recorded:
    key: object
    type: str
    reason: str
    message: str


@dataclass
class FakeRecorder:
    events: list[Recorded] = field(default_factory=list)

    async def record(self, key, *, uid, event_type, reason, message):  # noqa: ARG002
        self.events.append(Recorded(key, str(event_type), reason, message))

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.events]
