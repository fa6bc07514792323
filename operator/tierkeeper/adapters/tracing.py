"""Spans to a collector, if one is named: the one place that decides whether OpenTelemetry is imported at all."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from urllib.parse import urlsplit

from tierkeeper.obs.tracing import NO_TRACER
from tierkeeper.ports import Tracer

log = logging.getLogger(__name__)

FAREWELL_SECONDS = 2.0
"""For the last spans, when the operator ends. A collector that does not answer by then goes without them."""

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"


@contextlib.asynccontextmanager
async def tracing(environment: Mapping[str, str], *, instance: str) -> AsyncIterator[Tracer]:
    """A tracer for as long as the operator runs, by the standard OTEL_* variables.

    What is wrong with them is said in the log, and the operator then runs without spans: it holds promises, and a
    platform may set these variables for all pods alike.
    """
    endpoint = _first(environment, ENDPOINTS)
    if not endpoint or _is_off(environment):
        yield NO_TRACER
        return
    protocol = _first(environment, PROTOCOLS)
    if protocol not in ("", PROTOCOL):
        log.warning("no spans are sent: OTLP by %s is not there; set %s=%s", protocol, PROTOCOLS[1], PROTOCOL)
        yield NO_TRACER
        return
    try:
        from tierkeeper.adapters.otel import OtelTracer  # here alone, so that it costs nothing while tracing is off

        tracer = OtelTracer(instance=instance, where=_shown(endpoint))
    except ImportError as error:
        log.warning("no spans are sent: %s; install tierkeeper[otel]", error)
        yield NO_TRACER
        return
    except ValueError as error:
        log.warning("no spans are sent: an OTEL_* variable cannot be read: %s", error)
        yield NO_TRACER
        return
    log.info("spans of the decisions go to %s", _shown(endpoint))
    try:
        yield tracer
    finally:
        await _bounded(tracer.close)


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := environment.get(name, "").strip())), "")


def _is_off(environment: Mapping[str, str]) -> bool:
    disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return disabled or environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"


def _shown(endpoint: str) -> str:
    """The address without what may be secret in it."""
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


async def _bounded(close: Callable[[], None]) -> None:
    """Let the last spans go, in a thread of their own that the end of the process does not wait for."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def work() -> None:
        try:
            close()
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
                loop.call_soon_threadsafe(done.set)

    threading.Thread(target=work, name="last spans", daemon=True).start()
    try:
        await asyncio.wait_for(done.wait(), FAREWELL_SECONDS)
    except TimeoutError:
        log.info("the last spans were not delivered")
