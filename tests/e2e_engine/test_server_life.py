"""The life of a server: plugins through a real entry point, shutdown, death."""

import asyncio
import sys
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from e2e.engine.plugins import load_general_plugins
from tierkeeper.plugin import plugin_source
from tierkeeper.render.pool import ENTRY_POINTS, PACKAGE_METADATA, PLUGIN

ALL_ALONG = 100
"""Tokens of an answer, 1.5 s: one that is under way whatever is asked meanwhile, on a machine that stumbles too."""
STAND_IN = """
import importlib.metadata, pathlib
from prometheus_client import Gauge

def register():
    assert importlib.metadata.version("vllm") == "0.32.0"
    from vllm.v1.core.sched.scheduler import Scheduler
    gauge = Gauge("plugin_applied_cap", "the cap that the plugin set")
    original = Scheduler.schedule

    def schedule(self, *args, **kwargs):
        self.max_num_active_reqs = int(pathlib.Path("{limit}").read_text())
        gauge.set(self.max_num_active_reqs)
        return original(self, *args, **kwargs)

    Scheduler.schedule = schedule
"""


def install_plugin(folder: Path, limit: Path) -> None:
    """A module and its entry point, as files in a folder on PYTHONPATH."""
    (folder / "live_cap.py").write_text(STAND_IN.replace("{limit}", str(limit)))
    info = folder / "live_cap-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: live-cap\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\nlive_cap = live_cap:register\n")


async def gauge(session: aiohttp.ClientSession, url: str, name: str) -> float:
    page = await (await session.get(f"{url}/metrics")).text()
    return next(f.samples[0].value for f in text_string_to_metric_families(page) if f.name == name)


async def becomes(session: aiohttp.ClientSession, url: str, name: str, expected: float) -> None:
    """Waits until the gauge has the value; fails with the last value seen."""
    for _ in range(200):
        value = await gauge(session, url, name)
        if value == expected:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} is {value}, not {expected}")


async def stream(session: aiohttp.ClientSession, url: str, tokens: int) -> str:
    body = {"prompt": [1, 2, 3], "max_tokens": tokens, "stream": True}
    try:
        async with session.post(f"{url}/v1/completions", json=body) as response:
            return await response.text()
    except aiohttp.ClientError as error:
        return type(error).__name__


async def test_a_plugin_on_pythonpath_moves_the_cap_of_a_running_server(vllm_serve, wait_until_healthy, tmp_path):
    limit = tmp_path / "limit"
    limit.write_text("2")
    install_plugin(tmp_path, limit)
    server = vllm_serve("--max-num-seqs", "8", PYTHONPATH=str(tmp_path))
    await wait_until_healthy(server.url)
    async with aiohttp.ClientSession() as session:
        streams = [asyncio.create_task(stream(session, server.url, 2000)) for _ in range(6)]
        await becomes(session, server.url, "vllm:num_requests_waiting", 4)
        limit.write_text("5")
        await becomes(session, server.url, "vllm:num_requests_running", 5)
        assert await gauge(session, server.url, "plugin_applied_cap") == 5
        for task in streams:
            task.cancel()


async def test_the_shipped_plugin_moves_both_live_limits(vllm_serve, wait_until_healthy, tmp_path):
    limits = tmp_path / "limits"
    limits.mkdir()
    (limits / "max-num-seqs").write_text("2")
    plugin = tmp_path / "plugin"
    info = plugin / f"{PLUGIN}-1.0.dist-info"
    info.mkdir(parents=True)
    (plugin / f"{PLUGIN}.py").write_text(plugin_source())
    (info / "METADATA").write_text(PACKAGE_METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    server = vllm_serve("--max-num-seqs", "8", PYTHONPATH=str(plugin), TIERKEEPER_LIMIT_DIR=str(limits))
    await wait_until_healthy(server.url)
    async with aiohttp.ClientSession() as session:
        streams = [asyncio.create_task(stream(session, server.url, 2000)) for _ in range(6)]
        await becomes(session, server.url, "vllm:num_requests_waiting", 4)
        (limits / "max-num-seqs").write_text("5")
        (limits / "max-num-batched-tokens").write_text("128")
        await becomes(session, server.url, "vllm:num_requests_running", 5)
        await becomes(session, server.url, "tierkeeper_max_num_seqs_applied", 5)
        await becomes(session, server.url, "tierkeeper_max_num_batched_tokens_applied", 128)
        for task in streams:
            task.cancel()


async def test_sigterm_with_a_timeout_drains_and_ends_the_process_with_zero(vllm_serve, wait_until_healthy):
    server = vllm_serve("--shutdown-timeout", "20")
    await wait_until_healthy(server.url)
    async with aiohttp.ClientSession() as session:
        answer = asyncio.create_task(stream(session, server.url, ALL_ALONG))
        await becomes(session, server.url, "vllm:num_requests_running", 1)
        server.terminate()
        assert '"finish_reason":"length"' in await answer
    assert await server.exit_code() == 0


def test_a_plugin_that_vllm_plugins_does_not_name_is_not_loaded(tmp_path, monkeypatch):
    install_plugin(tmp_path, tmp_path / "limit")
    monkeypatch.syspath_prepend(tmp_path)
    load_general_plugins({"VLLM_PLUGINS": "another"})
    assert "live_cap" not in sys.modules


def test_a_plugin_that_cannot_be_loaded_is_skipped(tmp_path, monkeypatch, caplog):
    install_plugin(tmp_path, tmp_path / "limit")
    (tmp_path / "live_cap.py").write_text("raise ImportError('broken')")
    monkeypatch.syspath_prepend(tmp_path)
    load_general_plugins({})
    assert "Failed to load plugin live_cap" in caplog.text


async def test_a_stop_without_a_timeout_aborts_what_is_in_flight(living, wait_until_healthy):
    server = living()
    await wait_until_healthy(server.url)
    async with aiohttp.ClientSession() as session:
        answer = asyncio.create_task(stream(session, server.url, 2000))
        await becomes(session, server.url, "vllm:num_requests_running", 1)
        server.stop.set()
        assert '"finish_reason":"abort"' in await answer


async def test_what_comes_during_a_drain_is_aborted(living, wait_until_healthy):
    server = living(shutdown_timeout=20)
    await wait_until_healthy(server.url)
    async with aiohttp.ClientSession() as session:
        first = asyncio.create_task(stream(session, server.url, ALL_ALONG))
        await becomes(session, server.url, "vllm:num_requests_running", 1)
        server.stop.set()
        await asyncio.sleep(0)
        assert '"finish_reason":"abort"' in await stream(session, server.url, 40)
        assert '"finish_reason":"length"' in await first


async def test_what_outlives_the_shutdown_timeout_is_cut(living, wait_until_healthy):
    server = living(shutdown_timeout=0.2)
    await wait_until_healthy(server.url)
    async with aiohttp.ClientSession() as session:
        answer = asyncio.create_task(stream(session, server.url, 2000))
        await becomes(session, server.url, "vllm:num_requests_running", 1)
        server.stop.set()
        assert await answer == "ClientPayloadError"


async def test_a_dead_engine_cuts_its_streams_and_ends_its_server(living, wait_until_healthy):
    server = living(fault_endpoint=True)
    await wait_until_healthy(server.url)
    async with aiohttp.ClientSession() as session:
        answer = asyncio.create_task(stream(session, server.url, 2000))
        await becomes(session, server.url, "vllm:num_requests_running", 1)
        await session.post(f"{server.url}/engine/fault", json={"die": True})
        assert await answer == "ClientPayloadError"
    await asyncio.wait_for(server.task, 10)


async def test_the_port_refuses_connections_until_the_engine_is_ready(living):
    server = living(startup_seconds=30.0)
    await asyncio.sleep(0.1)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"{server.url}/health")
