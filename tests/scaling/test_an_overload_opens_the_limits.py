"""While more arrives than can be served at all, throughput goes before TPOT; once the backlog is gone, no more."""

import dataclasses
import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scaling.story import CHAT, PROFILE, TICK, Story, tier
from tests.scaling.test_guard_properties import KNOWN, Case, Dice, inside
from tierkeeper.engine.latency import Lengths, saturated_slope_seconds, saturated_tpot_seconds
from tierkeeper.scaling.knowledge import Knowledge, backlog, model
from tierkeeper.scaling.measured import Mean, Measured
from tierkeeper.scaling.memory import CapMark
from tierkeeper.scaling.model import Lever, Levers, Reason
from tierkeeper.scaling.overload import OPEN_SHARE, open_batch, overloaded
from tierkeeper.slo.model import SignalState, Traffic

CHAT_TIER = {"ttft": 1.5, "tpot": 0.04, "seqs": (8, 256), "start": 56, "replicas": (1, 32), "tokens": (256, 8192)}
STARTUP = 120.0


class Flood(Story):
    """A pool whose queue is kept: what arrives and is not served waits. Replicas start for STARTUP seconds."""

    def __init__(self, **spec) -> None:
        super().__init__(tier(**{**CHAT_TIER, **spec}), replicas=4)
        self.waits = 0.0
        self.minute: list[float] = []
        """Requests a second that were served at each look of the last minute: rates tell their mean."""
        self.coming: list[tuple[float, int]] = []

    def arrive(self, rate: float, seconds: float) -> None:
        """``rate`` requests a second for so long."""
        end = self.now + seconds
        while self.now < end:
            self.ready += sum(pods for at, pods in self.coming if at <= self.now)
            self.coming = [one for one in self.coming if one[0] > self.now]
            ran = self.traffic.running
            self.serves(1e6 if self.waits > 0 else rate, waiting=self.waits)
            served, began = self.traffic.requests_per_second, max(0.0, self.traffic.running - ran)
            self.waits = max(0.0, self.waits + (rate - served) * TICK - began)
            self.minute = [*self.minute[-11:], served]
            shown = sum(self.minute) / len(self.minute)
            self.traffic = dataclasses.replace(
                self.traffic,
                waiting=self.waits,
                requests_per_second=shown,
                finished_per_second=shown,
                prompt_tokens_per_second=shown * CHAT.prompt_tokens,
                generation_tokens_per_second=shown * CHAT.output_tokens,
            )
            step = saturated_tpot_seconds(PROFILE, batch=self.traffic.running / self.ready, lengths=CHAT)
            late = self.waits > 1.5 * served
            self.burns(ttft=100.0 if late else 0.0, tpot=100.0 if step > 0.04 else 0.0, p99=step)
            before = self.levers.replicas
            after = self.tick().levers.replicas
            if after > before:
                self.coming.append((self.now + STARTUP if self.pods_come else math.inf, after - before))

    @property
    def caps(self) -> list[int]:
        """Each cap that was set, in order."""
        return [d.levers.max_num_seqs for d in self.decisions if Lever.MAX_NUM_SEQS in d.changed]


def flooded(**spec) -> Flood:
    """Four replicas carry 17 requests/s for four minutes, then 60 arrive for two: they can serve 31 within TPOT."""
    story = Flood(**spec)
    story.arrive(17.0, 240)
    story.arrive(60.0, 120)
    return story


def test_a_step_beyond_what_can_be_served_opens_the_limits_works_the_backlog_off_and_closes_them():
    story = flooded()
    opened = next(d for d in story.decisions if Lever.MAX_NUM_SEQS in d.changed)
    assert story.levers.max_num_seqs == 164
    assert opened.reason is Reason.QUEUE_BOUND_RAISE_CAP
    assert "throughput goes before TPOT until the backlog is gone" in opened.message
    story.arrive(60.0, 600)
    assert story.waits == pytest.approx(0.0, abs=1e-9)
    assert story.levers.max_num_seqs == pytest.approx(56, abs=4)
    closed = next(d for d in reversed(story.decisions) if Lever.MAX_NUM_SEQS in d.changed)
    assert closed.reason is Reason.TUNE_LIMITS
    assert "TPOT comes first again" in closed.message
    assert story.caps == [164, story.levers.max_num_seqs]
    story.arrive(60.0, 300)
    assert len(story.caps) == 2


def test_a_queue_of_one_look_opens_nothing():
    """Before a queue has stood for ten seconds nobody knows whether it goes on."""
    story = Flood()
    story.arrive(17.0, 240)
    for waiting in (200.0, 400.0):
        decision = story.serves(1e6, waiting=waiting).tick()
    assert decision.inputs["arrivalsPerSecond"] > 40
    assert story.caps == []
    story.serves(1e6, waiting=600.0).tick()
    assert story.caps == [164]


@pytest.mark.parametrize(("cap", "leaps"), [(112, True), (28, True), (80, False), (40, False)])
def test_a_cap_that_leaps_is_noted_and_one_that_is_tuned_is_not(cap, leaps):
    story = Flood()
    story.arrive(17.0, 2 * TICK)
    story.levers = dataclasses.replace(story.levers, max_num_seqs=cap)
    story.serves(17.0).tick()
    assert (story.memory.knowledge.cap_leapt_at is not None) is leaps


def test_replicas_are_asked_for_no_later_for_it():
    bounded = flooded(seqs=(8, 56))
    assert bounded.caps == []
    assert flooded().levers.replicas >= 0.9 * bounded.levers.replicas


def test_more_is_served_meanwhile():
    assert flooded().waits < 0.85 * flooded(seqs=(8, 56)).waits


def test_the_cap_is_not_taken_for_one_that_burned_tpot():
    story = flooded()
    story.arrive(60.0, 600)
    assert story.memory.cap_mark is None
    assert not story.memory.stands_open


def test_leaps_of_the_cap_teach_nothing_of_the_speed():
    """Gauges leap with the cap, rates follow over a minute: together they say nothing of a step."""
    story = Flood(replicas=(4, 4))
    story.arrive(17.0, 240)
    for _ in range(4):
        story.arrive(45.0, 60)
        story.arrive(15.0, 120)
    assert story.memory.knowledge.engine.speed == pytest.approx(1.0, abs=0.05)
    assert len(story.caps) == 8


def test_limits_that_the_token_budget_alone_opens_stay_open_until_the_backlog_is_gone():
    story = Flood()
    story.levers = Levers(4, 140, 448)
    story.arrive(17.0, 10)
    while not (story.caps and story.caps[-1] < 140):
        story.arrive(60.0, TICK)
    assert story.waits == pytest.approx(0.0, abs=1e-9)
    assert story.decisions[-1].reason is Reason.TUNE_LIMITS
    assert story.memory.cap_mark is None


def test_an_operator_that_starts_and_finds_the_limits_open_closes_them_as_its_own():
    story = flooded()
    story.memory = dataclasses.replace(story.memory, stands_open=False)
    story.arrive(60.0, TICK)
    assert story.memory.stands_open


def test_limits_that_have_become_right_by_themselves_do_not_stand_open_any_more():
    story = flooded()
    slower = dataclasses.replace(story.spec.objective, tpot_seconds=0.085)
    story.spec = dataclasses.replace(story.spec, objective=slower)
    story.arrive(60.0, 900)
    assert (story.levers.max_num_seqs, story.memory.stands_open) == (164, False)


def test_an_overload_without_end_stays_open_and_does_not_swing():
    story = Flood()
    story.pods_come = False
    story.arrive(17.0, 240)
    story.arrive(60.0, 900)
    assert story.caps == [164]


@pytest.mark.parametrize("edge", [29.0, 31.0])
def test_a_load_that_swings_about_what_can_be_served_does_not_swing_the_limits(edge):
    """Four replicas within TPOT serve 31 requests/s; six more or less come from look to look."""
    rng, story = Random(1), Flood()
    story.pods_come = False
    story.arrive(20.0, 240)
    for _ in range(120):
        story.arrive(max(0.0, rng.gauss(edge, 6.0)), TICK)
    assert 1 <= len(story.caps) <= 3


def test_blindness_in_the_middle_moves_nothing():
    story = flooded()
    before = story.levers
    story.blind(SignalState.NO_DATA, "NoSeries").pass_time(300)
    assert story.levers == before


@pytest.mark.parametrize("spec", [{"ttft": None}, {"tpot": None}, {"seqs": (8, 56)}, {"seqs": (8, 64)}])
def test_limits_are_not_opened_where_one_promise_is_not_made_or_the_spec_has_no_room(spec):
    story = flooded(**spec)
    assert not story.memory.stands_open


def test_the_specs_bounds_hold():
    levers = flooded(seqs=(8, 128), tokens=(256, 2048)).levers
    assert (levers.max_num_seqs, levers.max_num_batched_tokens) == (128, 2048)


def test_a_token_budget_that_keeps_tpot_is_lifted_with_the_cap():
    story = Flood()
    story.levers = dataclasses.replace(story.levers, max_num_batched_tokens=448)
    story.arrive(17.0, 240)
    story.arrive(60.0, 120)
    assert story.levers.max_num_batched_tokens == 8192


def test_what_the_kv_cache_had_no_room_for_is_not_tried_again():
    story = Flood()
    story.arrive(17.0, 240)
    story.memory = dataclasses.replace(story.memory, cap_mark=CapMark(story.now, 90, of_cache=True))
    story.arrive(60.0, 120)
    assert max(story.caps) == 90


def test_a_cap_that_burned_tpot_lately_does_not_stand_in_the_way():
    story = Flood()
    story.arrive(17.0, 240)
    story.memory = dataclasses.replace(story.memory, cap_mark=CapMark(story.now, 60))
    story.arrive(60.0, 120)
    assert max(story.caps) == 164


def test_the_batch_stays_within_the_kv_cache_that_was_seen():
    story = Flood()
    story.arrive(17.0, 240)
    engine = dataclasses.replace(story.memory.knowledge.engine, kv_sequences=Mean(100.0, 1.0))
    known = dataclasses.replace(story.memory.knowledge, engine=engine)
    story.memory = dataclasses.replace(story.memory, knowledge=known)
    story.arrive(60.0, 120)
    assert max(story.caps) == 90


def test_without_live_resize_nothing_is_opened():
    story = Flood()
    story.pool["live_resize"] = False
    story.arrive(17.0, 240)
    story.arrive(60.0, 300)
    assert story.caps == []


def test_nine_tenths_of_what_a_replica_can_do():
    """164 sequences turn over nine tenths of 1 / (211 x 0.465 ms) = 10.2 requests a second."""
    here = _model(CHAT)
    batch, slope = open_batch(here), saturated_slope_seconds(PROFILE, CHAT)
    step = saturated_tpot_seconds(PROFILE, batch=batch, lengths=CHAT)
    assert batch == pytest.approx(164, abs=1)
    assert batch / step == pytest.approx(OPEN_SHARE / slope)


def _model(lengths: Lengths = CHAT):
    spec = tier(**CHAT_TIER)
    known = Knowledge(
        engine=Measured(slowness=Mean(100.0, 100.0)),
        prompt_tokens=Mean(lengths.prompt_tokens, 1.0),
        output_tokens=Mean(lengths.output_tokens, 1.0),
    )
    found = model(spec, Levers(4, 56), known, PROFILE)
    assert found is not None
    return found


HERE = _model()


@settings(max_examples=60)
@given(
    looks=st.lists(st.tuples(st.floats(0, 60), st.floats(0, 500)), min_size=2, max_size=30),
    opened=st.booleans(),
)
def test_limits_open_only_on_a_backlog_and_close_only_without_one(looks, opened):
    """So a load that hovers about the edge, or a queue that comes and goes beneath it, moves them at most once."""
    for rate, waiting in looks:
        traffic = Traffic(running=200.0, waiting=waiting, requests_per_second=20.0)
        before, opened = opened, overloaded(HERE, traffic, rate=rate, capacity=30.0, opened=opened)
        late = backlog(traffic, HERE.objective) > 0
        assert late or not (opened and not before)
        assert not late or not (before and not opened)


def floods(*, states: tuple[SignalState, ...] = (SignalState.OK,), **spec) -> st.SearchStrategy[Case]:
    """Pools of known speed in situations of any kind, many of them overloaded, some with limits that stand open."""

    def case(rng: Random) -> Case:
        dice = Dice(rng)
        low, high = dice.bounds(256)
        tokens = dice.maybe(lambda: (rng.randint(low, high), rng.randint(high, 8192)))
        made = tier(**{"replicas": dice.bounds(20), "seqs": (low, high), "tokens": tokens, "tpot": 0.04, **spec})
        assessment = dice.assessment(made, states)
        busy = dataclasses.replace(assessment.traffic, waiting=dice.amount(2000), requests_per_second=dice.amount(200))
        kv = rng.choice([Mean(), Mean(rng.uniform(1, 400), 1.0)])
        known = Knowledge(engine=Measured(slowness=Mean(100.0, 100.0), kv_sequences=kv))
        memory = dataclasses.replace(dice.memory(made), spec=made, knowledge=known, stands_open=dice.past() is not None)
        return Case(made, dataclasses.replace(assessment, traffic=busy), dice.pool(made, inside=True), memory)

    return st.randoms(use_true_random=True).map(case)


@settings(max_examples=100)
@given(floods())
def test_a_decision_in_an_overload_is_never_outside_the_bounds(case):
    decision, _ = case.decide()
    assert inside(case.spec, decision, replicas=case.pool.external_scaler is None)


@settings(max_examples=60)
@given(floods(states=tuple(state for state in SignalState if state not in KNOWN)))
def test_on_unknown_data_nothing_is_opened_or_closed(case):
    decision, _ = case.decide()
    assert decision.changed == () or decision.reason is Reason.ROLL_BACK_CAP


@settings(max_examples=60)
@given(floods())
def test_where_limits_cannot_be_moved_live_none_is_raised(case):
    decision, _ = case.decide(pool=dataclasses.replace(case.pool, live_resize=False))
    assert decision.levers.max_num_seqs <= case.pool.current.max_num_seqs
    assert decision.levers.max_num_batched_tokens == case.pool.current.max_num_batched_tokens


@settings(max_examples=60)
@given(st.one_of(floods(ttft=None), floods(tpot=None)))
def test_a_tier_with_one_promise_alone_is_never_opened(case):
    _, memory = case.decide(memory=dataclasses.replace(case.memory, stands_open=False))
    assert not memory.stands_open


@settings(max_examples=60)
@given(floods())
def test_nothing_is_opened_above_what_the_kv_cache_or_the_engine_did_not_bear(case):
    memory = dataclasses.replace(case.memory, cap_bound=case.pool.current.max_num_seqs)
    decision, _ = case.decide(memory=memory)
    assert decision.levers.max_num_seqs <= case.pool.current.max_num_seqs


def test_limits_that_stand_open_when_the_engine_changes_are_closed_as_well():
    story = flooded()
    engine = dataclasses.replace(story.spec.engine, image="other")
    story.spec = dataclasses.replace(story.spec, engine=engine)
    story.arrive(17.0, 300)
    assert story.levers.max_num_seqs < 60
    assert story.levers.max_num_batched_tokens < 500
