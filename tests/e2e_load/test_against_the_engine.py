"""Load generator and engine together on loopback: two clocks that must agree."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from e2e.engine.config import EngineConfig
from e2e.engine.profiles import PROFILES
from e2e.engine.scheduler import SchedulerConfig
from e2e.engine.server import EngineServer
from e2e.load import LoadPlan, LoadReport, Phase, Status, TargetPlan, Trace, run
from e2e.load.trace import TracePoint

ROUNDS = 5
LABELS = {"model_name": "tiny", "engine": "0"}
SHORT = Trace((TracePoint(0.7, 60, 6), TracePoint(0.3, 30, 1), TracePoint(1.0, 90, 12)))


@asynccontextmanager
async def engine(**changes: object) -> AsyncIterator[tuple[EngineServer, str]]:
    config = EngineConfig("tiny", ("tiny",), "", 0, SchedulerConfig(8, 256), PROFILES["fast"], 1024, num_blocks=4096)
    server = EngineServer(replace(config, **changes), CollectorRegistry())  # type: ignore[arg-type]
    runner = web.AppRunner(server.application(), handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    loop = asyncio.create_task(server.loop.run())
    try:
        yield server, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        loop.cancel()
        with suppress(asyncio.CancelledError):
            await loop
        await runner.cleanup()


def plan(url: str, *, rate: float = 40, seconds: float = 1.0, **options: object) -> LoadPlan:
    target = TargetPlan("gold", url, "tiny", [Phase(seconds, rate_per_s=rate)])
    return LoadPlan(SHORT, [target], **options)  # type: ignore[arg-type]


async def test_client_and_engine_count_the_same_and_measure_alike():
    async with engine() as (server, url):
        sample = server.registry.get_sample_value
        rounds = []
        # Once more, all counted together, while a stall of the machine between the two clocks is more than a tenth.
        while len(rounds) < ROUNDS and not (rounds and _measure_alike(rounds, sample)):
            rounds.append((await run(plan(url))).targets["gold"])
        count = sum(map(len, rounds))
        assert sum(gold.count(Status.OK) for gold in rounds) == count >= 38
        assert sample("vllm:time_to_first_token_seconds_count", LABELS) == count
        with_tpot = sum(len(gold.latencies("tpot")) for gold in rounds)
        assert sample("vllm:request_time_per_output_token_seconds_count", LABELS) == with_tpot
        assert sample("vllm:generation_tokens_total", LABELS) == sum(sum(gold.tokens) for gold in rounds)
        assert _measure_alike(rounds, sample)
        # The client also waits for the connection and the last hop, never less than the engine itself measured.
        client = sum(sum(gold.ttft) for gold in rounds)
        assert client >= sample("vllm:time_to_first_token_seconds_sum", LABELS)


def _measure_alike(rounds, sample):
    client = sum(sum(gold.latencies("tpot")) for gold in rounds)
    engine = sample("vllm:request_time_per_output_token_seconds_sum", LABELS)
    return client == pytest.approx(engine, rel=0.1)


async def test_arrivals_do_not_wait_for_answers():
    async with engine() as (server, url):
        server.loop.hang(True)
        report = await run(plan(url, seconds=0.5, drain_s=0.1))
        gold = report.targets["gold"]
        assert gold.count(Status.TIMEOUT) == len(gold) >= 18


async def test_what_exceeds_the_bound_is_counted_as_not_sent():
    async with engine() as (server, url):
        server.loop.hang(True)
        gold = (await run(plan(url, seconds=0.5, drain_s=0.1, max_in_flight=5))).targets["gold"]
        assert gold.count(Status.NOT_SENT) == len(gold) - 5


async def test_rejections_are_told_from_errors():
    async with engine(max_num_queued_reqs=3) as (server, url):
        server.loop.hang(True)
        gold = (await run(plan(url, seconds=0.5, drain_s=1))).targets["gold"]
        assert (gold.count(Status.REJECTED), gold.errors["HTTP 503"]) == (len(gold) - 3, len(gold) - 3)


async def test_a_killed_engine_cuts_streams():
    async with engine(slow_factor=50.0) as (server, url):
        running = asyncio.create_task(run(plan(url, seconds=0.3, drain_s=5)))
        while len(server.core.scheduler.running) < 8:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        server.cut_all()
        gold = (await running).targets["gold"]
        assert gold.count(Status.CUT) + gold.count(Status.OK) + gold.count(Status.ERROR) == len(gold)
        assert gold.count(Status.CUT) > 0


async def test_a_dead_port_is_an_error():
    async with engine() as (_, url):
        pass
    gold = (await run(plan(url, seconds=0.2))).targets["gold"]
    assert gold.count(Status.ERROR) == len(gold) > 0


async def test_a_foreign_address_is_refused_before_anything_is_sent():
    report = LoadReport.for_targets(["gold"])
    with pytest.raises(ValueError, match=r"198\.18\.0\.0/15"):
        await run(plan("http://10.1.2.3:8000"), report=report)
    assert len(report.targets["gold"]) == 0


async def test_a_watcher_is_called_every_second():
    seen: list[float] = []
    async with engine() as (_, url):
        plan_ = plan(url, seconds=1.2)
        report = await run(plan_, on_second=lambda now: seen.append(now.window(1)["gold"].arrivals_per_s))
    assert 1 <= len(seen) <= report.elapsed
    assert seen[0] > 0
