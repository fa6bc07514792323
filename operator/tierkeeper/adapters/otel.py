"""The tracer by the OpenTelemetry SDK: spans are queued, and one thread sends them by OTLP over HTTP.

Only ``adapters.tracing`` imports it, and only where a collector is named.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from tierkeeper import __version__
from tierkeeper.ports import ApiError, Attributes, MetricsError, P, Span

log = logging.getLogger(__name__)

QUEUE_SPANS = 16_384
"""Spans that wait for the collector, unless OTEL_BSP_MAX_QUEUE_SIZE says otherwise; more than these are dropped.

A tick has two spans a tier at once: the SDK's own 2,048 would not hold those of 1,024 tiers. About 1.5 kB each.
"""


class OtelTracer:
    """See the module. Raises ValueError where an OTEL_* variable cannot be read."""

    def __init__(self, *, instance: str, where: str) -> None:
        known = Resource(
            {
                "service.name": "tierkeeper",
                "service.version": __version__,
                "service.instance.id": instance,
            }
        )
        size = None if "OTEL_BSP_MAX_QUEUE_SIZE" in os.environ else QUEUE_SPANS
        self._provider = TracerProvider(resource=known.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_Told(OTLPSpanExporter(), where), max_queue_size=size))
        self._tracer = self._provider.get_tracer("tierkeeper", __version__)
        # It has said what it had to say of its variables; from here on it would write a line a batch.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)

    @contextmanager
    def span(self, name: str, *, below: object = None, seconds_ago: float = 0.0) -> Iterator[Span]:
        """See ``ports.Tracer``."""
        context = None
        if isinstance(below, trace.SpanContext):
            context = trace.set_span_in_context(trace.NonRecordingSpan(below))
        began = time.time_ns() - round(seconds_ago * 1e9)
        with self._tracer.start_as_current_span(name, context=context, start_time=began) as span:
            try:
                yield _Shown(span)
            except Exception as error:
                span.set_attribute("error.type", _kind(error))
                raise

    def here(self) -> object:
        """See ``ports.Tracer``."""
        context = trace.get_current_span().get_span_context()
        return context if context.is_valid else None

    def close(self) -> None:
        """Send what waits. Blocks for as long as the collector lets it."""
        self._provider.shutdown()


class _Shown:
    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def tell(self, words: Callable[P, Attributes], *args: P.args, **kwargs: P.kwargs) -> None:
        if self._span.is_recording():
            self._span.set_attributes(words(*args, **kwargs))

    def fail(self, reason: str, message: str) -> None:
        self._span.set_attribute("error.type", reason)
        self._span.set_status(trace.StatusCode.ERROR, message)


def _kind(error: Exception) -> str:
    if isinstance(error, ApiError | MetricsError):
        return str(error.reason)
    return type(error).__name__


class _Told(SpanExporter):
    """Says once that the collector does not take the spans, and once that it does again."""

    def __init__(self, inner: SpanExporter, where: str) -> None:
        self._inner = inner
        self._where = where
        self._delivered = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        delivered = result is SpanExportResult.SUCCESS
        if delivered != self._delivered:
            self._delivered = delivered
            if delivered:
                log.info("%s takes spans again", self._where)
            else:
                log.warning("%s does not take spans: they are dropped until it does; decisions go on", self._where)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)
