"""One simulated pool: its pods come and go, the kernel serves the requests.

A pod is pending until it may hold GPUs, then starting until it is Ready; only then it takes a seat in the kernel.
Requests that find no Ready replica are held at the front door, first come first served, and their TTFT runs.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import numpy as np

from tierkeeper.sim import kernel
from tierkeeper.sim.model import Outcome, PodCounts, PodPage, PoolConfig, Requests, Startup, Status, Step
from tierkeeper.sim.state import (
    DRAINING,
    EMPTY,
    ITL,
    NOBODY,
    SEAT,
    SERVING,
    TPOT,
    TTFT,
    Records,
    clear_seats,
    grown,
    new_state,
)


@dataclass(slots=True)
class _Pod:
    """A pod that is not gone. Which of the later fields are set says how far it has come."""

    number: int
    scheduled_at: float | None = None
    ready_at: float | None = None
    seat: int | None = None
    drain_from: float | None = None


class Pool:
    """Replicas that serve one trace of requests; the caller moves time and turns the levers."""

    def __init__(
        self,
        config: PoolConfig,
        requests: Requests,
        *,
        replicas: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        seed: int,
        warm: bool = True,
    ) -> None:
        """``warm``: the first replicas are Ready at 0. The seed rules start-up times and random routing."""
        _check_limits(max_num_seqs, max_num_batched_tokens)
        self.config = config
        self._edges = config.ttft_edges, config.tpot_edges
        self.now = 0.0
        self._seed = seed
        self._state = new_state(
            config, requests, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens
        )
        self._state.pool["random"] = np.random.default_rng(seed).integers(2**63, dtype=np.uint64)
        self._pods: list[_Pod] = []
        self._numbered = 0
        self._desired = 0
        self._schedulable: int | None = None
        self._gone_gpu_seconds = 0.0
        self.set_replicas(replicas)
        if warm:
            for pod in self._pods:
                self._seat(pod)

    @property
    def schedulable(self) -> int | None:
        """How many pods may hold GPUs at most; None: no limit. A lower value takes no GPU away."""
        return self._schedulable

    @schedulable.setter
    def schedulable(self, pods: int | None) -> None:
        self._schedulable = pods
        self._schedule(self.now)

    @property
    def held(self) -> int:
        """Requests at the front door that found no Ready replica."""
        return int(self._state.pool[0]["held"])

    @property
    def max_num_seqs(self) -> int:
        """The cap in force."""
        return int(self._state.pool[0]["max_seqs"])

    @property
    def max_num_batched_tokens(self) -> int:
        """The token budget in force."""
        return int(self._state.pool[0]["max_tokens"])

    @property
    def gpu_seconds(self) -> float:
        """GPU seconds held so far: each pod from scheduled to gone, times its GPUs."""
        held = sum(self.now - pod.scheduled_at for pod in self._pods if pod.scheduled_at is not None)
        return self._gone_gpu_seconds + held * self.config.gpus_per_replica

    def advance(self, until: float) -> None:
        """Move time to ``until`` seconds; infinity: until no request is left that could be served.

        How a stretch of time is cut into calls changes no outcome. Raises ValueError where time would run backwards.
        """
        if not until >= self.now:
            raise ValueError(f"until: {until} is before the pool's time of {self.now}; time only runs forward")
        while True:
            moment = min(float(until), self._next_change())
            kernel.run(self._state, moment)
            self.now = moment if moment < math.inf else self._last_event()
            self._let_go()
            if ready := [pod for pod in self._pods if pod.ready_at is not None and pod.ready_at <= self.now]:
                for pod in ready:
                    self._seat(pod)
                self._state.pool["released"] = self._state.pool["held"]
                kernel.run(self._state, self.now)
            if moment == until:
                return

    def set_replicas(self, replicas: int) -> None:
        """Ask for so many pods. First to leave: the newest pending, the newest starting, the Ready with least load."""
        if replicas < 0:
            raise ValueError(f"replicas: {replicas} must be 0 or more")
        self._desired = replicas
        kept = [pod for pod in self._pods if pod.drain_from is None]
        for _ in range(replicas - len(kept)):
            self._pods.append(_Pod(self._numbered))
            self._numbered += 1
        for pod in sorted(kept, key=self._leaves_first)[: max(0, len(kept) - replicas)]:
            if pod.seat is None:
                self._remove(pod, self.now)
            else:
                pod.drain_from = self.now
                self._state.seats[pod.seat]["state"] = DRAINING
        self._let_go()
        self._schedule(self.now)

    def set_limits(self, *, max_num_seqs: int | None = None, max_num_batched_tokens: int | None = None) -> None:
        """Change the cap or the token budget of every replica from its next step on; None: as it is.

        A lower cap ends no running sequence, it only admits less.
        """
        seqs = self.max_num_seqs if max_num_seqs is None else max_num_seqs
        tokens = self.max_num_batched_tokens if max_num_batched_tokens is None else max_num_batched_tokens
        _check_limits(seqs, tokens)
        if (seqs, tokens) == (self.max_num_seqs, self.max_num_batched_tokens):
            return
        kernel.shorten(self._state, self.now)
        self._state = grown(self._state, seats=0, slots=seqs)
        self._state.pool["max_seqs"], self._state.pool["max_tokens"] = seqs, tokens

    def counts(self) -> PodCounts:
        """The pods by state, now."""
        draining = sum(pod.drain_from is not None for pod in self._pods)
        seated = sum(pod.seat is not None for pod in self._pods)
        scheduled = sum(pod.scheduled_at is not None for pod in self._pods)
        return PodCounts(
            desired=self._desired,
            ready=seated - draining,
            starting=scheduled - seated,
            unschedulable=len(self._pods) - scheduled,
            draining=draining,
        )

    def startup_seconds(self) -> float | None:
        """The median start of the pods that are Ready, as a cluster would tell of them; None without any.

        Those that were there at the beginning have started before it, like the others.
        """
        took = [
            _startup_seconds(self.config.startup, seed=self._seed, pod=pod.number)
            for pod in self._pods
            if pod.seat is not None
        ]
        return statistics.median(took) if took else None

    def pages(self) -> list[PodPage]:
        """What each Ready or draining pod shows now, the oldest first."""
        state = self._state
        shown, histograms = state.seats.copy(), state.histogram.copy()
        kernel.peek(state, self.now, shown, histograms)
        buckets = np.cumsum(histograms, axis=2, dtype=np.float64)
        return [
            self._page(pod, shown[pod.seat : pod.seat + 1], buckets[pod.seat])
            for pod in self._pods
            if pod.seat is not None
        ]

    def outcomes(self) -> Outcome:
        """What became of each request by now."""
        book = self._state.book
        finished = book["status"] == Status.FINISHED
        several = finished & (book["output"] > 1)
        gaps = np.maximum(book["output"] - 1, 1)
        return Outcome(
            replica=book["pod"].copy(),
            queue_seconds=book["admitted"] - book["arrival"],
            ttft=book["first"] - book["arrival"],
            tpot=np.where(several, (book["last"] - book["first"]) / gaps, np.nan),
            finish=np.where(finished, book["last"], np.nan),
            status=book["status"].copy(),
            preemptions=book["preemptions"].copy(),
        )

    def _page(self, pod: _Pod, shown: Records, buckets: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> PodPage:
        seat = dict(zip(SEAT.names or (), shown[0].item(), strict=True))
        ttft_edges, tpot_edges = self._edges
        return PodPage(
            name=f"pod-{pod.number}",
            started_at=seat["started_at"],
            draining=pod.drain_from is not None,
            ttft_edges=ttft_edges,
            ttft_buckets=buckets[TTFT, : len(ttft_edges) + 1],
            ttft_sum=seat["ttft_sum"],
            tpot_edges=tpot_edges,
            tpot_buckets=buckets[TPOT, : len(tpot_edges) + 1],
            tpot_sum=seat["tpot_sum"],
            itl_buckets=buckets[ITL, : len(tpot_edges) + 1],
            itl_sum=seat["itl_sum"],
            queue_time_sum=seat["queue_sum"],
            queue_time_count=seat["finished"],
            prefill_time_sum=seat["prefill_time_sum"],
            prefill_time_count=seat["finished"],
            prompt_length_sum=seat["prompt_length"],
            prompt_length_count=seat["finished"],
            generation_length_sum=seat["output_length"],
            generation_length_count=seat["finished"],
            prompt_tokens=seat["prompt_tokens"],
            generation_tokens=seat["generation_tokens"],
            finished=seat["finished"],
            preemptions=seat["preemptions"],
            rejections=seat["rejections"],
            running=seat["decoding"] + seat["prefilling"],
            waiting=seat["waiting"],
            kv_usage=(seat["context"] + seat["reserved"]) / self.config.kv_tokens,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            step=_last_step(seat),
        )

    def _next_change(self) -> float:
        """When a starting pod gets Ready or a draining one runs out of time; infinity: neither is to come."""
        moments = [pod.ready_at for pod in self._pods if pod.ready_at is not None]
        moments += [pod.drain_from + self.config.drain_seconds for pod in self._pods if pod.drain_from is not None]
        return min(moments, default=math.inf)

    def _last_event(self) -> float:
        """When the last request came or ended, for a run without an end."""
        arrivals = self._state.book["arrival"][-1:].tolist()
        return float(max(self.now, *arrivals, *self._state.seats["idle_at"].tolist()))

    def _leaves_first(self, pod: _Pod) -> tuple[int, int, int]:
        """Sort key: the smallest leaves first."""
        if pod.seat is None:
            return (0 if pod.scheduled_at is None else 1, 0, -pod.number)
        return (2, self._load(pod.seat), -pod.number)

    def _load(self, seat: int) -> int:
        here = self._state.seats[seat]
        return int(here["decoding"] + here["prefilling"] + here["waiting"])

    def _schedule(self, now: float) -> None:
        """Give GPUs to pending pods, the oldest first."""
        holding = sum(pod.scheduled_at is not None for pod in self._pods)
        for pod in self._pods:
            if self._schedulable is not None and holding >= self._schedulable:
                return
            if pod.scheduled_at is None:
                pod.scheduled_at = now
                pod.ready_at = now + _startup_seconds(self.config.startup, seed=self._seed, pod=pod.number)
                holding += 1

    def _seat(self, pod: _Pod) -> None:
        """The pod is Ready: from the kernel's next run on it takes what is held, and its share of what arrives."""
        empty = np.flatnonzero(self._state.seats["state"] == EMPTY)
        seat = int(empty[0]) if len(empty) else len(self._state.seats)
        self._state = grown(self._state, seats=2 * seat if not len(empty) else 0, slots=0)
        clear_seats(self._state.seats[seat : seat + 1])
        self._state.histogram[seat] = 0
        here = self._state.seats[seat]
        here["state"], here["pod"], here["started_at"] = SERVING, pod.number, self.now
        pod.seat, pod.ready_at = seat, None

    def _let_go(self) -> None:
        """Remove draining pods that are done, and those out of time with all that they still have."""
        for pod in list(self._pods):
            if pod.seat is None or pod.drain_from is None:
                continue
            deadline = pod.drain_from + self.config.drain_seconds
            if self._load(pod.seat) == 0:
                gone_at = max(pod.drain_from, float(self._state.seats[pod.seat]["idle_at"]))
            elif deadline <= self.now:
                self._cut(pod.seat)
                gone_at = deadline
            else:
                continue
            clear_seats(self._state.seats[pod.seat : pod.seat + 1])
            self._remove(pod, gone_at)
            self._schedule(gone_at)

    def _cut(self, seat: int) -> None:
        """End all that a replica still has."""
        book, here, slots = self._state.book, self._state.seats[seat], self._state.slots[seat]
        book["status"][slots["decoder"][: here["decoding"]]] = Status.CUT
        book["status"][slots["prefill"][: here["prefilling"]]] = Status.CUT
        request = here["head"]
        while request != NOBODY:
            book[request]["status"] = Status.CUT
            request = book[request]["next"]

    def _remove(self, pod: _Pod, gone_at: float) -> None:
        self._pods.remove(pod)
        if pod.scheduled_at is not None:
            self._gone_gpu_seconds += (gone_at - pod.scheduled_at) * self.config.gpus_per_replica


def _check_limits(max_num_seqs: int, max_num_batched_tokens: int) -> None:
    for name, value in (("max_num_seqs", max_num_seqs), ("max_num_batched_tokens", max_num_batched_tokens)):
        if value < 1:
            raise ValueError(f"{name}: {value} must be 1 or more")


def _startup_seconds(startup: Startup, *, seed: int, pod: int) -> float:
    """Drawn by seed and pod number alone, so that policies compared on one seed meet the same start-up times."""
    if startup.sigma == 0:
        return startup.median_seconds
    factor = np.random.default_rng([seed, pod]).lognormal(0.0, startup.sigma)
    return startup.median_seconds * min(max(float(factor), 0.5), 3.0)


def _last_step(seat: dict[str, int | float]) -> Step | None:
    if seat["last_seconds"] == 0.0:
        return None
    return Step(
        wall_seconds=seat["last_seconds"],
        prefill_tokens=int(seat["last_prefill"]),
        sequences=int(seat["last_batch"]),
        kv_tokens=int(seat["last_context"]),
    )
