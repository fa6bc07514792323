"""A stage for the peers' laws: plain figures instead of a scraped cluster, and a clock that steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from tierkeeper.sim.peers.base import Law
from tierkeeper.sim.peers.figures import Means, PodLoad, StepReport


@dataclass(frozen=True)
class Seen:
    """The figures of one tick, as a test sets them."""

    replicas: int = 2
    ready: int = 2
    max_num_seqs: int = 20
    reachable: bool = True
    ttft_target_seconds: float | None = 1.5
    tpot_target_seconds: float | None = 0.04
    loads: tuple[float, ...] = ()
    """Running requests of each pod that reports."""
    kv_usage: float = 0.0
    ttft_seconds: float | None = None
    """What any quantile of TTFT reads."""
    tpot_seconds: float | None = None
    last_minute: Means = field(default_factory=Means)
    reports: Mapping[str, StepReport] = field(default_factory=dict)

    def pods(self) -> Mapping[str, PodLoad]:
        return {f"pod-{n}": PodLoad(load, 0.0, self.kv_usage) for n, load in enumerate(self.loads)}

    def own_scrape(self) -> Mapping[str, PodLoad]:
        return self.pods()

    def ttft(self, q: float, window_seconds: int) -> float | None:  # noqa: ARG002
        return self.ttft_seconds

    def tpot(self, q: float, window_seconds: int) -> float | None:  # noqa: ARG002
        return self.tpot_seconds

    def means(self, window_seconds: int) -> Means:  # noqa: ARG002
        return self.last_minute

    def steps(self) -> Mapping[str, StepReport]:
        return self.reports


@dataclass
class Story:
    """Steps one law through time. What it asks for is set at once; pods get ready when the story says so."""

    law: Law
    step: float = 15.0
    now: float = 0.0
    seen: Seen = field(default_factory=Seen)

    def tick(self, *, load: float | None = None, **changes: object) -> int:
        """One step with the figures changed as told; ``load`` is what every ready pod has. Gives the replicas set."""
        self.now += self.step
        seen = dataclasses.replace(self.seen, **changes)  # type: ignore[arg-type]
        if load is not None:
            seen = dataclasses.replace(seen, loads=(load,) * seen.ready)
        wanted = self.law.desired(now=self.now, figures=seen)
        self.seen = dataclasses.replace(seen, replicas=wanted, ready=min(seen.ready, wanted))
        return wanted

    def until(self, end: float, **changes: object) -> list[int]:
        """Ticks up to ``end``, every pod ready at the next tick: the replicas set at each."""
        found = []
        while self.now + self.step <= end:
            found.append(self.tick(**{"ready": self.seen.replicas, **changes}))  # type: ignore[arg-type]
        return found
