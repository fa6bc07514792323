"""The engine without a clock: schedule a step, say how long it takes, take in its tokens.

Whoever drives it owns the time: the server does so in real time (``loop.py``), the tests in virtual time.
"""

from dataclasses import dataclass, field

from e2e.engine.profiles import Profile
from e2e.engine.scheduler import Request, Scheduler, SchedulerOutput


@dataclass(slots=True)
class StepResult:
    """What one step brought, for the metrics. ``decode_gaps``: seconds since the previous token, one a token."""

    now: float
    prefill_tokens: int = 0
    first_tokens: list[Request] = field(default_factory=list)
    decode_gaps: list[float] = field(default_factory=list)
    finished: list[Request] = field(default_factory=list)
    newly_scheduled: list[Request] = field(default_factory=list)
    num_preempted: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A step under way. ``seconds``: how long the model says it takes."""

    output: SchedulerOutput
    seconds: float
    prefill_tokens: int


class EngineCore:
    """The scheduler and the step-time model together. One step at a time: begin, then finish."""

    def __init__(self, scheduler: Scheduler, profile: Profile, *, max_model_len: int) -> None:
        self.scheduler = scheduler
        self.profile = profile
        self.max_model_len = max_model_len
        self.queued_prompt_tokens = 0

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting)

    def add(self, request: Request) -> None:
        """Queues the request."""
        self.queued_prompt_tokens += request.num_prompt_tokens
        self.scheduler.add_request(request)

    def abort(self, request: Request) -> None:
        """The client is gone, or the engine gives the request up. No effect on a finished one."""
        if request.finish_reason is None:
            if request.num_output_tokens == 0:
                self.queued_prompt_tokens -= request.num_prompt_tokens
            self.scheduler.finish_request(request, "abort")

    def begin_step(self, now: float) -> Step:
        """Lets the scheduler choose the step that starts now."""
        output = self.scheduler.schedule()
        sequences = context = prefill = 0
        for request, tokens in output.scheduled:
            if tokens == 1 and request.num_output_tokens > 0:
                sequences += 1
                context += request.num_computed_tokens
            else:
                prefill += tokens
        for request in output.newly_running:
            if request.scheduled_time is None:
                # A step may begin late, its ideal moment being before a request that is in it: a queue time below zero
                # would take from the histogram's sum, which Prometheus takes for a restart and counts anew as a whole.
                request.scheduled_time = max(now, request.arrival_time)
        seconds = self.profile.step_seconds(
            decode_sequences=sequences, decode_context_tokens=context, prefill_tokens=prefill
        )
        return Step(output, seconds, prefill)

    def finish_step(self, step: Step, now: float) -> StepResult:
        """Takes in the tokens of the step that ends now, and hands them to the sinks."""
        result = StepResult(
            now,
            prefill_tokens=step.prefill_tokens,
            newly_scheduled=[r for r in step.output.newly_running if r.num_preemptions == 0],
            num_preempted=len(step.output.preempted),
        )
        for request, tokens in step.output.scheduled:
            if request.finish_reason is None:  # not aborted while the step ran
                request.num_computed_tokens += tokens
                if request.num_computed_tokens == request.num_tokens:
                    self._take_token(request, now, result)
        return result

    def _take_token(self, request: Request, now: float, result: StepResult) -> None:
        if request.num_output_tokens == 0:
            request.first_token_time = now
            self.queued_prompt_tokens -= request.num_prompt_tokens
            result.first_tokens.append(request)
        else:
            result.decode_gaps.append(now - request.last_token_time)
        request.last_token_time = now
        request.num_output_tokens += 1
        sink = request.sink
        if request.num_output_tokens >= request.max_tokens or request.num_tokens >= self.max_model_len:
            self.scheduler.finish_request(request, "length")
            result.finished.append(request)
            if sink is not None:
                sink.finish("length")
        elif sink is not None:
            sink.token()
