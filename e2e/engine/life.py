"""The life of the server: start-up, serving, shutdown."""

import asyncio
import logging
import signal
import sys

from aiohttp import web
from prometheus_client import REGISTRY, CollectorRegistry

from e2e.engine.config import EngineConfig
from e2e.engine.server import EngineServer

logger = logging.getLogger("vllm.api_server")
_DRAIN_POLL_SECONDS = 0.05
# How soon a step gets the interpreter back from the thread that renders /metrics; Python's default of 5 ms would show
# as lateness.
_THREAD_SWITCH_SECONDS = 0.0005


async def serve(config: EngineConfig) -> int:
    """Serves until SIGTERM or SIGINT, or until the engine dies; the exit code is 0 either way (vllm#48966)."""
    sys.setswitchinterval(_THREAD_SWITCH_SECONDS)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve_until(stop, config)
    return 0


async def serve_until(stop: asyncio.Event, config: EngineConfig, registry: CollectorRegistry = REGISTRY) -> None:
    """Serves until the event is set or the engine dies. The port refuses connections for ``startup_seconds``."""
    if await _happens(stop, config.startup_seconds):
        return
    server = EngineServer(config, registry)
    runner = web.AppRunner(server.application(), handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, config.host, config.port, backlog=1024).start()
    logger.info("Serving %s on port %d with profile %s", config.model, config.port, config.profile)
    engine = asyncio.create_task(server.loop.run())
    engine.add_done_callback(lambda _: server.died.set())
    await _first(stop, server.died)
    if server.died.is_set():
        server.cut_all()
        error = engine.exception() if engine.done() else None
        logger.error("EngineDeadError: the engine is dead", exc_info=error)
    else:
        await _shut_down(server)
    engine.cancel()
    await runner.cleanup()


async def _shut_down(server: EngineServer) -> None:
    """No timeout: aborts what is in flight. With one: lets it finish, aborts new requests, cuts what is left."""
    timeout = server.config.shutdown_timeout
    logger.info("Shutdown: %d requests in flight, timeout %s s", len(server.in_flight), timeout)
    server.shutting_down = True
    if timeout == 0:
        server.abort_all()
        return
    deadline = asyncio.get_running_loop().time() + timeout
    while server.in_flight and asyncio.get_running_loop().time() < deadline and not server.died.is_set():
        await asyncio.sleep(_DRAIN_POLL_SECONDS)
    server.cut_all()


async def _happens(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event is set within the time."""
    if seconds <= 0:
        return event.is_set()
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


async def _first(*events: asyncio.Event) -> None:
    """Returns when one of the events is set."""
    tasks = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
