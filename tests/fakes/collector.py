"""An OTLP/HTTP collector on loopback: it decodes what real exporters send, and keeps the spans."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class Received:
    """One span as it came over the wire."""

    name: str
    trace: bytes
    id: bytes
    parent: bytes
    seconds: float
    failed: bool
    said: str
    """The message of its status."""
    attributes: dict[str, Any]
    resource: dict[str, Any]

    def is_in(self, other: "Received") -> bool:
        """Whether it is right below the other span."""
        return self.trace == other.trace and self.parent == other.id


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_plain(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)


def _plain_all(pairs: Any) -> dict[str, Any]:
    return {pair.key: _plain(pair.value) for pair in pairs}


def decode(body: bytes) -> Iterator[Received]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Received(
                    name=span.name,
                    trace=span.trace_id,
                    id=span.span_id,
                    parent=span.parent_span_id,
                    seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                    failed=span.status.code == Status.STATUS_CODE_ERROR,
                    said=span.status.message,
                    attributes=_plain_all(span.attributes),
                    resource=_plain_all(resource.resource.attributes),
                )


class Collector:
    """``status`` is what it answers; ``silent`` keeps it from answering at all."""

    def __init__(self) -> None:
        self.status = 200
        self.spans: list[Received] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.silent = threading.Event()
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads, self._server.block_on_close = True, False
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def named(self, name: str) -> list[Received]:
        return [span for span in self.spans if span.name == name]

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def _handler(fake) -> type[BaseHTTPRequestHandler]:  # noqa: N805  (``self`` is the handler's inside)
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                fake.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                if fake.silent.is_set():
                    fake._closing.wait()
                    return
                if fake.status == 200:
                    fake.spans += decode(body)
                self.send_response(fake.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        return Handler


@contextmanager
def collecting() -> Iterator[Collector]:
    """One collector for the length of a test."""
    fake = Collector()
    try:
        yield fake
    finally:
        fake.close()
