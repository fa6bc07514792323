"""The HTTP surface of one engine."""

import asyncio
import importlib.metadata
import json
import time
import uuid

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

from e2e.engine.config import EngineConfig
from e2e.engine.core import EngineCore
from e2e.engine.http_metrics import HttpMetrics
from e2e.engine.loop import EngineLoop, Lateness
from e2e.engine.metrics import EngineMetrics
from e2e.engine.openai import ApiError, Chat, Completions, Dialect, parse
from e2e.engine.scheduler import KVCache, Request, Scheduler
from e2e.engine.sinks import Stream, Whole

BUSY = "The engine is busy and takes no new requests now. Try again later or on another instance."


class EngineServer:
    """One model behind vLLM's HTTP surface."""

    def __init__(self, config: EngineConfig, registry: CollectorRegistry = REGISTRY) -> None:
        """``registry``: what /metrics serves; plugins add to the default one."""
        self.config = config
        self.registry = registry
        kv_cache = KVCache(num_blocks=config.num_blocks, block_size=config.profile.block_size)
        scheduler = Scheduler(config.scheduler, kv_cache, has_active_cap=config.version >= (0, 31))
        self.core = EngineCore(scheduler, config.profile, max_model_len=config.max_model_len)
        self.metrics = EngineMetrics(config, registry)
        self.loop = EngineLoop(self.core, self.metrics, Lateness(registry), slow_factor=config.slow_factor)
        self.in_flight: dict[Request, asyncio.Transport | None] = {}
        self.shutting_down = False
        self.died = asyncio.Event()

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application(
            middlewares=[HttpMetrics(self.registry).middleware, self._errors], client_max_size=64 * 2**20
        )
        app.router.add_post(Completions.path, self._completions)
        app.router.add_post(Chat.path, self._chat)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_route("*", "/ping", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/load", self._load)
        app.router.add_get("/metrics", self._metrics)
        if self.config.fault_endpoint:
            app.router.add_post("/engine/fault", self._fault)
        return app

    def abort_all(self) -> None:
        """Ends every request in flight with the finish reason ``abort``."""
        for request in list(self.in_flight):
            self.core.abort(request)
            if request.sink is not None:
                request.sink.finish("abort")

    def cut_all(self) -> None:
        """Closes every connection in the middle of its answer, as a killed engine does."""
        for transport in list(self.in_flight.values()):
            if transport is not None:
                transport.abort()

    @web.middleware
    async def _errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if self.config.api_keys and request.path.startswith("/v1"):
                scheme, _, key = request.headers.get("Authorization", "").partition(" ")
                if scheme != "Bearer" or key not in self.config.api_keys:
                    raise ApiError(401, "Unauthorized", "AuthenticationError")
            return await handler(request)
        except ApiError as error:
            return web.Response(status=error.status, body=error.body(), content_type="application/json")

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, Completions)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, Chat)

    async def _generate(self, http: web.Request, dialect_type: type[Dialect]) -> web.StreamResponse:
        arrival = time.monotonic()
        ask = parse(
            await http.read(),
            chat=dialect_type is Chat,
            served=self.config.served_names,
            max_model_len=self.config.max_model_len,
        )
        self._admit()
        request = Request(uuid.uuid4().hex, ask.prompt_tokens, ask.max_tokens, arrival)
        dialect = dialect_type(request.request_id, ask)
        self.in_flight[request] = http.transport
        try:
            return await (self._stream if ask.stream else self._answer)(http, request, dialect)
        finally:  # also when the client went away, which cancels this task
            self.in_flight.pop(request)
            if request.finish_reason is None:
                self.core.abort(request)
                self.metrics.set_gauges(self.core)

    def _admit(self) -> None:
        """Raises ApiError 503 when a queue cap is reached; the limits count as vLLM's do."""
        requests, tokens = self.config.max_num_queued_reqs, self.config.max_num_queued_tokens
        if requests is not None and len(self.in_flight) >= requests:
            self.metrics.record_rejection("max_num_queued_reqs")
        elif tokens is not None and self.core.queued_prompt_tokens >= tokens:
            self.metrics.record_rejection("max_num_queued_tokens")
        else:
            return
        raise ApiError(503, BUSY, "Service Unavailable")

    def _submit(self, request: Request, sink: Whole) -> None:
        request.sink = sink
        if self.shutting_down:
            request.finish_reason = "abort"
            sink.finish("abort")
        else:
            self.core.add(request)
            self.loop.wake()

    async def _stream(self, http: web.Request, request: Request, dialect: Dialect) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        response.enable_chunked_encoding()
        await response.prepare(http)
        if http.transport is None:
            raise ConnectionResetError("the client is gone")
        sink = Stream(dialect, http.transport)
        self._submit(request, sink)
        await sink.done
        return response

    async def _answer(self, _: web.Request, request: Request, dialect: Dialect) -> web.StreamResponse:
        sink = Whole()
        self._submit(request, sink)
        reason = await sink.done
        return web.Response(body=dialect.full(reason, sink.output_tokens), content_type="application/json")

    async def _models(self, _: web.Request) -> web.StreamResponse:
        models = [
            {
                "id": name,
                "object": "model",
                "created": int(time.time()),
                "owned_by": "vllm",
                "root": self.config.model,
                "parent": None,
                "max_model_len": self.config.max_model_len,
            }
            for name in self.config.served_names
        ]
        return web.json_response({"object": "list", "data": models})

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return web.Response()

    async def _version(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"version": importlib.metadata.version("vllm")})

    async def _load(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"server_load": len(self.in_flight)})

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        # A page takes some 10 ms of CPU; on a thread of its own it does not hold up a step.
        page = await asyncio.to_thread(generate_latest, self.registry)
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _fault(self, http: web.Request) -> web.StreamResponse:
        """``{"hang": bool}``, ``{"slow_factor": number}`` and ``{"die": true}``, alone or together."""
        order = json.loads(await http.read())
        if "hang" in order:
            self.loop.hang(bool(order["hang"]))
        if "slow_factor" in order:
            self.loop.slow_factor = float(order["slow_factor"])
        if order.get("die"):
            self.died.set()
        return web.json_response(order)
