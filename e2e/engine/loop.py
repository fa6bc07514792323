"""Steps the engine in real time, on an absolute timeline, and measures how late the machine makes each step."""

import asyncio
import time

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from e2e.engine.core import EngineCore
from e2e.engine.metrics import EngineMetrics

_LATENESS_EDGES = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1)
# A process that was stopped for longer than this starts a new timeline instead of racing through the steps it missed.
RESET_SECONDS = 1.0


class Lateness:
    """How long after its ideal time each step ended. It shows whether the machine, not the model, set the pace."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.worst = 0.0
        self._histogram = Histogram(
            "engine_step_lateness_seconds",
            "End of a step against its ideal time",
            buckets=_LATENESS_EDGES,
            registry=registry,
        )
        maximum = Gauge("engine_step_lateness_max_seconds", "The latest step since the start", registry=registry)
        maximum.set_function(lambda: self.worst)
        self.resets = Counter("engine_timeline_resets", f"Steps more than {RESET_SECONDS} s late", registry=registry)

    def observe(self, seconds: float) -> None:
        """One step."""
        self.worst = max(self.worst, seconds)
        self._histogram.observe(seconds)


class EngineLoop:
    """Drives the core. Times are ``time.monotonic()`` seconds.

    The next step starts where the last one should have ended, so lateness does not add up. While there is no work,
    ``schedule`` is not called, exactly as in vLLM: a plugin in it sees nothing until the next request.
    """

    def __init__(
        self, core: EngineCore, metrics: EngineMetrics, lateness: Lateness, *, slow_factor: float = 1.0
    ) -> None:
        self.core = core
        self.slow_factor = slow_factor
        self._metrics = metrics
        self._lateness = lateness
        self._work = asyncio.Event()
        self._may_step = asyncio.Event()
        self._may_step.set()

    def wake(self) -> None:
        """There is work."""
        self._work.set()

    def hang(self, on: bool) -> None:
        """A hung engine takes no step; everything else of the server goes on."""
        if on:
            self._may_step.clear()
        else:
            self._may_step.set()

    async def run(self) -> None:
        """Runs until cancelled. Whatever the scheduler raises ends it: the engine is dead then."""
        ideal = time.monotonic()
        while True:
            if not self.core.has_work or not self._may_step.is_set():
                self._work.clear()
                if not self.core.has_work:
                    await self._work.wait()
                await self._may_step.wait()
                ideal = time.monotonic()
                continue
            step = self.core.begin_step(ideal)
            ideal += step.seconds * self.slow_factor
            await asyncio.sleep(max(0.0, ideal - time.monotonic()))
            await self._may_step.wait()
            now = time.monotonic()
            late = now - ideal
            self._lateness.observe(late)
            self._metrics.record_step(self.core.finish_step(step, now), self.core)
            if late > RESET_SECONDS:
                self._lateness.resets.inc()
                ideal = now
