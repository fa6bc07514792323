"""A small discrete model of a vLLM pool and what its histograms and gauges would say: the plant of the closed loop.

Requests arrive at random and join the replica with the fewest in it. A replica runs up to max-num-seqs requests; each
gains one token a step, and a step of B sequences takes ``base + B * per_sequence`` seconds. A new replica serves after
``startup`` seconds. Misses are counted exactly, so the assessment has no bucket error.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections import deque
from random import Random

from tierkeeper.scaling.model import Levers, PoolState
from tierkeeper.slo.burn import CONTROL_WINDOWS, burn, pair_burns
from tierkeeper.slo.model import (
    Assessment,
    Histogram,
    Quantile,
    Ratio,
    SignalState,
    Sli,
    SloAssessment,
    Traffic,
    WindowSli,
)
from tierkeeper.tier import TierSpec

STEP = 0.25
"""Seconds of one turn of the model."""


@dataclasses.dataclass
class Request:
    arrived: float
    tokens_left: float
    started: float = 0.0


@dataclasses.dataclass
class Replica:
    ready_at: float
    running: list[Request] = dataclasses.field(default_factory=list)
    waiting: deque[Request] = dataclasses.field(default_factory=deque)

    @property
    def load(self) -> int:
        return len(self.running) + len(self.waiting)


class Series:
    """Observations in the order of time, with running sums so that any look-back window is a subtraction."""

    def __init__(self, threshold: float = 0.0) -> None:
        self.threshold = threshold
        self.times: list[float] = []
        self.values: list[float] = []
        self.sums, self.misses = [0.0], [0]

    def observe(self, at: float, seconds: float) -> None:
        self.times.append(at)
        self.values.append(seconds)
        self.sums.append(self.sums[-1] + seconds)
        self.misses.append(self.misses[-1] + (seconds > self.threshold))

    def since(self, at: float) -> list[float]:
        return self.values[bisect_right(self.times, at) :]

    def count(self, since: float) -> int:
        return len(self.times) - bisect_right(self.times, since)

    def mean(self, since: float) -> float | None:
        start = bisect_right(self.times, since)
        count = len(self.times) - start
        return (self.sums[-1] - self.sums[start]) / count if count else None

    def missed_share(self, since: float) -> float:
        start = bisect_right(self.times, since)
        return (self.misses[-1] - self.misses[start]) / (len(self.times) - start)


class FakePool:
    """One tier's replicas, run by ``advance`` and read by ``assess`` and ``state``."""

    def __init__(
        self,
        spec: TierSpec,
        levers: Levers,
        *,
        now: float,
        base: float = 0.024,
        per_sequence: float = 0.00095,
        output_tokens: int = 200,
        startup: float = 40.0,
        seed: int = 7,
    ) -> None:
        self.spec, self.levers, self.now = spec, levers, now
        self.base, self.per_sequence, self.output_tokens, self.startup = base, per_sequence, output_tokens, startup
        self.rng = Random(seed)
        self.replicas = [Replica(ready_at=now) for _ in range(levers.replicas)]
        self.seen = {sli: Series(self._threshold(sli)) for sli in Sli}
        self.queue_times = Series()
        self.queue_lengths: deque[tuple[float, int]] = deque()

    def apply(self, levers: Levers) -> None:
        """Set the levers; replicas that leave hand their requests to the others."""
        while len(self.replicas) < levers.replicas:
            self.replicas.append(Replica(ready_at=self.now + self.startup))
        while len(self.replicas) > levers.replicas:
            gone = self.replicas.pop()
            for request in [*gone.running, *gone.waiting]:
                self._least_loaded().waiting.append(request)
        self.levers = levers

    def advance(self, seconds: float, *, rate: float) -> None:
        """Run for so many seconds with ``rate`` arrivals a second."""
        for _ in range(round(seconds / STEP)):
            arrivals = self._poisson(rate * STEP)
            for _ in range(arrivals):
                tokens = max(20.0, self.rng.gauss(self.output_tokens, self.output_tokens / 4))
                self._least_loaded().waiting.append(Request(self.now, tokens))
            for replica in self._ready():
                self._turn(replica)
            self.now += STEP
            self.queue_lengths.append((self.now, self._waiting()))
            while self.queue_lengths[0][0] < self.now - 60:
                self.queue_lengths.popleft()

    def _turn(self, replica: Replica) -> None:
        while replica.waiting and len(replica.running) < self.levers.max_num_seqs:
            request = replica.waiting.popleft()
            request.started = self.now
            step = self._step_seconds(len(replica.running) + 1)
            self.queue_times.observe(self.now, self.now - request.arrived)
            self.seen[Sli.TTFT].observe(self.now, self.now - request.arrived + 2 * step)
            replica.running.append(request)
        tokens = STEP / self._step_seconds(len(replica.running))
        for request in replica.running:
            request.tokens_left -= tokens
        for request in [r for r in replica.running if r.tokens_left <= 0]:
            replica.running.remove(request)
            self.seen[Sli.TPOT].observe(self.now, self._step_seconds(len(replica.running) + 1))

    def _step_seconds(self, batch: int) -> float:
        return self.base + batch * self.per_sequence

    def _ready(self) -> list[Replica]:
        return [r for r in self.replicas if r.ready_at <= self.now]

    def _least_loaded(self) -> Replica:
        return min(self._ready(), key=lambda r: r.load)

    def _waiting(self) -> int:
        return sum(len(r.waiting) for r in self.replicas)

    def _poisson(self, mean: float) -> int:
        count, left = 0, self.rng.expovariate(1.0)
        while left < mean:
            count += 1
            left += self.rng.expovariate(1.0)
        return count

    def state(self) -> PoolState:
        return PoolState(current=self.levers, ready=len(self._ready()))

    def assess(self) -> Assessment:
        minute, ttft = self.now - 60, self.seen[Sli.TTFT]
        traffic = Traffic(
            running=float(sum(len(r.running) for r in self.replicas)),
            waiting=float(self._waiting()),
            waiting_floor=float(min((n for _, n in self.queue_lengths), default=0)),
            requests_per_second=ttft.count(minute) / 60,
            finished_per_second=self.seen[Sli.TPOT].count(minute) / 60,
            requests_5m=float(ttft.count(self.now - 300)),
            mean_queue_seconds=self.queue_times.mean(minute),
            mean_ttft_seconds=ttft.mean(minute),
            observed_pods=len(self._ready()),
        )
        idle = not traffic.running and not traffic.waiting and not traffic.requests_5m
        return Assessment(
            key=self.spec.key,
            state=SignalState.NO_TRAFFIC if idle else SignalState.OK,
            reason="Ok",
            said="",
            slos={sli: self._slo(sli, idle=idle) for sli in Sli},
            traffic=traffic,
            clean_since=0.0,
        )

    def _threshold(self, sli: Sli) -> float:
        objective = self.spec.objective
        assert objective is not None
        threshold = objective.ttft_seconds if sli is Sli.TTFT else objective.tpot_seconds
        assert threshold is not None
        return threshold

    def _slo(self, sli: Sli, *, idle: bool) -> SloAssessment:
        windows = [w for w in (self._window(sli, s) for s in CONTROL_WINDOWS.seconds) if w is not None]
        recent = sorted(self.seen[sli].since(self.now - 300))
        return SloAssessment(
            sli=sli,
            threshold_seconds=self._threshold(sli),
            state=SignalState.NO_TRAFFIC if idle or not recent else SignalState.OK,
            reason="Ok",
            said="",
            windows=tuple(windows),
            histogram=Histogram((recent[len(recent) // 2], float("inf")), (1.0, 2.0)) if recent else None,
            p99=Quantile(recent[int(len(recent) * 0.99)]) if recent else None,
            burning=any(pair_burns(p, windows, budget=0.01) for p in CONTROL_WINDOWS.pairs),
        )

    def _window(self, sli: Sli, seconds: int) -> WindowSli | None:
        total = self.seen[sli].count(self.now - seconds)
        if not total:
            return None
        share = self.seen[sli].missed_share(self.now - seconds)
        ratio = Ratio(share, share, share)
        return WindowSli(seconds=seconds, total=float(total), ratio=ratio, burn=burn(ratio, budget=0.01))
