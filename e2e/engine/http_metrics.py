"""The ``http_*`` families of vLLM's ``/metrics``, and the middleware that fills them."""

import time

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, Summary

UNCOUNTED = frozenset({"/metrics", "/health", "/load", "/ping", "/version", "/server_info"})
_FINE_EDGES = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60,
)  # fmt: skip
_COARSE_EDGES = (0.1, 0.5, 1)


class HttpMetrics:
    """Counts requests by handler, method and status class."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        one, two = ("handler",), ("handler", "method")
        self._requests = Counter(
            "http_requests",
            "Requests by handler, method and status class",
            ("handler", "method", "status"),
            registry=registry,
        )
        self._request_size = Summary("http_request_size_bytes", "Bytes of request bodies", one, registry=registry)
        self._response_size = Summary("http_response_size_bytes", "Bytes of response bodies", one, registry=registry)
        self._fine = Histogram(
            "http_request_duration_highr_seconds", "Duration, fine edges", buckets=_FINE_EDGES, registry=registry
        )
        self._coarse = Histogram(
            "http_request_duration_seconds", "Duration by handler", two, buckets=_COARSE_EDGES, registry=registry
        )

    @property
    def middleware(self) -> Middleware:
        """An aiohttp middleware; requests whose client went away are not counted."""

        @web.middleware
        async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.path in UNCOUNTED:
                return await handler(request)
            start = time.monotonic()
            response = await handler(request)
            self._observe(request, response, time.monotonic() - start)
            return response

        return count

    def _observe(self, request: web.Request, response: web.StreamResponse, seconds: float) -> None:
        resource = request.match_info.route.resource
        handler = "none" if resource is None else resource.canonical
        self._requests.labels(handler, request.method, f"{response.status // 100}xx").inc()
        self._request_size.labels(handler).observe(request.content_length or 0)
        self._response_size.labels(handler).observe(response.content_length or 0)
        self._fine.observe(seconds)
        self._coarse.labels(handler, request.method).observe(seconds)
