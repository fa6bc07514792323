"""Three tiers and too few GPUs: the higher one first, taken from the lowest; Batch gets what is left."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scaling.story import slo, tier
from tierkeeper.scaling.arbitrate import Claim, arbitrate
from tierkeeper.scaling.memory import Memory
from tierkeeper.scaling.model import Decision, Lever, Levers, Limit, PoolState, Reason
from tierkeeper.slo.model import Assessment, Ratio, SignalState, Sli
from tierkeeper.tier import Mode, Overflow, OverflowPolicy, Resources, TierKey

NOW = 10_000.0


def claim(
    name: str,
    *,
    priority: int,
    replicas: int = 2,
    wants: int | None = None,
    burns: bool = False,
    unschedulable: int = 0,
    least: int = 1,
    defers: bool = False,
    gpus: int = 1,
    short: bool = False,
    limited: Reason | None = None,
    mode: Mode = Mode.AUTO,
    resource: str = "nvidia.com/gpu",
    state: SignalState = SignalState.OK,
) -> Claim:
    """A tier that has ``replicas`` and would set ``wants`` if it were alone."""
    spec = dataclasses.replace(
        tier(replicas=(least, 16), mode=mode),
        key=TierKey("llm", name),
        priority=priority,
        resources=Resources(gpus_per_replica=gpus, gpu_resource_name=resource),
        overflow=Overflow(OverflowPolicy.DEFER if defers else OverflowPolicy.QUEUE),
    )
    current = Levers(replicas, 16)
    levers = Levers(replicas if wants is None else wants, 16)
    changed = (Lever.REPLICAS,) if levers != current else ()
    reason = Reason.DEMAND_ADD_REPLICAS if changed else Reason.STEADY
    memory = dataclasses.replace(
        Memory.fresh(0.0),
        seen=current,
        decided=levers,
        decided_at=NOW,
        pressed_at=NOW if burns else None,
        short_at=NOW if short or unschedulable else None,
    )
    return Claim(
        spec=spec,
        assessment=Assessment(spec.key, state, str(state), ""),
        pool=PoolState(current, ready=replicas - unschedulable, unschedulable=unschedulable),
        decision=Decision(levers, reason, "alone", changed, Limit(limited, "") if limited else None),
        memory=memory,
    )


def heard(*claims: Claim) -> dict[str, Decision]:
    return {k.name: d for k, (d, _) in arbitrate(NOW, {c.spec.key: c for c in claims}).items()}


def test_alone_nothing_changes():
    assert heard(claim("gold", priority=1, wants=5))["gold"].levers.replicas == 5


def test_with_room_for_all_everybody_grows():
    found = heard(claim("platinum", priority=9, wants=4), claim("gold", priority=5, wants=4))
    assert {d.levers.replicas for d in found.values()} == {4}


def test_no_tier_grows_while_a_higher_one_burns():
    decision = heard(claim("platinum", priority=9, burns=True), claim("gold", priority=5, wants=4))["gold"]
    assert decision.levers.replicas == 2
    assert decision.changed == ()
    assert decision.reason is Reason.HOLD_PRIORITY
    assert "llm/platinum" in decision.message


def test_a_burn_that_only_slow_windows_remember_holds_nobody_back():
    """Mended for minutes, but half an hour still shows it: GPUs that are free are no use to it."""
    over = slo(Sli.TTFT, threshold=1.0, burn=20.0)
    mended = tuple(dataclasses.replace(w, burn=Ratio(0, 0, 0)) if w.seconds < 1800 else w for w in over.windows)
    echo = claim("platinum", priority=9, short=True)
    assessment = dataclasses.replace(echo.assessment, slos={Sli.TTFT: dataclasses.replace(over, windows=mended)})
    echo = dataclasses.replace(echo, assessment=assessment)
    assert heard(echo, claim("gold", priority=5, wants=4))["gold"].levers.replicas == 4
    burning = dataclasses.replace(echo, assessment=dataclasses.replace(assessment, slos={Sli.TTFT: over}))
    assert heard(burning, claim("gold", priority=5, wants=4))["gold"].levers.replicas == 2


def test_a_lower_tier_that_burns_holds_nobody_back():
    found = heard(claim("platinum", priority=9, wants=4), claim("gold", priority=5, burns=True))
    assert found["platinum"].levers.replicas == 4


def test_equals_do_not_hold_each_other_back():
    found = heard(claim("east", priority=5, burns=True), claim("west", priority=5, wants=4))
    assert found["west"].levers.replicas == 4


def test_a_tier_of_other_gpus_is_no_concern():
    found = heard(claim("platinum", priority=9, burns=True, resource="amd.com/gpu"), claim("gold", priority=5, wants=4))
    assert found["gold"].levers.replicas == 4


def test_a_burning_tier_that_gpus_cannot_help_does_not_starve_the_others_while_there_are_any():
    stuck = claim("platinum", priority=9, burns=True, limited=Reason.AT_MAXIMUM)
    assert heard(stuck, claim("gold", priority=5, wants=4))["gold"].levers.replicas == 4
    assert heard(stuck, claim("gold", priority=5, wants=4, short=True))["gold"].levers.replicas == 2


def test_a_pod_without_a_node_takes_a_replica_from_the_lowest_tier_above_its_minimum():
    found = heard(
        claim("platinum", priority=9, replicas=3, unschedulable=2, burns=True),
        claim("gold", priority=5, replicas=3),
        claim("standard", priority=1, replicas=2),
    )
    assert (found["gold"].levers.replicas, found["standard"].levers.replicas) == (2, 1)
    assert found["standard"].reason is Reason.YIELD_REPLICAS
    assert "llm/platinum" in found["standard"].message


def test_what_drains_already_is_not_taken_twice():
    platinum = claim("platinum", priority=9, unschedulable=1, burns=True)
    standard = claim("standard", priority=1, replicas=4)
    (_, memory) = arbitrate(NOW, {c.spec.key: c for c in (platinum, standard)})[standard.spec.key]
    again = dataclasses.replace(claim("standard", priority=1, replicas=3), memory=memory)
    assert heard(platinum, again)["standard"].levers.replicas == 3


def test_a_decided_shrink_counts_as_room():
    found = heard(
        claim("platinum", priority=9, unschedulable=1, burns=True),
        claim("gold", priority=5, replicas=4, wants=3),
        claim("standard", priority=1, replicas=4),
    )
    assert (found["gold"].levers.replicas, found["standard"].levers.replicas) == (3, 4)


def test_large_replicas_take_as_many_small_ones_as_they_need():
    found = heard(
        claim("platinum", priority=9, unschedulable=1, burns=True, gpus=4),
        claim("standard", priority=1, replicas=8),
    )
    assert found["standard"].levers.replicas == 4


def test_pods_without_a_node_of_a_calm_tier_take_nothing():
    found = heard(claim("platinum", priority=9, unschedulable=1), claim("standard", priority=1, replicas=4))
    assert found["standard"].levers.replicas == 4


UNKNOWN = [state for state in SignalState if not state.known]


@pytest.mark.parametrize("state", UNKNOWN)
def test_nothing_is_taken_from_a_tier_whose_metrics_are_unknown(state):
    found = heard(
        claim("platinum", priority=9, unschedulable=1, burns=True),
        claim("gold", priority=5, replicas=4),
        claim("standard", priority=1, replicas=4, state=state),
    )
    assert (found["gold"].levers.replicas, found["standard"].levers.replicas) == (3, 4)


@pytest.mark.parametrize("state", [*UNKNOWN, SignalState.NO_TRAFFIC])
def test_nothing_is_taken_for_a_tier_that_is_not_known_to_have_traffic(state):
    """It burned a minute ago; whether it still does, nobody knows."""
    found = heard(
        claim("platinum", priority=9, unschedulable=1, burns=True, state=state),
        claim("standard", priority=1, replicas=4),
    )
    assert found["standard"].levers.replicas == 4


class Node:
    """Platinum burns and asks for eight GPUs on one node; Standard has ten replicas of one GPU, on as many nodes or,
    where it ``fits``, on Platinum's."""

    def __init__(self, *, fits: bool = False) -> None:
        self.now, self.fits = NOW, fits
        self.platinum, self.standard = 2, 10
        self.ready, self.lacking, self.generation = 2, 0, 1
        self.memories: dict[str, Memory] = {}
        self.reasons: list[Reason] = []

    def passes(self, seconds: float, *, wants: int | None = None) -> None:
        """Ticks of 15 s in which Standard would have ``wants`` replicas if it were alone."""
        end = self.now + seconds
        while self.now < end:
            self.tick(wants or self.standard)

    def tick(self, wants: int) -> None:
        if self.fits and self.standard <= 2:
            self.lacking = 0
        platinum = claim("platinum", priority=9, replicas=self.platinum, unschedulable=self.lacking, gpus=8)
        platinum = dataclasses.replace(platinum, pool=dataclasses.replace(platinum.pool, ready=self.ready))
        spec = dataclasses.replace(platinum.spec, generation=self.generation)
        claims = [dataclasses.replace(platinum, spec=spec), claim("standard", priority=1, replicas=self.standard)]
        if wants != self.standard:
            claims[1] = claim("standard", priority=1, replicas=self.standard, wants=wants)
        remembered = [self._remembered(one) for one in claims]
        settled = arbitrate(self.now, {one.spec.key: one for one in remembered})
        self.memories = {key.name: memory for key, (_, memory) in settled.items()}
        decision = settled[claims[1].spec.key][0]
        self.standard = decision.levers.replicas
        self.reasons.append(decision.reason)
        self.now += 15.0

    def _remembered(self, one: Claim) -> Claim:
        before = self.memories.get(one.spec.key.name, one.memory)
        pressed = self.now if one.spec.priority == 9 else None
        short = self.now if one.pool.unschedulable else before.short_at
        memory = dataclasses.replace(
            one.memory, pressed_at=pressed, short_at=short, yielded=before.yielded, taken=before.taken
        )
        return dataclasses.replace(one, memory=memory)

    def asks(self, replicas: int) -> None:
        """Platinum asks for another number of replicas, and what is more than two finds no node."""
        self.platinum, self.lacking = replicas, replicas - 2

    @property
    def yields(self) -> int:
        return self.reasons.count(Reason.YIELD_REPLICAS)


def test_gpus_that_were_freed_in_vain_may_be_used_again_by_who_gave_them():
    """Eight nodes with one free GPU each are no use to a replica of eight, however long it burns."""
    node = Node()
    node.asks(3)
    node.passes(60.0)
    assert (node.standard, node.yields) == (2, 1)
    node.passes(120.0, wants=10)
    assert node.standard == 2  # the last pod may still hold its GPU, or the scheduler not have looked
    node.passes(30.0, wants=10)
    assert node.standard == 10


def test_what_was_freed_in_vain_is_not_taken_again_when_the_pods_are_asked_for_anew():
    node = Node()
    for _ in range(8):  # 15 minutes without a node, then given back, and asked for again ten minutes later
        node.asks(3)
        node.passes(900.0, wants=10)
        node.asks(2)
        node.passes(600.0, wants=10)
    assert (node.standard, node.yields) == (10, 1)


def test_after_a_working_day_it_is_tried_once_more():
    node = Node()
    node.asks(3)
    node.passes(7 * 3600.0, wants=10)
    assert node.yields == 2


def test_another_spec_is_tried_at_once():
    """What asked for eight GPUs on a node may ask for one now."""
    node = Node()
    node.asks(3)
    node.passes(600.0, wants=10)
    node.generation = 2
    node.passes(60.0, wants=10)
    assert node.yields == 2


def test_gpus_that_helped_are_taken_again_when_more_is_needed():
    node = Node(fits=True)
    node.asks(3)
    node.passes(600.0)
    assert (node.lacking, node.yields) == (0, 1)
    node.fits, node.standard, node.ready = False, 10, 3
    node.platinum, node.lacking = 4, 1
    node.passes(60.0)
    assert node.yields == 2


def test_a_pod_that_becomes_ready_after_all_makes_the_next_try_worth_its_price():
    """A node was added: pods of this size find one now."""
    node = Node()
    node.asks(3)
    node.passes(600.0, wants=10)
    node.lacking, node.ready = 0, 3
    node.passes(60.0)
    node.platinum, node.lacking = 4, 1
    node.passes(60.0)
    assert node.yields == 2


def test_batch_grows_only_into_what_the_others_leave():
    batch = claim("batch", priority=99, wants=4, defers=True)
    assert heard(claim("gold", priority=5), batch)["batch"].levers.replicas == 4
    for busy in (
        claim("gold", priority=5, wants=3),
        claim("gold", priority=5, burns=True),
        claim("gold", priority=5, unschedulable=1),
    ):
        assert heard(busy, batch)["batch"].levers.replicas == 2


def test_a_recommendation_is_held_back_but_nothing_is_taken_from_it():
    found = heard(
        claim("platinum", priority=9, unschedulable=1, burns=True),
        claim("gold", priority=5, replicas=4, wants=6, mode=Mode.RECOMMEND),
    )
    assert found["gold"].levers.replicas == 4


def test_a_live_limit_still_moves_when_a_growth_is_held_back():
    gold = claim("gold", priority=5, wants=4)
    levers = Levers(4, 12)
    gold = dataclasses.replace(
        gold,
        decision=dataclasses.replace(gold.decision, levers=levers, changed=(Lever.REPLICAS, Lever.MAX_NUM_SEQS)),
    )
    decision = heard(claim("platinum", priority=9, burns=True), gold)["gold"]
    assert (decision.levers, decision.changed) == (Levers(2, 12), (Lever.MAX_NUM_SEQS,))


def test_the_memory_knows_of_no_growth_that_was_held_back():
    gold = claim("gold", priority=5, wants=4)
    _, memory = arbitrate(NOW, {c.spec.key: c for c in (claim("platinum", priority=9, burns=True), gold)})[
        gold.spec.key
    ]
    assert memory.decided is not None
    assert memory.decided.replicas == 2


CLAIMS = st.lists(
    st.builds(
        claim,
        name=st.sampled_from("abcdef"),
        priority=st.integers(0, 3),
        replicas=st.integers(3, 8),
        wants=st.none() | st.integers(1, 12),
        burns=st.booleans(),
        unschedulable=st.integers(0, 2),
        least=st.integers(1, 3),
        defers=st.booleans(),
        gpus=st.integers(1, 4),
        short=st.booleans(),
        state=st.sampled_from([SignalState.OK, SignalState.OK, *SignalState]),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda c: c.spec.key,
)


@settings(max_examples=200)
@given(CLAIMS)
def test_whatever_competes(claims):
    found = heard(*claims)
    for one in claims:
        decision, spec = found[one.spec.key.name], one.spec
        now, alone = one.pool.current.replicas, one.decision.levers.replicas
        assert decision.levers.replicas <= max(alone, now)
        assert decision.levers.replicas >= min(alone, now, spec.scaling.replicas.min)
        assert (Lever.REPLICAS in decision.changed) == (decision.levers.replicas != now)
        if decision.levers.replicas > now:
            higher = [c for c in claims if (c.defers, -c.spec.priority) < (one.defers, -spec.priority)]
            assert not any(c.burns(NOW) and c.could_use_more() for c in higher)


@settings(max_examples=200)
@given(CLAIMS)
def test_nothing_is_taken_from_a_tier_that_is_not_known_nor_for_one(claims):
    claims = [one if one.assessment.state.known else dataclasses.replace(one, decision=holding(one)) for one in claims]
    settled = arbitrate(NOW, {one.spec.key: one for one in claims})
    known = [one for one in claims if one.assessment.state.known]
    alone = arbitrate(NOW, {one.spec.key: one for one in known})
    for one in claims:
        decision, memory = settled[one.spec.key]
        if one.assessment.state.known:  # it gives no more than where the unknown ones were not there at all
            assert decision.levers.replicas >= min(alone[one.spec.key][0].levers.replicas, one.pool.current.replicas)
        else:
            assert (decision.levers, decision.changed, memory.yielded) == (one.pool.current, (), ())


def holding(one: Claim) -> Decision:
    """What a tier decides whose metrics are unknown: nothing."""
    return Decision(one.pool.current, Reason.HOLD_METRICS_UNKNOWN, "unknown")
