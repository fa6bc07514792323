"""What a peer reads from the scraped series is what Prometheus would answer it."""

from __future__ import annotations

import dataclasses

import pytest

from tests.scaling.story import KEY, tier
from tests.sim.pages import COLUMNS, page
from tierkeeper.scaling.model import Levers, PoolState
from tierkeeper.sim.model import Step
from tierkeeper.sim.peers.base import Peer
from tierkeeper.sim.peers.catalog import DEFAULTS, peer
from tierkeeper.sim.peers.figures import PodLoad, Scraped, StepReport, prometheus_quantile
from tierkeeper.sim.peers.static import StaticLaw, StaticSettings
from tierkeeper.sim.policy import TierView
from tierkeeper.sim.scrape import Scraper, Scraping
from tierkeeper.slo.model import Assessment, Histogram, SignalState

HISTOGRAM = Histogram((0.5, 1.0, 2.5, float("inf")), (50.0, 90.0, 99.0, 100.0))


@pytest.mark.parametrize(
    ("q", "seconds"),
    [
        (0.25, 0.25),  # a straight line from 0
        (0.9, 1.0),
        (0.95, 1.0 + 1.5 * 5 / 9),
        (0.999, 2.5),  # the highest finite edge
    ],
)
def test_a_quantile_is_read_as_prometheus_reads_it(q, seconds):
    assert prometheus_quantile(HISTOGRAM, q) == pytest.approx(seconds)


def test_an_empty_histogram_has_no_quantile():
    assert prometheus_quantile(None, 0.99) is None
    assert prometheus_quantile(Histogram((1.0, float("inf")), (0.0, 0.0)), 0.99) is None


def view(*, ready: int = 2, draining: int = 0, state: SignalState = SignalState.OK) -> TierView:
    """A minute and a half of two pods that serve 2 requests a second each, and of one that drains."""
    scraper = Scraper(COLUMNS, Scraping(offsets=1), range_seconds=300)
    for number in range(7):
        at = 15.0 * number
        pages = [page(f"pod-{n}", requests=2 * at, running=8, waiting=n) for n in range(2)]
        pages += [page(f"pod-{2 + n}", requests=0.0, running=1, draining=True) for n in range(draining)]
        step = Step(wall_seconds=0.02, prefill_tokens=512, sequences=8, kv_tokens=9000)
        pages[0] = dataclasses.replace(pages[0], step=step)
        scraper.next_round(at)
        scraper.scrape(pages, at=at, offset=0)
    return TierView(
        spec=tier(replicas=(1, 8)),
        assessment=Assessment(KEY, state, str(state), ""),
        pool=PoolState(current=Levers(3, 16), ready=ready),
        samples=scraper.at(75.0),
    )


def test_rates_and_means_are_of_the_asked_window():
    means = Scraped(view(), 90.0).means(60)
    assert means.requests_per_second == pytest.approx(4.0)
    assert means.finished_per_second == pytest.approx(4.0)
    assert means.prompt_tokens == pytest.approx(500.0)
    assert means.output_tokens == pytest.approx(100.0)
    assert means.ttft_seconds == pytest.approx(0.97 * 0.3 + 0.03 * 1.7)
    assert means.itl_seconds == pytest.approx(0.045, rel=0.05)


def test_quantiles_are_of_the_asked_window():
    figures = Scraped(view(), 90.0)
    assert figures.ttft(0.90, 60) == pytest.approx(0.25 + 0.25 * 0.90 / 0.97)
    assert figures.tpot(0.90, 60) == pytest.approx(0.025 + 0.025 * 0.90 / 0.98)


def test_pods_that_drain_are_not_of_the_scale_target():
    assert Scraped(view(draining=1), 90.0).pods() == {
        "pod-0": PodLoad(8.0, 0.0, page("", requests=0).kv_usage),
        "pod-1": PodLoad(8.0, 1.0, page("", requests=0).kv_usage),
    }


def test_a_pod_without_a_step_reports_an_empty_one():
    assert Scraped(view(), 90.0).steps() == {
        "pod-0": StepReport(0.02, 512, 8, 9000, waiting=0),
        "pod-1": StepReport(waiting=1),
    }


def test_targets_and_pool_are_the_tiers():
    figures = Scraped(view(), 90.0)
    assert (figures.ttft_target_seconds, figures.tpot_target_seconds) == (1.5, 0.1)
    assert (figures.replicas, figures.ready, figures.max_num_seqs) == (3, 2, 16)


def test_only_a_source_that_is_down_is_out_of_reach():
    assert Scraped(view(), 90.0).reachable
    assert Scraped(view(state=SignalState.STALE), 90.0).reachable
    assert not Scraped(view(state=SignalState.SOURCE_DOWN), 90.0).reachable


def test_a_peer_moves_replicas_within_bounds_and_leaves_the_limits_alone():
    policy = peer(StaticSettings(20), name="peak")
    assert policy.decide(now=90.0, views={KEY: view()}) == {KEY: Levers(8, 16)}
    assert policy.name == "peak"


def test_each_tier_has_a_law_of_its_own():
    made = []

    def make(spec):
        made.append(spec.key)
        return StaticLaw(StaticSettings(2))

    policy = Peer("static", 15.0, make)
    other = KEY._replace(name="silver")
    for now in (15.0, 30.0):
        policy.decide(now=now, views={KEY: view(), other: view()})
    assert len(made) == 2


@pytest.mark.parametrize(
    ("name", "interval"),
    [("hpa", 15.0), ("keda", 15.0), ("kpa", 2.0), ("apa", 10.0), ("llm-d", 15.0), ("wva", 15.0), ("dynamo", 5.0)],
)
def test_every_peer_ticks_at_its_published_interval(name, interval):
    assert peer(DEFAULTS[name]).interval_seconds == interval
    assert peer(DEFAULTS[name]).name == name


@pytest.mark.parametrize("name", sorted(set(DEFAULTS) - {"dynamo"}))
def test_every_peer_decides_on_a_scraped_tier(name):
    levers = peer(DEFAULTS[name]).decide(now=90.0, views={KEY: view()})[KEY]
    assert 1 <= levers.replicas <= 8
    assert levers.max_num_seqs == 16
