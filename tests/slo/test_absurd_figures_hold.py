"""A number that no pool can show is unknown, as NaN is: it is named, nothing rests on it, and each text can be written.

The values are those of a wrong recording rule or a broken proxy: finite, so that no check for NaN finds them.
"""

import dataclasses
import math
import sys
from collections.abc import Iterator, Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scaling.story import tier
from tests.slo.world import P99_TTFT_1S, TTFT, Pod, Pool, look, misses
from tierkeeper.api.status import ServiceTierStatus
from tierkeeper.control.facts import Facts
from tierkeeper.control.status import build_status
from tierkeeper.scaling.decide import decide
from tierkeeper.scaling.memory import Memory
from tierkeeper.scaling.model import Levers, PoolState
from tierkeeper.slo.model import SignalState
from tierkeeper.slo.signals import LARGEST, SignalKind
from tierkeeper.tier import Objective

MOST = sys.float_info.max
BOTH = Objective(ratio=0.99, ttft_seconds=1.5, tpot_seconds=0.1)
RATES = {
    SignalKind.FINISHED: 1.3,
    SignalKind.PROMPT_TOKENS: 1500.0,
    SignalKind.GENERATION_TOKENS: 280.0,
    SignalKind.REJECTED: 0.0,
    SignalKind.PREEMPTIONS: 0.0,
}
MEANS = {
    SignalKind.QUEUE_TIME: 0.01,
    SignalKind.PREFILL_TIME: 0.1,
    SignalKind.TTFT_TIME: 0.3,
    SignalKind.PROMPT_LENGTH: 1155.0,
    SignalKind.OUTPUT_LENGTH: 211.0,
}
EDGES = ("0.05", "0.1", "1.0", "2.5", "+Inf")


def busy() -> Pool:
    return Pool().ttft(misses(400, 2))


def with_rate(kind: SignalKind, value: float) -> Pool:
    pool = busy()
    pool.rates[kind] = value
    return pool


def with_mean(kind: SignalKind, total: float) -> Pool:
    pool = busy()
    pool.means[kind] = total, 1.3
    return pool


ABSURD = {
    "running of pod gold-a is 1e+308": Pool(pods={"gold-a": Pod(running=1e308)}).ttft(misses(400, 2)),
    "waiting of pod gold-b is 1e+16": Pool(pods={"gold-a": Pod(), "gold-b": Pod(waiting=1e16)}).ttft(misses(400, 2)),
    "requests[60s] is 1.66667e+306": Pool(requests={60: 1e308, 300: 400.0}).ttft(misses(400, 2)),
    "preemptions[60s] is 1e+308": with_rate(SignalKind.PREEMPTIONS, 1e308),
    "queueTime[60s] is 1e+308": with_mean(SignalKind.QUEUE_TIME, 1e308),
    f"in {TTFT} the bucket at +Inf counts 1e+308": Pool().ttft({"1.0": 400.0, "2.5": 400.0, "+Inf": 1e308}),
    f"in {TTFT} the bucket at 1 s counts 1e+16": Pool().ttft({"1.0": 1e16, "2.5": 1e16, "+Inf": 1e16}),
}


@pytest.mark.parametrize("said", ABSURD)
def test_a_finite_figure_that_no_pool_can_show_is_refused_with_its_signal_and_value(said):
    seen = look(ABSURD[said])
    assert (seen.state, seen.reason) == (SignalState.AMBIGUOUS, "ImplausibleValue")
    assert f"{said}, more than any pool can" in seen.message
    assert seen.message == seen.ttft.message
    assert seen.clean_since is None


def test_two_figures_whose_sum_is_infinite_are_refused_and_one_of_them_named():
    seen = look(Pool(pods={"gold-a": Pod(waiting=MOST), "gold-b": Pod(waiting=MOST)}).ttft(misses(400, 2)))
    assert (seen.state, seen.reason) == (SignalState.AMBIGUOUS, "ImplausibleValue")
    assert "waiting of pod gold-a is 1.79769e+308" in seen.message


def test_many_figures_that_are_plausible_each_are_so_together():
    pool = Pool(pods={f"gold-{n}": Pod(running=LARGEST) for n in range(3)}).ttft(misses(400, 2))
    assert look(pool).state is SignalState.OK


def test_a_rate_of_next_to_nothing_is_none_and_not_divided_by():
    pool = with_rate(SignalKind.FINISHED, 5e-324)
    pool.means[SignalKind.TTFT_TIME] = 0.3, 5e-324
    seen = look(pool)
    assert seen.state is SignalState.OK
    assert (seen.traffic.finished_per_second, seen.traffic.mean_ttft_seconds) == (0.0, None)


@pytest.mark.parametrize("le", ["-Inf", "-1e+308", "-0.5", "1e+308", "NaN", "soon"])
def test_an_edge_that_no_latency_can_have_makes_no_histogram(le):
    seen = look(Pool().ttft({le: 200.0, "1.0": 390.0, "+Inf": 400.0}))
    assert (seen.state, seen.reason) == (SignalState.AMBIGUOUS, "MalformedHistogram")
    assert f"le={le!r}" in seen.message


def test_an_edge_at_zero_is_one():
    assert look(Pool().ttft({"0.0": 0.0, **misses(400, 2)}), objective=P99_TTFT_1S).state is SignalState.OK


class Chaos:
    """Pools in which each figure is now and then any finite float at all, by one seed."""

    def __init__(self, rng: Random, wild: float) -> None:
        self.rng, self.wild = rng, wild

    def figure(self, usual: float) -> float:
        rng = self.rng
        if rng.random() >= self.wild:
            return usual
        return rng.choice([0.0, -1.0, 5e-324, 1e-300, 1e-9, LARGEST, MOST, rng.random(), 10 ** rng.uniform(-323, 308)])

    def counts(self) -> Mapping[str, float]:
        counts = [self.figure(usual) for usual in (300.0, 390.0, 400.0, 400.0, 400.0)]
        return dict(zip(EDGES, sorted(counts) if self.rng.random() < 0.7 else counts, strict=True))

    def pool(self) -> Pool:
        one = self.figure
        pods = {
            f"gold-{n}": Pod(one(4.0), one(self.rng.choice([0.0, 20.0])), one(0.0), one(0.3), one(5.0))
            for n in range(self.rng.choice([1, 2]))
        }
        pool = Pool(pods=pods, requests={60: one(80.0), 300: one(400.0)})
        pool.rates = {kind: one(usual) for kind, usual in RATES.items()}
        pool.means = {kind: (one(1.3 * usual), one(1.3)) for kind, usual in MEANS.items()}
        windows = [60, 300, 1800, 21600, BOTH.window_days * 86400]
        return pool.ttft(self.counts(), windows).tpot(self.counts(), windows)


def texts_of_ticks(rng: Random) -> Iterator[str]:
    """All that is written of a tier: some good ticks, in which its speed is learned, and then any figures."""
    spec = dataclasses.replace(tier(tokens=rng.choice([None, (256, 2048)])), objective=BOTH)
    tokens = spec.scaling.max_num_batched_tokens
    levers, memory, before = Levers(2, 16, tokens.max if tokens else None), Memory.fresh(6_000.0), None
    good = rng.choice([0, 12])
    for tick in range(good + 6):
        now, pool = 10_000.0 + 15 * tick, Chaos(rng, 0.0 if tick < good else rng.choice([0.02, 0.1, 0.3])).pool()
        before = look(pool, objective=BOTH, now=now, previous=before)
        shown = PoolState(levers, ready=len(pool.pods))
        decision, memory = decide(now=now, spec=spec, assessment=before, pool=shown, memory=memory)
        levers = decision.levers
        facts = Facts(generation=1, now=now, spec=spec, assessment=before, decision=decision)
        yield build_status(facts, old=ServiceTierStatus(), now_iso="2026-01-01T00:00:00Z").model_dump_json()
        yield from (before.message, decision.message, *(slo.message for slo in before.slos.values()))
        assert all(math.isfinite(figure) for figure in decision.inputs.values())


@settings(max_examples=150)
@given(st.randoms(use_true_random=True))
def test_whatever_finite_figures_come_in_every_text_of_the_tier_can_be_written(rng):
    for text in texts_of_ticks(rng):
        assert not {"inf", "nan"}.intersection(text.split())
