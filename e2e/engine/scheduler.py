"""The continuous-batching scheduler: who runs in the next step, and with how many tokens.

The names of classes, attributes and methods are those of vLLM's V1 scheduler, because plugins reach for them. The
module ``vllm.v1.core.sched.scheduler`` in ``site/`` exports this very class, so whoever patches it there patches the
engine.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol


class Sink(Protocol):
    """Where a request's tokens go."""

    def token(self) -> None:
        """One more token, not the last one."""

    def finish(self, reason: str) -> None:
        """The last token, or the end without one when the reason is ``abort``."""


@dataclass(slots=True, eq=False)
class Request:
    """One sequence. Times are seconds on the clock of whoever steps the engine; 0.0 means not yet."""

    request_id: str
    num_prompt_tokens: int
    max_tokens: int
    arrival_time: float
    sink: Sink | None = None
    num_output_tokens: int = 0
    num_computed_tokens: int = 0
    num_blocks: int = 0
    num_preemptions: int = 0
    finish_reason: str | None = None
    scheduled_time: float | None = None
    first_token_time: float = 0.0
    last_token_time: float = 0.0

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens known so far; a step computes those that have no KV entry yet."""
        return self.num_prompt_tokens + self.num_output_tokens


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """The flags that bound a step."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_num_active_seqs: int | None = None


@dataclass(slots=True)
class SchedulerOutput:
    """One step: the requests with their tokens, and who lost its place for it."""

    scheduled: list[tuple[Request, int]] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    newly_running: list[Request] = field(default_factory=list)
    total_num_scheduled_tokens: int = 0


class KVCache:
    """Counts blocks; it holds nothing."""

    def __init__(self, *, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.free_blocks = num_blocks

    @property
    def usage(self) -> float:
        """The used share, 0 to 1."""
        return 1 - self.free_blocks / self.num_blocks

    def allocate(self, request: Request, num_tokens: int) -> bool:
        """Room for the request's first ``num_tokens`` tokens, or False and no change."""
        missing = -(-num_tokens // self.block_size) - request.num_blocks
        if missing > self.free_blocks:
            return False
        if missing > 0:
            self.free_blocks -= missing
            request.num_blocks += missing
        return True

    def release(self, request: Request) -> None:
        """All blocks of the request are free again."""
        self.free_blocks += request.num_blocks
        request.num_blocks = 0


class Scheduler:
    """First come, first served; running requests before waiting ones; chunked prefill in the rest of the budget."""

    def __init__(self, config: SchedulerConfig, kv_cache: KVCache, *, has_active_cap: bool = True) -> None:
        """``has_active_cap``: vLLM before 0.31 has no ``max_num_active_reqs``."""
        self.scheduler_config = config
        self.kv_cache = kv_cache
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.max_num_running_reqs = config.max_num_seqs
        if has_active_cap:
            self.max_num_active_reqs = config.max_num_active_seqs or config.max_num_seqs
        self.max_num_scheduled_tokens = config.max_num_batched_tokens

    def add_request(self, request: Request) -> None:
        """To the end of the queue."""
        self.waiting.append(request)

    def finish_request(self, request: Request, reason: str) -> None:
        """Takes the request out, wherever it is, and frees its memory."""
        request.finish_reason = reason
        if request in self.running:
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)
        self.kv_cache.release(request)

    def get_num_unfinished_requests(self) -> int:
        """Waiting and running."""
        return len(self.running) + len(self.waiting)

    def schedule(self) -> SchedulerOutput:
        """Chooses the next step. The caps are read anew each time, so a change between two steps works at once."""
        output = SchedulerOutput()
        budget = min(self.max_num_scheduled_tokens, self.scheduler_config.max_num_batched_tokens)
        budget = self._schedule_running(output, budget)
        if not output.preempted:
            self._schedule_waiting(output, budget)
        output.total_num_scheduled_tokens = sum(tokens for _, tokens in output.scheduled)
        assert output.total_num_scheduled_tokens <= self.max_num_scheduled_tokens
        assert len(self.running) <= self.max_num_running_reqs
        assert len(output.scheduled) <= len(self.running)
        return output

    def _schedule_running(self, output: SchedulerOutput, budget: int) -> int:
        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            tokens = min(request.num_tokens - request.num_computed_tokens, budget)
            if not self._allocate_or_preempt(request, tokens, output):
                break
            output.scheduled.append((request, tokens))
            budget -= tokens
            index += 1
        return budget

    def _allocate_or_preempt(self, request: Request, tokens: int, output: SchedulerOutput) -> bool:
        while not self.kv_cache.allocate(request, request.num_computed_tokens + tokens):
            victim = self.running.pop()
            self._preempt(victim)
            output.preempted.append(victim)
            if victim is request:
                return False
        return True

    def _preempt(self, victim: Request) -> None:
        """Recomputation: the victim keeps its output, loses its KV entries and goes to the head of the queue."""
        self.kv_cache.release(victim)
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        self.waiting.appendleft(victim)

    def _schedule_waiting(self, output: SchedulerOutput, budget: int) -> None:
        cap = getattr(self, "max_num_active_reqs", self.max_num_running_reqs)
        while self.waiting and budget > 0 and len(self.running) < cap:
            request = self.waiting[0]
            tokens = min(request.num_tokens - request.num_computed_tokens, budget)
            if not self.kv_cache.allocate(request, request.num_computed_tokens + tokens):
                break
            self.waiting.popleft()
            self.running.append(request)
            output.newly_running.append(request)
            output.scheduled.append((request, tokens))
            budget -= tokens
