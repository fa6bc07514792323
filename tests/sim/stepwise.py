"""The engine's rules walked through step by step and sequence by sequence: slow, plain, no code of the kernel's."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from tierkeeper.sim.model import PoolConfig, Requests


@dataclass
class Sequence:
    arrival: float
    prompt: int
    output: int
    admitted: float = math.nan
    tokens: list[float] = field(default_factory=list)
    """When each token came."""
    to_prefill: int = 0
    preemptions: int = 0
    rejected: bool = False
    replica: int = -1

    @property
    def context(self) -> int:
        return self.prompt + len(self.tokens)

    @property
    def decodes(self) -> bool:
        return self.to_prefill == 0

    @property
    def finished(self) -> bool:
        return len(self.tokens) == self.output


class Replica:
    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        self.running: list[Sequence] = []
        """In order of admission."""
        self.queue: deque[Sequence] = deque()
        self.step_end = math.inf
        self.most_running = 0

    @property
    def load(self) -> int:
        return len(self.running) + len(self.queue)

    def used(self) -> int:
        """KV tokens that this step needs: one more for each decoder, the whole prompt of each prefill."""
        return sum(sequence.context for sequence in self.running)

    def begin_step(self, now: float, cap: int, budget: int) -> None:
        preempted = False
        while any(s.decodes for s in self.running) and self.used() > self.config.kv_tokens:
            newest = self.running.pop()
            newest.preemptions += 1
            newest.to_prefill = 0
            self.queue.appendleft(newest)
            preempted = True
        self.decoders = [s for s in self.running if s.decodes]
        left = max(0, budget - len(self.decoders))
        self.chunks: list[tuple[Sequence, int]] = []
        for sequence in [s for s in self.running if not s.decodes]:
            chunk = min(left, sequence.to_prefill)
            self.chunks.append((sequence, chunk))
            left -= chunk
        while not preempted and self.queue and left > 0 and len(self.running) < cap:
            head = self.queue[0]
            if self.used() + head.context > self.config.kv_tokens:
                break
            self.queue.popleft()
            if math.isnan(head.admitted):
                head.admitted = now
            head.to_prefill = head.context
            self.running.append(head)
            self.chunks.append((head, min(left, head.to_prefill)))
            left -= self.chunks[-1][1]
        self.most_running = max(self.most_running, len(self.running))
        self.step_end = now + self.step_seconds() if self.running else math.inf

    def step_seconds(self) -> float:
        profile = self.config.profile
        ending = [s for s, chunk in self.chunks if chunk == s.to_prefill]
        batch = self.decoders + ending
        decode = profile.base_seconds
        for sequence in batch:
            decode += profile.per_sequence_seconds + profile.per_context_token_seconds * sequence.context
        if self.config.mocker_rules:
            decode = max(decode, 0.001) if batch else 0.0
        return decode + profile.per_prefill_token_seconds * sum(chunk for _, chunk in self.chunks)

    def end_step(self) -> None:
        for sequence, chunk in self.chunks:
            sequence.to_prefill -= chunk
        ended = [s for s, chunk in self.chunks if chunk > 0 and s.to_prefill == 0]
        for sequence in self.decoders + ended:
            sequence.tokens.append(self.step_end)
        self.running = [s for s in self.running if not s.finished]


def serve(
    config: PoolConfig,
    requests: Requests,
    *,
    replicas: int,
    limits: list[tuple[float, int, int]],
) -> tuple[list[Sequence], list[Replica]]:
    """All requests on warm replicas. ``limits``: (from this time on, max_num_seqs, max_num_batched_tokens)."""
    pool = [Replica(config) for _ in range(replicas)]
    rows = zip(requests.arrival.tolist(), requests.prompt.tolist(), requests.output.tolist(), strict=True)
    sequences = [Sequence(*row) for row in rows]
    coming, turn = deque(sequences), 0
    while True:
        arrival = coming[0].arrival if coming else math.inf
        busy = min(pool, key=lambda replica: replica.step_end)
        if math.isinf(arrival) and math.isinf(busy.step_end):
            return sequences, pool
        if arrival <= busy.step_end:
            order = [(turn + offset) % replicas for offset in range(replicas)]
            if config.routing == "least-loaded":
                chosen = min(order, key=lambda number: pool[number].load)
            else:
                chosen = order[0]
            turn = (chosen + 1) % replicas
            _take(pool[chosen], coming.popleft(), arrival, chosen)
            continue
        now = busy.step_end
        if busy.running:
            busy.end_step()
        _, cap, budget = max(limit for limit in limits if limit[0] < now or limit[0] == 0.0)
        busy.begin_step(now, cap, budget)


def _take(replica: Replica, sequence: Sequence, now: float, number: int) -> None:
    sequence.replica = number
    most_waiting = replica.config.max_queued_requests
    full = most_waiting is not None and len(replica.queue) >= most_waiting
    if full or sequence.prompt + sequence.output - 1 > replica.config.kv_tokens:
        sequence.rejected = True
        return
    replica.queue.append(sequence)
    if math.isinf(replica.step_end):
        replica.step_end = now
