"""A stage for time-stepped scenarios: a tier, what its metrics say, and pods that come when the story says so."""

from __future__ import annotations

import dataclasses
from typing import Any

from tierkeeper.engine.latency import LLAMA_8B_2XA100 as PROFILE
from tierkeeper.engine.latency import Lengths
from tierkeeper.scaling.decide import decide
from tierkeeper.scaling.knowledge import Knowledge, model
from tierkeeper.scaling.memory import Memory
from tierkeeper.scaling.model import Decision, Lever, Levers, PoolState
from tierkeeper.scaling.sizing import Plan, plan
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
from tierkeeper.tier import (
    Bounds,
    Engine,
    Mode,
    Model,
    Objective,
    Resources,
    Rollout,
    Scaling,
    TierKey,
    TierSpec,
)

KEY = TierKey("llm", "gold")
CHAT = Lengths()
"""1,155 prompt and 211 output tokens."""
TICK = 5.0
START = 10_000.0


def tier(
    *,
    replicas: tuple[int, int] = (1, 8),
    seqs: tuple[int, int] = (4, 64),
    start: int = 16,
    tokens: tuple[int, int] | None = None,
    ttft: float | None = 1.5,
    tpot: float | None = 0.1,
    window: int = 300,
    mode: Mode = Mode.AUTO,
    startup_seconds: int = 1800,
) -> TierSpec:
    """A tier like the Gold example: TTFT 1.5 s, TPOT 100 ms, max-num-seqs from 16."""
    promised = ttft is not None or tpot is not None
    return TierSpec(
        key=KEY,
        uid="7f1c",
        generation=1,
        model=Model(id="example/model", served_name="example"),
        objective=Objective(ratio=0.99, ttft_seconds=ttft, tpot_seconds=tpot) if promised else None,
        engine=Engine(image="vllm/vllm-openai:v0.32.0", version=(0, 32, 0), max_num_seqs=start),
        resources=Resources(),
        scaling=Scaling(
            mode=mode,
            replicas=Bounds(*replicas),
            max_num_seqs=Bounds(*seqs),
            max_num_batched_tokens=Bounds(*tokens) if tokens else None,
            scale_down_stabilization_seconds=window,
        ),
        rollout=Rollout(startup_seconds=startup_seconds),
    )


def slo(
    sli: Sli,
    *,
    threshold: float,
    burn: float = 0.0,
    p99: float | None = None,
    p99_open: bool = False,
    p50: float | None = None,
    total: float = 200.0,
    budget_left: float | None = None,
    state: SignalState = SignalState.OK,
) -> SloAssessment:
    """One SLO whose control windows all burn alike; above 6x it burns."""
    ratio = Ratio(*[burn * 0.01] * 3)
    rates = Ratio(*[burn] * 3)
    windows = tuple(WindowSli(s, total=total * s / 300, ratio=ratio, burn=rates) for s in (60, 300, 1800))
    seconds = threshold * (0.4 if burn < 1 else 1.2) if p99 is None else p99
    return SloAssessment(
        sli=sli,
        threshold_seconds=threshold,
        state=state,
        reason=str(state),
        said="",
        windows=windows if state is SignalState.OK else (),
        histogram=half_below(seconds / 2 if p50 is None else p50),
        p99=Quantile(seconds, at_or_above=p99_open) if state is SignalState.OK else None,
        burning=burn >= 6,
        met=burn <= 1,
        budget_left=budget_left,
    )


def half_below(seconds: float) -> Histogram:
    """A histogram with this median."""
    return Histogram((seconds, float("inf")), (1.0, 2.0))


class Story:
    """Ticks a tier through time. Decisions are applied at once; new pods start and become Ready when told."""

    def __init__(self, spec: TierSpec | None = None, *, replicas: int = 1, cap: int | None = None) -> None:
        self.spec = spec or tier()
        tokens = self.spec.scaling.max_num_batched_tokens
        self.levers = Levers(replicas, cap or self.spec.engine.max_num_seqs, tokens.max if tokens else None)
        self.now = START
        self.memory = Memory.fresh(self.now)
        self.ready = replicas
        self.pool: dict[str, Any] = {}
        """What the cluster shows beside levers and ready pods: unschedulable, failing, rolling_out, ..."""
        self.traffic = Traffic()
        self.state = SignalState.OK
        self.reason = "Ok"
        self.slos: dict[Sli, SloAssessment] = {}
        self.clean_since: float | None = self.now
        self.observed: int | None = None
        self.pods_come = True
        self.decisions: list[Decision] = []
        self.profile = PROFILE
        self.calm()

    def calm(self, *, running: float = 2.0, requests_5m: float = 1000.0, requests_per_second: float = 3.0) -> Story:
        """Requests run, none waits, nothing burns."""
        self.traffic = Traffic(
            running=running,
            requests_per_second=requests_per_second,
            finished_per_second=requests_per_second,
            requests_5m=requests_5m,
        )
        return self.burns()

    def serves(
        self,
        rate: float,
        *,
        lengths: Lengths = CHAT,
        slowness: float = 1.0,
        reading: float | None = None,
        ahead: bool = False,
        queued: float | None = None,
        misses: float = 0.0,
        waiting: float = 0.0,
    ) -> Story:
        """``rate`` requests/s as an engine of the profile's shape would show them, evenly over the ready pods.

        A batch of ``B`` turns over ``B / (output * step)`` requests a second; ``misses``: budgets that TTFT misses.
        ``reading``: prompts are as many times as dear as in the profile, and their prefill time is shown; None: it is
        not, and they are as dear. ``ahead``: the engine schedules a step ahead, which that time holds too. ``queued``:
        seconds in the queue; None: as long as the step under way lasts, half of one, where prefill time is shown.
        """
        pods, read = max(1, self.ready), PROFILE.per_prefill_token_seconds * (reading or 1.0)
        slope = (
            PROFILE.per_sequence_seconds
            + PROFILE.per_context_token_seconds * lengths.context_tokens
            + read * lengths.prompt_tokens / lengths.output_tokens
        )
        step_rate = rate / pods * lengths.output_tokens * slowness
        batch = min(step_rate * PROFILE.base_seconds / max(1e-3, 1 - step_rate * slope), self.levers.max_num_seqs)
        step = slowness * (PROFILE.base_seconds + batch * slope)
        served = batch * pods / (lengths.output_tokens * step)
        queued = step / 2 if queued is None and reading is not None else queued
        prefill = 0.0 if reading is None else (2 if ahead else 1) * step + slowness * read * lengths.prompt_tokens
        self.traffic = Traffic(
            running=batch * pods + served * prefill,
            waiting=waiting,
            waiting_floor=waiting,
            requests_per_second=served,
            finished_per_second=served,
            prompt_tokens_per_second=served * lengths.prompt_tokens,
            generation_tokens_per_second=served * lengths.output_tokens,
            mean_prompt_tokens=lengths.prompt_tokens,
            mean_output_tokens=lengths.output_tokens,
            mean_prefill_seconds=prefill,
            mean_queue_seconds=queued,
            requests_5m=served * 300,
        )
        return self.burns(
            ttft=misses, p99=0.5 * (self.spec.objective.tpot_seconds or 0.1) if self.spec.objective else 0
        )

    def idle(self) -> Story:
        """Nothing arrives any more; counters stand still and the quantiles have become not-a-number."""
        self.traffic, self.state, self.reason = Traffic(), SignalState.NO_TRAFFIC, "NoTraffic"
        self.slos = {s: dataclasses.replace(v, state=SignalState.NO_TRAFFIC, windows=()) for s, v in self.slos.items()}
        return self

    def burns(self, *, ttft: float = 0.0, tpot: float = 0.0, **tpot_details: Any) -> Story:
        """How fast each promised SLO burns, as a multiple of its budget."""
        self.state, self.reason, self.slos = SignalState.OK, "Ok", {}
        if self.clean_since is None:
            self.clean_since = self.now
        objective = self.spec.objective
        if objective is not None and objective.ttft_seconds is not None:
            self.slos[Sli.TTFT] = slo(Sli.TTFT, threshold=objective.ttft_seconds, burn=ttft)
        if objective is not None and objective.tpot_seconds is not None:
            self.slos[Sli.TPOT] = slo(Sli.TPOT, threshold=objective.tpot_seconds, burn=tpot, **tpot_details)
        return self

    def blind(self, state: SignalState, reason: str) -> Story:
        """Metrics cannot be believed any more."""
        self.state, self.reason, self.clean_since, self.traffic = state, reason, None, Traffic()
        self.slos = {s: dataclasses.replace(v, state=state, windows=(), p99=None) for s, v in self.slos.items()}
        return self

    def queue(self, waiting: float, *, running: float | None = None, floor: float | None = None, **more: Any) -> Story:
        """Every slot is taken and requests wait."""
        slots = self.levers.max_num_seqs * self.ready
        self.traffic = Traffic(
            **{
                "running": float(slots if running is None else running),
                "waiting": waiting,
                "waiting_floor": waiting if floor is None else floor,
                "requests_per_second": 3.0,
                "finished_per_second": 3.0,
                "requests_5m": 1000.0,
                "mean_queue_seconds": 1.8,
                "mean_ttft_seconds": 2.2,
                **more,
            }
        )
        return self

    def pods_become_ready(self) -> Story:
        self.ready = self.levers.replicas
        return self

    def assessment(self) -> Assessment:
        observed = self.ready if self.observed is None else self.observed
        return Assessment(
            key=KEY,
            state=self.state,
            reason=self.reason,
            said="as the story says",
            slos=self.slos,
            traffic=dataclasses.replace(self.traffic, observed_pods=observed),
            clean_since=self.clean_since,
        )

    def tick(self) -> Decision:
        pool = PoolState(current=self.levers, ready=self.ready, **self.pool)
        decision, self.memory = decide(
            now=self.now,
            spec=self.spec,
            assessment=self.assessment(),
            pool=pool,
            memory=self.memory,
            profile=self.profile,
        )
        if self.spec.scaling.mode is not Mode.RECOMMEND:
            self.levers = decision.levers
            self.ready = min(self.ready, self.levers.replicas)
        self.decisions.append(decision)
        self.now += TICK
        return decision

    def pass_time(self, seconds: float) -> Decision:
        """Tick until so many seconds are over; the last decision."""
        decision = self.tick()
        end = self.now - TICK + seconds
        while self.now < end:
            decision = self.tick()
        return decision

    def changes(self) -> list[tuple[Lever, ...]]:
        return [d.changed for d in self.decisions if d.changed]


def sized_from(
    story: Story,
    known: Knowledge,
    *,
    current: Levers,
    live: bool = True,
    open_ceiling: int = 0,
    lead_seconds: float = 150.0,
) -> Plan:
    """One plan from what is known and what the story's traffic shows, for a pool at these levers."""
    pool = PoolState(current, ready=current.replicas)
    found = plan(
        spec=story.spec,
        assessment=story.assessment(),
        pool=pool,
        knowledge=dataclasses.replace(known, here=model(story.spec, pool.current, known, PROFILE)),
        now=story.now,
        lead_seconds=lead_seconds,
        live=live,
        cap_ceiling=256,
        open_ceiling=open_ceiling,
    )
    assert found is not None
    return found
