"""What a tick replaces is freed when its last reference goes: so the operator seldom looks for what is not."""

import gc

from tests.scaling.story import tier
from tests.slo.world import LABELS, SCRAPE, Pool, misses
from tierkeeper.garbage import search_seldom
from tierkeeper.scaling.arbitrate import Claim, arbitrate
from tierkeeper.scaling.decide import decide
from tierkeeper.scaling.memory import Memory
from tierkeeper.scaling.model import Levers, PoolState
from tierkeeper.slo.assess import assess
from tierkeeper.slo.readings import group
from tierkeeper.slo.signals import SignalKind


def watch_a_tier_for(minutes: int) -> None:
    spec, memory, assessment = tier(), Memory.fresh(0.0), None
    pool = Pool(key=spec.key).ttft(misses(400, 2), windows=(60, 300, 1800)).tpot(misses(400, 40))
    pool.rates = {SignalKind.PROMPT_TOKENS: 1500.0, SignalKind.GENERATION_TOKENS: 280.0, SignalKind.FINISHED: 1.3}
    state = PoolState(Levers(2, spec.engine.max_num_seqs), ready=2)
    for tick in range(minutes * 60 // SCRAPE):
        now = float(tick * SCRAPE)
        readings = group(pool.answers(at=now), LABELS)[spec.key]
        assessment = assess(
            now=now,
            key=spec.key,
            objective=spec.objective,
            readings=readings,
            live_pods=tuple(pool.pods),
            ready_since=0.0,
            previous=assessment,
            scrape_interval_seconds=SCRAPE,
        )
        decision, memory = decide(now=now, spec=spec, assessment=assessment, pool=state, memory=memory)
        claim = Claim(spec, assessment, state, decision, memory)
        decision, memory = arbitrate(now, {spec.key: claim})[spec.key]


def test_half_an_hour_of_ticks_leaves_nothing_that_refers_to_itself():
    gc.collect()
    gc.disable()
    try:
        watch_a_tier_for(minutes=30)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_the_operator_searches_seldom_but_still_searches():
    before = gc.get_threshold()
    try:
        search_seldom()
        assert gc.isenabled()
        assert all(now > by_python for now, by_python in zip(gc.get_threshold()[::2], (700, 10), strict=True))
    finally:
        gc.set_threshold(*before)
