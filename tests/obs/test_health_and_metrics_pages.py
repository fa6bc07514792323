"""What probes and Prometheus see of the operator itself."""

import aiohttp
import pytest

from tests.fakes.edges import FakeClock
from tierkeeper.obs.health import Health
from tierkeeper.obs.metrics import Metrics
from tierkeeper.obs.server import serving


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def health(clock):
    return Health(clock, stale_seconds=60)


def test_a_process_that_has_just_started_lives_but_does_not_serve_yet(health):
    assert health.live
    assert not health.ready
    assert health.report() == "watching has not caught up yet"


def test_it_serves_once_the_cluster_has_been_seen_whatever_prometheus_does(health):
    health.populated = True
    assert health.ready


def test_a_loop_that_stops_beating_is_named_and_asks_for_a_restart(health, clock):
    health.populated = True
    health.beat("slo loop")
    clock.advance(59)
    assert health.live
    clock.advance(2)
    assert not health.live
    assert health.report() == "slo loop silent for 61 s"


def test_a_standby_is_ready_because_it_could_take_over(health):
    health.standing_by = True
    assert health.ready
    assert health.report() == "standing by: another replica leads"


async def test_the_pages_answer_over_http(health):
    metrics = Metrics()
    metrics.tiers.set(3)
    async with (
        serving(registry=metrics.registry, health=health, metrics_port=0, health_port=0) as (own, pages),
        aiohttp.ClientSession() as http,
    ):
        async with http.get(f"http://127.0.0.1:{own}/metrics") as page:
            assert "tierkeeper_tiers 3.0" in await page.text()
        async with http.get(f"http://127.0.0.1:{pages}/healthz") as page:
            assert page.status == 200
        async with http.get(f"http://127.0.0.1:{pages}/readyz") as page:
            assert page.status == 503
