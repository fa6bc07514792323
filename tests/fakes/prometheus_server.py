"""A Prometheus HTTP API on loopback that answers as told: a real server, so that the real client is what is tested."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

JSON = "application/json"


@dataclass(frozen=True)
class Request:
    path: str
    query: str
    params: dict[str, list[str]]
    headers: dict[str, str]


@dataclass(frozen=True)
class Reply:
    """``delay`` seconds pass before the status line; with ``drip`` the body comes a byte at a time, so far apart."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    drip: float = 0.0
    hang_up: bool = False


def vector(*samples: tuple[dict[str, str], str], at: float = 1_790_000_000.0, **more: Any) -> Reply:
    """The success answer of an instant query; values as Prometheus writes them ("NaN", "+Inf")."""
    result = [{"metric": labels, "value": [at, value]} for labels, value in samples]
    return as_json({"status": "success", "data": {"resultType": "vector", "result": result}, **more})


def as_json(body: Any, status: int = 200) -> Reply:
    return Reply(status=status, body=json.dumps(body).encode())


def api_error(status: int, kind: str, text: str) -> Reply:
    return as_json({"status": "error", "errorType": kind, "error": text}, status=status)


Answer = Callable[[Request], Reply]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gives up breaks its connection: that is what many tests are about."""


class FakePrometheus:
    """``answer`` decides on each request; ``requests`` keeps them; ``most_at_once`` is the parallelism seen."""

    def __init__(self) -> None:
        self.answer: Answer = lambda _: vector()
        self.requests: list[Request] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def _reply(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            reply = self.answer(request)
            self._closing.wait(reply.delay)
            return reply
        finally:
            with self._lock:
                self._at_once -= 1

    def _handler(fake) -> type[BaseHTTPRequestHandler]:  # noqa: N805  (``self`` is the handler's inside)
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                params = parse_qs(parts.query)
                headers = {k.lower(): v for k, v in self.headers.items()}
                reply = fake._reply(Request(parts.path, params.get("query", [""])[0], params, headers))
                if reply.hang_up:
                    self.close_connection = True
                    return
                try:
                    self._write(reply)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def _write(self, reply: Reply) -> None:
                self.send_response(reply.status)
                self.send_header("Content-Type", reply.content_type)
                self.send_header("Content-Length", str(len(reply.body)))
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if not reply.drip:
                    self.wfile.write(reply.body)
                    return
                for byte in reply.body:
                    if fake._closing.is_set():
                        break
                    self.wfile.write(bytes((byte,)))
                    self.wfile.flush()
                    time.sleep(reply.drip)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        return Handler


@contextmanager
def serving() -> Iterator[FakePrometheus]:
    """One fake server for the length of a test."""
    fake = FakePrometheus()
    try:
        yield fake
    finally:
        fake.close()
