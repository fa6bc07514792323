"""What pods show at /metrics adds up to what became of their requests."""

import dataclasses
import math

import numpy as np
import pytest

from tests.sim.pools import arrivals, config, poisson, pool

BUSY = poisson(seed=2, count=600, rate=30.0, prompt=80.0, output=30.0)


def cumulative(values, edges):
    return [int(np.sum(values <= edge)) for edge in edges] + [len(values)]


def test_histograms_and_sums_add_up_to_the_outcomes():
    chosen = pool(BUSY, config(ttft_thresholds=(0.3,), tpot_thresholds=(0.0123,)), replicas=3)
    chosen.advance(math.inf)
    seen, pages = chosen.outcomes(), chosen.pages()
    tpot = np.nan_to_num(seen.tpot, nan=0.0)  # vLLM counts a request of one token with 0
    assert 0.3 in pages[0].ttft_edges
    assert 0.0123 in pages[0].tpot_edges
    assert sum(page.ttft_buckets for page in pages).tolist() == cumulative(seen.ttft, pages[0].ttft_edges)
    assert sum(page.tpot_buckets for page in pages).tolist() == cumulative(tpot, pages[0].tpot_edges)
    assert sum(page.ttft_sum for page in pages) == pytest.approx(seen.ttft.sum())
    assert sum(page.tpot_sum for page in pages) == pytest.approx(tpot.sum())
    assert sum(page.itl_sum for page in pages) == pytest.approx((seen.finish - BUSY.arrival - seen.ttft).sum())
    assert sum(page.itl_buckets[-1] for page in pages) == (BUSY.output - 1).sum()
    assert sum(page.queue_time_sum for page in pages) == pytest.approx(seen.queue_seconds.sum())
    assert sum(page.prefill_time_sum for page in pages) == pytest.approx((seen.ttft - seen.queue_seconds).sum())
    assert sum(page.prompt_length_sum for page in pages) == sum(page.prompt_tokens for page in pages)
    assert sum(page.prompt_tokens for page in pages) == BUSY.prompt.sum()
    assert sum(page.generation_length_sum for page in pages) == sum(page.generation_tokens for page in pages)
    assert sum(page.generation_tokens for page in pages) == BUSY.output.sum()
    assert sum(page.finished for page in pages) == len(BUSY)


def test_tokens_are_counted_while_a_request_is_under_way():
    walls = [0.0101 + 100e-6 + 100 * 0.0001] + [0.0101 + context * 1e-6 for context in range(101, 400)]
    ends = np.cumsum(walls)
    chosen = pool(arrivals((0.0, 100, 1000)))
    shown = []
    for moment in (0.015, 0.5, 1.0, 2.0):
        chosen.advance(moment)
        shown.append(chosen.pages()[0])
    tokens = [int(np.sum(ends <= moment)) for moment in (0.015, 0.5, 1.0, 2.0)]
    assert [page.generation_tokens for page in shown] == tokens
    assert [page.itl_buckets[-1] for page in shown] == [max(0, count - 1) for count in tokens]
    assert shown[1].itl_sum == pytest.approx(sum(walls[1 : tokens[1]]))
    assert [page.ttft_buckets[-1] for page in shown] == [0, 1, 1, 1]
    assert [page.finished for page in shown] == [0, 0, 0, 0]
    assert shown[0].step is None
    assert shown[1].step.sequences == 1
    assert shown[1].step.kv_tokens == 100 + tokens[1] - 1
    assert shown[1].step.wall_seconds == pytest.approx(walls[tokens[1] - 1])


def test_counters_never_fall():
    chosen = pool(BUSY, config(kv_tokens=400), replicas=2)
    before = None
    for moment in np.arange(0.0, 25.0, 0.13):
        chosen.advance(moment)
        pages = chosen.pages()
        now = np.array([np.concatenate([counters(page), *buckets(page)]) for page in pages])
        if before is not None:
            assert (now >= before).all()
        before = now
        for page in pages:
            for row in buckets(page):
                assert (np.diff(row) >= 0).all()
    assert sum(page.preemptions for page in pages) == chosen.outcomes().preemptions.sum() > 0


def counters(page):
    gauges = ("running", "waiting", "kv_usage", "max_num_seqs", "max_num_batched_tokens", "started_at", "draining")
    names = [field.name for field in dataclasses.fields(page) if field.name not in gauges]
    return [getattr(page, name) for name in names if isinstance(getattr(page, name), int | float)]


def buckets(page):
    return page.ttft_buckets, page.tpot_buckets, page.itl_buckets


def test_a_new_pod_in_an_old_place_starts_from_zero():
    chosen = pool(arrivals((0.0, 10, 10), (200.0, 10, 1)), replicas=1)
    chosen.advance(10.0)
    chosen.set_replicas(0)
    chosen.set_replicas(1)
    chosen.advance(100.0)
    page = chosen.pages()[0]
    assert (page.name, page.started_at) == ("pod-1", 70.0)
    assert not counters(page)[0]
    assert (page.finished, page.generation_tokens, page.ttft_buckets[-1], page.step) == (0, 0, 0.0, None)


def test_pages_tell_the_limits_in_force():
    chosen = pool(arrivals((0.0, 10, 10)))
    chosen.set_limits(max_num_seqs=200)
    page = chosen.pages()[0]
    assert (page.max_num_seqs, page.max_num_batched_tokens) == (200, 512)


def test_a_pool_without_requests_shows_zeros():
    chosen = pool(arrivals())
    chosen.advance(math.inf)
    page = chosen.pages()[0]
    assert (page.running, page.waiting, page.kv_usage, page.ttft_buckets[-1]) == (0, 0, 0.0, 0.0)
    assert len(chosen.outcomes().ttft) == 0
    assert chosen.now == 0.0
