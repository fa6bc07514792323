"""A scheduler with the attributes, comparisons and assertions of vLLM's, by release, and nothing else of it."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import vllm


@dataclass(eq=False)
class Request:
    """``prompt`` tokens still to compute, then ``outputs`` tokens still to make."""

    prompt: int
    outputs: int


@dataclass
class Output:
    admitted: int = 0
    tokens: dict[int, int] = field(default_factory=dict)
    starved: list[Request] = field(default_factory=list)
    """Running requests in decode that did not get all their tokens."""


class Scheduler:
    def __init__(
        self,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        release: tuple[int, int] | None = None,
        num_spec_tokens: int = 0,
        mamba_block_size: int | None = None,
        enable_chunked_prefill: bool = True,
    ) -> None:
        self.release = release or tuple(map(int, vllm.__version__.split(".")[:2]))
        self.scheduler_config = SimpleNamespace(enable_chunked_prefill=enable_chunked_prefill)
        self.cache_config = SimpleNamespace(block_size=mamba_block_size or 16)
        self.need_mamba_block_aligned_split = mamba_block_size is not None
        self.num_spec_tokens = num_spec_tokens
        self.max_num_running_reqs = max_num_seqs
        if self.release >= (0, 31):
            self.max_num_active_reqs = max_num_seqs
        self.max_num_scheduled_tokens = max_num_batched_tokens
        self.running: list[Request] = []
        self.waiting: list[Request] = []

    def _full(self) -> bool:
        if self.release >= (0, 31):
            return len(self.running) >= self.max_num_active_reqs
        if self.release >= (0, 27):
            return len(self.running) >= self.max_num_running_reqs
        return len(self.running) == self.max_num_running_reqs

    def _take(self, request: Request, budget: int) -> int:
        if not request.prompt:
            return min(1 + self.num_spec_tokens, budget)
        tokens = min(request.prompt, budget)
        if not self.scheduler_config.enable_chunked_prefill and tokens < request.prompt:
            return 0
        if self.need_mamba_block_aligned_split and tokens < request.prompt:
            tokens -= tokens % self.cache_config.block_size
        return tokens

    def schedule(self) -> Output:
        output = Output()
        budget = self.max_num_scheduled_tokens
        for request in self.running:
            tokens = self._take(request, budget)
            if not request.prompt and tokens < 1 + self.num_spec_tokens:
                output.starved.append(request)
            output.tokens[id(request)] = tokens
            budget -= tokens
        while self.waiting and budget > 0 and not self._full():
            tokens = self._take(self.waiting[0], budget)
            if not tokens:
                break
            request = self.waiting.pop(0)
            self.running.append(request)
            output.admitted += 1
            output.tokens[id(request)] = tokens
            budget -= tokens
        assert sum(output.tokens.values()) <= self.max_num_scheduled_tokens
        assert budget >= 0
        assert len(self.running) <= self.max_num_running_reqs
        self._advance(output)
        return output

    def _advance(self, output: Output) -> None:
        for request in list(self.running):
            tokens = output.tokens[id(request)]
            if request.prompt:
                request.prompt -= tokens
            elif tokens:
                request.outputs -= 1
                if request.outputs <= 0:
                    self.running.remove(request)
