"""What no input may ever bring about."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import reduce
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scaling.story import KEY, START, Story, slo, tier
from tierkeeper.engine.latency import LLAMA_8B_2XA100
from tierkeeper.scaling.context import Context
from tierkeeper.scaling.decide import decide
from tierkeeper.scaling.diagnose import diagnose
from tierkeeper.scaling.guards import GUARDS, guarded
from tierkeeper.scaling.levers import hold, within_bounds
from tierkeeper.scaling.memory import CapMark, CapRaise, Memory, Recommendation, Strain
from tierkeeper.scaling.model import Decision, Lever, Levers, PoolState, Reason
from tierkeeper.slo.model import Assessment, SignalState, Sli, SloAssessment, Traffic
from tierkeeper.tier import Mode, TierSpec

N = 200

KNOWN = (SignalState.OK, SignalState.NO_TRAFFIC)


class Dice:
    """Draws whole situations from one seed: forty values a case are too many for hypothesis to draw one by one."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def maybe(self, value: Callable[[], Any]) -> Any:
        return value() if self.rng.random() < 0.6 else None

    def amount(self, most: float) -> float:
        """Often nothing, often little, sometimes a lot."""
        return self.rng.choice([0.0, 0.0, 1.0, self.rng.uniform(0, most / 50), self.rng.uniform(0, most)])

    def bounds(self, most: int) -> tuple[int, int]:
        one, other = self.rng.randint(1, most), self.rng.randint(1, most)
        return min(one, other), max(one, other)

    def past(self) -> float | None:
        return self.maybe(lambda: START - self.amount(4000))

    def spec(self, modes: Sequence[Mode]) -> TierSpec:
        rng = self.rng
        return tier(
            replicas=self.bounds(20),
            seqs=self.bounds(256),
            start=rng.randint(1, 256),
            tokens=self.maybe(lambda: self.bounds(8192)),
            ttft=self.maybe(lambda: 1.5),
            tpot=self.maybe(lambda: 0.1),
            window=rng.choice([0, 60, 300]),
            mode=rng.choice(modes),
        )

    def slos(self, spec: TierSpec, state: SignalState) -> dict[Sli, SloAssessment]:
        objective = spec.objective
        promised = {} if objective is None else {Sli.TTFT: objective.ttft_seconds, Sli.TPOT: objective.tpot_seconds}
        return {
            sli: slo(
                sli,
                threshold=threshold,
                burn=self.rng.choice([0.0, 0.5, 1.0, 3.0, 8.0, 100.0]),
                p99=self.maybe(lambda: self.rng.uniform(0.001, 2)),
                p99_open=self.rng.random() < 0.2,
                total=self.rng.uniform(0, 5000),
                budget_left=self.maybe(lambda: self.rng.uniform(-1, 1)),
                state=state,
            )
            for sli, threshold in promised.items()
            if threshold is not None
        }

    def assessment(self, spec: TierSpec, states: Sequence[SignalState]) -> Assessment:
        state = self.rng.choice(states)
        return Assessment(
            key=KEY,
            state=state,
            reason=str(state),
            said="",
            slos=self.slos(spec, state),
            traffic=Traffic(
                running=self.amount(2000),
                waiting=self.amount(2000),
                waiting_floor=self.amount(2000),
                requests_per_second=self.amount(500),
                finished_per_second=self.amount(500),
                prompt_tokens_per_second=self.amount(1e6),
                generation_tokens_per_second=self.amount(1e5),
                preemptions_per_second=self.amount(10),
                mean_queue_seconds=self.maybe(lambda: self.amount(100)),
                mean_ttft_seconds=self.maybe(lambda: self.amount(100)),
                mean_prompt_tokens=self.maybe(lambda: self.amount(1e5)),
                mean_output_tokens=self.maybe(lambda: self.amount(1e4)),
                kv_cache_usage=self.maybe(lambda: self.rng.choice([0.2, 0.95])),
                requests_5m=self.amount(1e5),
                observed_pods=self.rng.randint(0, 20),
            ),
            clean_since=self.past(),
        )

    def pool(self, spec: TierSpec, *, inside: bool) -> PoolState:
        rng = self.rng
        levers = Levers(rng.randint(0, 30), rng.randint(1, 300), self.maybe(lambda: rng.randint(1, 10_000)))
        levers = within_bounds(spec, levers) if inside else levers
        return PoolState(
            current=levers,
            ready=rng.choice([0, levers.replicas, rng.randint(0, 20)]),
            unschedulable=rng.choice([0, 0, 0, rng.randint(0, 3)]),
            failing=rng.choice([0, 0, rng.randint(0, 3)]),
            rolling_out=rng.random() < 0.1,
            resizing=rng.random() < 0.2,
            live_resize=rng.random() < 0.8,
            external_scaler="HorizontalPodAutoscaler" if rng.random() < 0.1 else None,
            startup_seconds=rng.choice([None, None, 40.0, 900.0]),
        )

    def memory(self, spec: TierSpec) -> Memory:
        rng, cap = self.rng, self.rng.randint(1, 256)
        return Memory(
            started_at=START - rng.choice([10.0, 4000.0]),
            spec=self.maybe(lambda: spec),
            ready=self.maybe(lambda: rng.randint(0, 20)),
            replicas_at=self.past(),
            live_at=self.past(),
            capacity_at=self.past(),
            starting_since=self.past(),
            startup_seconds=self.maybe(lambda: self.amount(2000)),
            unschedulable_since=self.past(),
            released_at=self.past(),
            resizing_since=self.past(),
            queue_since=self.past(),
            queued_at=self.past(),
            calm_since=self.past(),
            last_raise=self.maybe(lambda: CapRaise(START - rng.uniform(0, 200), before=cap, after=2 * cap, failing=0)),
            cap_bound=self.maybe(lambda: rng.randint(1, 256)),
            cap_mark=self.maybe(lambda: CapMark(START - self.amount(4000), rng.randint(1, 256))),
            strain=self.maybe(lambda: Strain(START - self.amount(4000), self.amount(100))),
            recommendations=tuple(
                Recommendation(START - self.amount(400), rng.randint(1, 20)) for _ in range(rng.randint(0, 3))
            ),
        )


@dataclasses.dataclass(frozen=True)
class Case:
    spec: TierSpec
    assessment: Assessment
    pool: PoolState
    memory: Memory

    def decide(self, *, now: float = START, pool: PoolState | None = None, memory: Memory | None = None):
        return decide(
            now=now,
            spec=self.spec,
            assessment=self.assessment,
            pool=pool or self.pool,
            memory=memory or self.memory,
        )


def cases(
    modes: Sequence[Mode] = (Mode.AUTO, Mode.AUTO, Mode.RECOMMEND, Mode.FIXED),
    states: Sequence[SignalState] = (SignalState.OK, SignalState.OK, SignalState.OK, *SignalState),
    inside: bool = True,
) -> st.SearchStrategy[Case]:
    def case(rng: Random) -> Case:
        dice = Dice(rng)
        spec = dice.spec(modes)
        return Case(
            spec=spec,
            assessment=dice.assessment(spec, states),
            pool=dice.pool(spec, inside=inside),
            memory=dice.memory(spec),
        )

    return st.randoms(use_true_random=True).map(case)


def inside(spec: TierSpec, decision: Decision, *, replicas: bool = True) -> bool:
    scaling = spec.scaling
    wanted = within_bounds(spec, decision.levers)
    if not replicas:
        wanted = dataclasses.replace(wanted, replicas=decision.levers.replicas)
    assert scaling.replicas.min <= scaling.replicas.max
    return decision.levers == wanted


@settings(max_examples=N)
@given(cases(inside=False))
def test_a_decision_is_never_outside_the_bounds(case):
    decision, _ = case.decide()
    assert inside(case.spec, decision, replicas=case.pool.external_scaler is None)


@settings(max_examples=N)
@given(cases(inside=False))
def test_a_decision_names_exactly_the_levers_that_differ_and_says_why(case):
    decision, _ = case.decide()
    current, levers = case.pool.current, decision.levers
    assert (Lever.REPLICAS in decision.changed) == (levers.replicas != current.replicas)
    assert (Lever.MAX_NUM_SEQS in decision.changed) == (levers.max_num_seqs != current.max_num_seqs)
    assert (Lever.TOKEN_BUDGET in decision.changed) == (levers.max_num_batched_tokens != current.max_num_batched_tokens)
    assert decision.message
    assert "inf" not in decision.message.split()
    assert "nan" not in decision.message.split()
    assert all(math.isfinite(value) for value in decision.inputs.values())


@settings(max_examples=N)
@given(
    cases(inside=False),
    st.sampled_from([Reason.STEADY, Reason.IDLE, Reason.INFEASIBLE, Reason.HOLD_SURVIVORS]),
    st.integers(0, 2),
)
def test_a_hold_comes_out_of_the_few_guards_it_meets_as_out_of_all(case, reason, stuck):
    pool = dataclasses.replace(case.pool, unschedulable=stuck)
    memory = dataclasses.replace(case.memory, unschedulable_since=START - 4000.0 if stuck else None)
    seen = {"now": START, "assessment": case.assessment, "pool": pool, "memory": memory}
    ctx = Context(spec=case.spec, finding=diagnose(profile=LLAMA_8B_2XA100, **seen), **seen)
    nothing = hold(ctx, reason, "as it is")
    assert guarded(nothing, ctx) == reduce(lambda proposal, guard: guard(proposal, ctx), GUARDS, nothing)


@settings(max_examples=N)
@given(cases(modes=(Mode.AUTO,), states=tuple(s for s in SignalState if s not in KNOWN)))
def test_unknown_metrics_move_nothing_but_a_cap_raise_that_killed_a_pod(case):
    decision, _ = case.decide()
    if decision.reason is Reason.ROLL_BACK_CAP:
        assert decision.changed == (Lever.MAX_NUM_SEQS,)
        assert decision.levers.max_num_seqs < case.pool.current.max_num_seqs
    else:
        assert decision.changed == ()


@settings(max_examples=N)
@given(cases(modes=(Mode.AUTO, Mode.RECOMMEND), states=(SignalState.NO_TRAFFIC,)))
def test_no_traffic_never_grows_anything(case):
    decision, _ = case.decide()
    assert decision.levers.replicas <= case.pool.current.replicas
    assert decision.levers.max_num_seqs <= case.pool.current.max_num_seqs
    assert (decision.levers.max_num_batched_tokens or 0) <= (case.pool.current.max_num_batched_tokens or 0)


@settings(max_examples=N)
@given(cases(modes=(Mode.PAUSED,), inside=False))
def test_paused_never_changes_a_lever(case):
    decision, _ = case.decide()
    assert decision.changed == ()
    assert decision.levers == case.pool.current


@settings(max_examples=N)
@given(cases(inside=False))
def test_another_scalers_replicas_are_never_written(case):
    pool = dataclasses.replace(case.pool, external_scaler="HorizontalPodAutoscaler")
    decision, _ = case.decide(pool=pool)
    assert Lever.REPLICAS not in decision.changed


@settings(max_examples=N)
@given(cases(modes=(Mode.AUTO,)), st.floats(0, 14.9))
def test_a_decision_that_is_applied_is_not_followed_by_another_within_the_settle_window(case, later):
    decision, memory = case.decide()
    if not decision.changed:
        return
    spec = dataclasses.replace(
        case.spec, scaling=dataclasses.replace(case.spec.scaling, scale_down_stabilization_seconds=300)
    )
    again, _ = dataclasses.replace(case, spec=spec).decide(
        now=START + later, pool=dataclasses.replace(case.pool, current=decision.levers), memory=memory
    )
    exempt = {Reason.ROLL_BACK_CAP, Reason.RELEASE_UNSCHEDULABLE}
    assert again.changed == () or again.reason in exempt


@settings(max_examples=N)
@given(cases(modes=(Mode.AUTO, Mode.RECOMMEND)))
def test_growth_at_most_doubles_and_a_shrink_under_load_takes_one(case):
    decision, _ = case.decide()
    before, after = case.pool.current.replicas, decision.levers.replicas
    assert after <= max(2 * before, before + 1)
    if decision.reason is Reason.SCALE_DOWN:
        assert after == before - 1


@settings(max_examples=N)
@given(cases(modes=(Mode.AUTO,), states=KNOWN))
def test_a_fresh_memory_never_shrinks_the_pool(case):
    spec = dataclasses.replace(
        case.spec, scaling=dataclasses.replace(case.spec.scaling, scale_down_stabilization_seconds=300)
    )
    decision, _ = dataclasses.replace(case, spec=spec).decide(memory=Memory.fresh(START - 299))
    assert decision.levers.replicas >= case.pool.current.replicas


@settings(max_examples=N)
@given(
    waiting=st.floats(0, 1000),
    more=st.floats(0, 1000),
    running=st.floats(0, 500),
    replicas=st.integers(1, 12),
    minutes=st.sampled_from([0, 10]),
)
def test_more_waiting_requests_never_mean_fewer_replicas(waiting, more, running, replicas, minutes):
    def wanted(queue: float) -> int:
        story = Story(tier(replicas=(1, 16), seqs=(4, 16), ttft=None, tpot=None), replicas=replicas)
        story.memory = dataclasses.replace(
            Memory.fresh(START - minutes * 60), queue_since=START - 60 if queue else None
        )
        story.clean_since = START - 3600
        story.queue(queue, running=running)
        return story.tick().levers.replicas

    assert wanted(waiting + more) >= wanted(waiting)
