"""/metrics, /healthz and /readyz over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from tierkeeper.obs.health import Health


@contextlib.asynccontextmanager
async def serving(
    *, registry: CollectorRegistry, health: Health, metrics_port: int, health_port: int
) -> AsyncIterator[tuple[int, int]]:
    """Serve until the block ends; yields the ports in use (0 asks for a free one). Raises OSError for a taken port."""
    async with contextlib.AsyncExitStack() as stack:
        metrics = await stack.enter_async_context(_listening(_metrics_app(registry), metrics_port))
        pages = await stack.enter_async_context(_listening(_health_app(health), health_port))
        yield metrics, pages


@contextlib.asynccontextmanager
async def _listening(app: web.Application, port: int) -> AsyncIterator[int]:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
        yield int(min(runner.addresses, key=len)[1])  # of "any free port" the IPv4 one, whose address is a pair
    finally:
        await runner.cleanup()


def _metrics_app(registry: CollectorRegistry) -> web.Application:
    async def metrics(_: web.Request) -> web.Response:
        # In a thread: the page of a thousand tiers takes a second, and the loop and the health pages go on meanwhile.
        page = await asyncio.to_thread(generate_latest, registry)
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    return app


def _health_app(health: Health) -> web.Application:
    async def live(_: web.Request) -> web.Response:
        return web.Response(text=health.report() + "\n", status=200 if health.live else 503)

    async def ready(_: web.Request) -> web.Response:
        return web.Response(text=health.report() + "\n", status=200 if health.ready else 503)

    app = web.Application()
    app.router.add_get("/healthz", live)
    app.router.add_get("/readyz", ready)
    return app
