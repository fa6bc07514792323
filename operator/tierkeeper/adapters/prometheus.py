"""MetricsSource over prometheus-api-client: bounded in time, size and parallelism, and loud about every odd answer."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar
from urllib.parse import SplitResult, urljoin, urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.connectionpool import ConnectionPool
from urllib3.exceptions import NewConnectionError, ProtocolError
from urllib3.exceptions import TimeoutError as HttpTimeoutError
from urllib3.response import BaseHTTPResponse
from urllib3.util.retry import Retry

from tierkeeper.ports import MetricsError, MetricsErrorReason
from tierkeeper.slo.model import Sample

PARALLEL_QUERIES = 4
"""Queries in flight at once. A snapshot has about twenty; more at a time would only queue inside Prometheus."""

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Largest answer taken: 300 tiers with two histogram families come to about 4 MB."""

_CLIENT_SHARE = 0.9
"""The client gives up at this share of the time-out, so that a thread is free again when its caller has given up."""

_CONNECT_SHARE = 0.3
"""Share of the time-out for the connection alone."""

_MAX_MESSAGE = 300
_CHUNK_BYTES = 64 * 1024
_MAX_REDIRECTS = 3
_QUERY_NOTE = "PromQL "
"""Prefix of the notes that the engine makes about a query's style; every other warning speaks of missing data."""


class PrometheusSource:
    """Instant queries against one Prometheus HTTP API. Raises MetricsError, and nothing else, from ``query``.

    ``timeout_seconds`` bounds one query. ``token_file`` holds a bearer token and is read anew for each request.
    """

    def __init__(self, url: str, *, timeout_seconds: float, token_file: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._timeout = timeout_seconds
        self._auth = _BearerFile(Path(token_file)) if token_file else None
        self._threads = _Threads(PARALLEL_QUERIES)
        self._slots = asyncio.Semaphore(PARALLEL_QUERIES)
        self._local = threading.local()

    async def query(self, promql: str) -> Sequence[Sample]:
        """One instant query, evaluated at Prometheus' own time. An empty vector is an answer, not an error."""
        loop = asyncio.get_running_loop()
        async with self._slots:
            try:
                async with asyncio.timeout(self._timeout):
                    return await loop.run_in_executor(self._threads, self._ask, promql)
            except TimeoutError as error:
                raise self._timed_out() from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back the threads. Queries still running are left to their own time-out."""
        self._threads.shutdown()

    def _ask(self, promql: str) -> list[Sample]:
        """In a worker thread: ask, and turn whatever happens into samples or a MetricsError."""
        try:
            return _samples(self._client().custom_query(promql))
        except MetricsError:
            raise
        except (requests.Timeout, HttpTimeoutError) as error:
            raise self._timed_out() from error
        except requests.TooManyRedirects as error:
            raise MetricsError(MetricsErrorReason.REDIRECTED, f"{self._host} redirects in a circle") from error
        except requests.ConnectionError as error:
            raise MetricsError(MetricsErrorReason.UNREACHABLE, _short(f"{self._host}: {_cause(error)}")) from error
        except Exception as error:  # whatever is odd in an answer: a lost tick would tell no tier of it
            text = f"{self._host}: no Prometheus API answer ({type(error).__name__})"
            raise MetricsError(MetricsErrorReason.BAD_ANSWER, text) from error

    def _client(self) -> PrometheusConnect:
        """This thread's own client: a requests session is not promised to be safe between threads."""
        client: PrometheusConnect | None = getattr(self._local, "client", None)
        if client is None:
            session = requests.Session()
            session.max_redirects = _MAX_REDIRECTS
            session.hooks["response"].append(_inspect)
            client = PrometheusConnect(
                url=self._url,
                auth=self._auth,
                session=session,
                timeout=(self._timeout * _CONNECT_SHARE, self._timeout * (_CLIENT_SHARE - _CONNECT_SHARE)),
            )
            # The client mounts an adapter of its own at construction; ours has to come after it.
            for prefix in ("http://", "https://", self._url):
                session.mount(prefix, _BoundedAdapter(self._timeout * _CLIENT_SHARE))
            self._local.client = client
        return client

    @property
    def _host(self) -> str:
        return _origin(urlsplit(self._url))

    def _timed_out(self) -> MetricsError:
        return MetricsError(MetricsErrorReason.TIMEOUT, f"no answer from {self._host} within {self._timeout:g} s")


P = ParamSpec("P")
T = TypeVar("T")


class _Threads(Executor):
    """A ThreadPoolExecutor for whose threads the end of the process does not wait: a query may take 100 s, and an
    operator that is told to go is killed after 30 s."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        for place in range(number):
            threading.Thread(target=self._serve, name=f"prometheus {place}", daemon=True).start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._work.put(partial(_settle, future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002  (Executor's own)
        """Each thread ends once it is free."""
        for _ in range(self._number):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work  # an answer may have megabytes, and the next query may be long in coming


def _settle(future: Future[T], call: Callable[[], T]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)


class _BearerFile(AuthBase):
    """Sends the token that the file holds at this very moment, so that a rotated token needs no restart."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        try:
            token = self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            text = f"the token file {self._path} cannot be read ({type(error).__name__}): mount the token there"
            raise MetricsError(MetricsErrorReason.AUTH_FAILED, text) from error
        if not token or not token.isprintable():
            text = f"the token file {self._path} holds no token: it must hold one line of printable characters"
            raise MetricsError(MetricsErrorReason.AUTH_FAILED, text)
        request.headers["Authorization"] = f"Bearer {token}"
        return request


class _RetryBrokenConnections(Retry):
    """One more try where the connection broke, as a kept-alive one does when the server restarts.

    Time-outs are not repeated: they have used up the caller's patience. To urllib3 a refused connection is one, too.
    """

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: BaseHTTPResponse | None = None,
        error: Exception | None = None,
        _pool: ConnectionPool | None = None,
        _stacktrace: TracebackType | None = None,
    ) -> Self:
        if isinstance(error, HttpTimeoutError) and not isinstance(error, NewConnectionError):
            raise error
        return super().increment(method, url, response, error, _pool, _stacktrace)


class _BoundedAdapter(HTTPAdapter):
    """Reads the whole body before it hands the response on, within a deadline and a size.

    A socket time-out bounds each read only: a server that sends a byte a second would hold a thread for ever.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(max_retries=_RetryBrokenConnections(total=1, backoff_factor=0))
        self._seconds = seconds

    def send(self, *args: Any, **kwargs: Any) -> requests.Response:
        deadline = monotonic() + self._seconds
        response = super().send(*args, **kwargs)
        stream, body = response.raw, BytesIO()
        try:
            while chunk := stream.read1(_CHUNK_BYTES, decode_content=True):
                body.write(chunk)
                if monotonic() > deadline:
                    raise requests.Timeout(f"the answer was still incomplete after {self._seconds:g} s")
                if body.tell() > MAX_ANSWER_BYTES:
                    text = f"the answer is larger than {MAX_ANSWER_BYTES // 2**20} MiB"
                    raise MetricsError(MetricsErrorReason.BAD_ANSWER, text)
        except ProtocolError as error:
            raise requests.ConnectionError(error) from error
        finally:
            stream.close()
        body.seek(0)
        response.raw = body
        return response


def _inspect(response: requests.Response, **_: Any) -> requests.Response:
    """Session hook, run before the client looks at a response: raises MetricsError for all but a full vector."""
    code = response.status_code
    if response.is_redirect:
        _check_redirect(response)
        return response
    if code == HTTPStatus.OK:
        _check_vector(response)
        return response
    text = _short(f"{_origin(urlsplit(response.url))}: HTTP {code} {response.reason}{_error_text(response)}")
    if code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise MetricsError(MetricsErrorReason.AUTH_FAILED, text)
    if code in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY):
        raise MetricsError(MetricsErrorReason.BAD_QUERY, text)
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR or code == HTTPStatus.TOO_MANY_REQUESTS:
        raise MetricsError(MetricsErrorReason.SERVER_ERROR, text)
    raise MetricsError(MetricsErrorReason.BAD_ANSWER, f"{text}: is this the base URL of a Prometheus?")


def _check_redirect(response: requests.Response) -> None:
    """Lets a redirect pass that stays on the host and keeps the query; names the target of any other.

    requests carries credentials along to the same origin, and from http to https on the standard ports; these are
    the redirects that pass.
    """
    source = urlsplit(response.url)
    target = urlsplit(urljoin(response.url, response.headers["location"]))
    upgrade = (source.scheme, target.scheme, _port(source), _port(target)) == ("http", "https", 80, 443)
    same = (source.scheme, _port(source)) == (target.scheme, _port(target)) or upgrade
    if source.hostname != target.hostname or not same:
        text = f"{_origin(source)} redirects to {_origin(target)}: set the Prometheus URL to that, if it is meant"
        raise MetricsError(MetricsErrorReason.REDIRECTED, _short(text))
    if "query=" not in target.query:
        text = f"{_origin(source)} redirects to {_origin(target)}{target.path} and drops the query: is a login needed?"
        raise MetricsError(MetricsErrorReason.REDIRECTED, _short(text))


def _check_vector(response: requests.Response) -> None:
    body = response.json()
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, dict) or body.get("status") != "success":
        raise MetricsError(MetricsErrorReason.BAD_ANSWER, _short(f"the answer is no success{_error_text(response)}"))
    if data.get("resultType") != "vector" or not isinstance(data.get("result"), list):
        text = f"the answer is a {data.get('resultType')}, not a vector"
        raise MetricsError(MetricsErrorReason.BAD_ANSWER, _short(text))
    missing = [str(w) for w in body.get("warnings") or [] if not str(w).startswith(_QUERY_NOTE)]
    if missing:
        raise MetricsError(MetricsErrorReason.BAD_ANSWER, _short(f"the answer is partial: {'; '.join(missing)}"))


def _samples(result: Sequence[Mapping[str, Any]]) -> list[Sample]:
    """Raises MetricsError where an element is no float sample (a native histogram, say)."""
    try:
        return [
            Sample(labels=dict(item["metric"]), value=float(item["value"][1]), at=float(item["value"][0]))
            for item in result
        ]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise MetricsError(MetricsErrorReason.BAD_ANSWER, "an element of the vector has no float value") from error


def _error_text(response: requests.Response) -> str:
    """What Prometheus itself says of an error, or nothing where the body is not its JSON."""
    try:
        body = response.json()
    except ValueError:
        return ""
    if not isinstance(body, dict) or "error" not in body:
        return ""
    return f" {body.get('errorType', '')}: {body['error']}"


def _cause(error: requests.ConnectionError) -> str:
    """The innermost reason and a remedy: the outer texts repeat the whole query, and the host."""
    inner = error.args[0] if error.args else error
    reason = re.sub(r"^\w+\(host=.*?\): ", "", str(getattr(inner, "reason", None) or inner))
    return f"{reason}; correct the chart's prometheus.url, or let the operator reach it (NetworkPolicy)"


def _origin(url: SplitResult) -> str:
    """scheme://host[:port], without the credentials that a URL may carry."""
    host = f"[{url.hostname}]" if url.hostname and ":" in url.hostname else url.hostname
    return f"{url.scheme}://{host}:{url.port}" if url.port else f"{url.scheme}://{host}"


def _port(url: SplitResult) -> int | None:
    return url.port or {"http": 80, "https": 443}.get(url.scheme)


def _short(text: str) -> str:
    """One line of bounded length: it becomes a condition's message."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_MESSAGE else f"{line[: _MAX_MESSAGE - 1]}…"
