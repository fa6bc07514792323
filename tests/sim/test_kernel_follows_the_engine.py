"""The engine's rules, one at a time, with numbers that can be worked by hand."""

import math

import pytest

from tests.sim.pools import arrivals, config, pool
from tierkeeper.engine.latency import Profile
from tierkeeper.sim.model import Status


def done(requests, settings=None, **changes):
    chosen = pool(requests, settings or config(), **changes)
    chosen.advance(math.inf)
    return chosen.outcomes()


def step(*, batch: int, context: int, prefill: int = 0) -> float:
    """Seconds of one step of the pools in these tests."""
    return 0.010 + 0.0001 * batch + 1e-6 * context + 0.0001 * prefill


def test_a_lone_request_pays_its_prefill_then_a_step_a_token():
    seen = done(arrivals((5.0, 300, 3)))
    assert seen.queue_seconds[0] == 0.0
    assert seen.ttft[0] == pytest.approx(step(batch=1, context=300, prefill=300))
    assert seen.tpot[0] == pytest.approx((step(batch=1, context=301) + step(batch=1, context=302)) / 2)
    assert seen.finish[0] == pytest.approx(5.0 + seen.ttft[0] + 2 * seen.tpot[0])


def test_a_long_prompt_is_taken_in_by_chunks_of_the_token_budget():
    seen = done(arrivals((0.0, 1100, 1)))
    chunks = [step(batch=0, context=0, prefill=512)] * 2 + [step(batch=1, context=1100, prefill=76)]
    assert seen.ttft[0] == pytest.approx(sum(chunks))


def test_decoding_sequences_take_their_share_of_the_budget_first():
    seen = done(arrivals((0.0, 10, 50), (0.005, 20, 1)), max_num_batched_tokens=11)
    first = step(batch=1, context=10, prefill=10)
    chunks = step(batch=1, context=11, prefill=10) + step(batch=2, context=12 + 20, prefill=10)
    assert seen.ttft[1] == pytest.approx(first + chunks - 0.005)


def test_a_request_of_one_token_ends_with_its_prefill_and_has_no_tpot():
    seen = done(arrivals((0.0, 10, 1)))
    assert seen.status[0] == Status.FINISHED
    assert seen.finish[0] == seen.ttft[0]
    assert math.isnan(seen.tpot[0])


def test_a_request_waits_for_the_step_under_way_when_a_slot_is_free():
    seen = done(arrivals((0.0, 10, 100), (0.5, 10, 1)))
    ends = [step(batch=1, context=10, prefill=10)]
    while ends[-1] < 0.5:
        ends.append(ends[-1] + step(batch=1, context=10 + len(ends)))
    assert seen.queue_seconds[1] == pytest.approx(ends[-1] - 0.5)


def test_requests_of_one_instant_share_the_first_step():
    seen = done(arrivals((1.0, 100, 1), (1.0, 50, 1)))
    assert seen.ttft == pytest.approx(step(batch=2, context=150, prefill=150))


def test_beyond_the_cap_the_first_to_come_is_the_first_served():
    seen = done(arrivals((0.0, 10, 30), (0.1, 10, 30), (0.2, 10, 30)), max_num_seqs=1)
    assert seen.finish[0] + step(batch=1, context=10, prefill=10) == pytest.approx(0.1 + seen.ttft[1])
    assert seen.queue_seconds[1] == pytest.approx(seen.finish[0] - 0.1)
    assert seen.queue_seconds[2] == pytest.approx(seen.finish[1] - 0.2)


def test_a_prompt_waits_until_the_kv_cache_has_room_for_all_of_it():
    seen = done(arrivals((0.0, 60, 20), (0.001, 60, 20)), config(kv_tokens=100))
    assert seen.queue_seconds[1] == pytest.approx(seen.finish[0] - 0.001)
    assert seen.preemptions.tolist() == [0, 0]


def test_when_the_kv_cache_is_full_the_newest_is_computed_anew():
    seen = done(arrivals((0.0, 40, 30), (0.0, 40, 30)), config(kv_tokens=100))
    assert seen.preemptions.tolist() == [0, 1]
    # Both have 11 tokens when the next step would need 102 of 100: the second stops until the first has ended.
    assert seen.status.tolist() == [Status.FINISHED, Status.FINISHED]
    anew = step(batch=1, context=51, prefill=51)
    rest = sum(step(batch=1, context=context) for context in range(52, 70))
    assert seen.finish[1] == pytest.approx(seen.finish[0] + anew + rest)
    assert seen.ttft[0] == seen.ttft[1]


def test_a_request_that_could_never_fit_is_rejected():
    seen = done(arrivals((0.0, 90, 12), (0.0, 90, 11)), config(kv_tokens=100))
    assert seen.status.tolist() == [Status.REJECTED, Status.FINISHED]
    assert math.isnan(seen.ttft[0])
    assert math.isnan(seen.finish[0])


def test_a_full_queue_rejects():
    rows = [(0.0, 10, 50), (0.1, 10, 50), (0.2, 10, 50)]
    seen = done(arrivals(*rows), config(max_queued_requests=1), max_num_seqs=1)
    assert seen.status.tolist() == [Status.FINISHED, Status.FINISHED, Status.REJECTED]


def test_the_replica_with_the_least_requests_gets_the_next_one():
    seen = done(arrivals((0.0, 10, 500), (0.1, 10, 1), (0.2, 10, 1), (0.3, 10, 1)), replicas=2)
    assert seen.replica.tolist() == [0, 1, 1, 1]


def test_round_robin_looks_at_no_load():
    rows = [(0.0, 10, 500), (0.1, 10, 1), (0.2, 10, 1), (0.3, 10, 1)]
    assert done(arrivals(*rows), config(routing="round-robin"), replicas=2).replica.tolist() == [0, 1, 0, 1]


def test_random_routing_gives_each_replica_its_part():
    rows = [(float(second), 10, 1) for second in range(3000)]
    counts = [done(arrivals(*rows), config(routing="random"), replicas=3).replica.tolist().count(n) for n in range(3)]
    assert all(900 < count < 1100 for count in counts)


MOCKER = Profile("as probed", 0.0185, 0.0001, 0.15e-6, 80e-6)


def test_the_probed_steps_of_nvidias_mocker_are_met():
    chosen = pool(arrivals((0.0, 1000, 3)), config(profile=MOCKER, mocker_rules=True))
    walls = []
    for moment in (0.041, 0.041 + 0.058, 0.041 + 0.058 + 0.0188):
        chosen.advance(moment)
        walls.append(chosen.pages()[0].step.wall_seconds)
    assert walls[0] == pytest.approx(0.040960)  # 512 prefill tokens that end no prompt: no base
    assert walls[1] == pytest.approx(488 * 80e-6 + 0.0185 + 0.0001 + 1000 * 0.15e-6)
    assert walls[2] == pytest.approx(0.018752, abs=3e-6)  # one sequence at 1,001 KV tokens


def test_the_mocker_decodes_in_a_millisecond_at_least():
    quick = Profile("quick", 0.0001, 0.0, 0.0, 0.0)
    seen = done(arrivals((0.0, 10, 11)), config(profile=quick, mocker_rules=True))
    assert seen.finish[0] == pytest.approx(0.011)
