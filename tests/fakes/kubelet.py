"""What a kubelet writes into the status of a pod whose one container ends again and again, or whose image never comes.

The order is that of the real one: after its first end a container is started at once; from the second end on it is seen
ended (``Error``), then waiting (``CrashLoopBackOff``), then running; an image is tried (``ErrImagePull``) and waited
for (``ImagePullBackOff``) in turn.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.fakes.edges import FakeClock
from tests.fakes.kube import pod_status
from tierkeeper.ports import Object

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 300.0


@dataclass
class FakeKubelet:
    clock: FakeClock
    restarts: int = 0
    last: Object = field(default_factory=dict)
    """The container's last end."""
    ready_changed: str = ""
    """When the pod last became Ready or lost it."""

    def now(self) -> str:
        return datetime.fromtimestamp(self.clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def status(self, state: Mapping, *, ready: bool = False) -> Object:
        status = pod_status(ready=ready)
        self.ready_changed = self.ready_changed or self.now()
        status["conditions"][1]["lastTransitionTime"] = self.ready_changed
        status["containerStatuses"][0] |= {"restartCount": self.restarts, "state": dict(state)}
        if self.last:
            status["containerStatuses"][0]["lastState"] = {"terminated": self.last}
        return status

    def run(self, seconds: float, *, ready_after: float | None = None, **end) -> Iterator[Object]:
        """The container runs for so long, serves from ``ready_after`` on, and ends as ``end`` says."""
        began = self.now()
        running = {"running": {"startedAt": began}}
        yield self.status(running)
        if ready_after is not None:
            self.clock.advance(ready_after)
            self.ready_changed = self.now()
            yield self.status(running, ready=True)
        self.clock.advance(seconds - (ready_after or 0))
        if ready_after is not None:
            self.ready_changed = self.now()
        ended = {"startedAt": began, "finishedAt": self.now(), "exitCode": 1, "reason": "Error"} | end
        yield self.status({"terminated": ended})
        self.last = ended

    def wait(self, seconds: float) -> Iterator[Object]:
        self.clock.advance(1)
        yield self.status({"waiting": {"reason": "CrashLoopBackOff", "message": f"back-off {seconds:g}s restarting"}})
        self.clock.advance(seconds)

    def crash_loop(self, *, times: int, run_seconds: float = 4, **end) -> Iterator[Object]:
        pause = FIRST_PAUSE_SECONDS
        for turn in range(times):
            yield from self.run(run_seconds, **end)
            if turn:
                yield from self.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            self.restarts += 1

    def image_loop(self, said: str, *, times: int) -> Iterator[Object]:
        for _ in range(times):
            yield self.status({"waiting": {"reason": "ErrImagePull", "message": said}})
            self.clock.advance(10)
            message = f'Back-off pulling image "vllm/vllm-openai:nope": ErrImagePull: {said}'
            yield self.status({"waiting": {"reason": "ImagePullBackOff", "message": message}})
            self.clock.advance(20)
