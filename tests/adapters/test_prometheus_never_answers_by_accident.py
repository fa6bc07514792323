"""The adapter against a real HTTP server: what is an answer, what is an error, and how each error is called."""

import asyncio
import gzip
import math
import socket
import sys
from contextlib import closing

import pytest

from tests.fakes.prometheus_server import FakePrometheus, Reply, api_error, as_json, serving, vector
from tierkeeper.adapters import prometheus as module
from tierkeeper.adapters.prometheus import PARALLEL_QUERIES, PrometheusSource
from tierkeeper.ports import MetricsError, MetricsErrorReason

UP = ({"namespace": "llm", "tier": "gold", "pod": "p"}, "3")


def as_data(kind, result):
    return as_json({"status": "success", "data": {"resultType": kind, "result": result}})


@pytest.fixture
def server():
    with serving() as fake:
        yield fake


@pytest.fixture
async def source(server):
    async with PrometheusSource(server.url, timeout_seconds=2.0) as found:
        yield found


async def refused(source: PrometheusSource, promql: str = "up") -> MetricsError:
    with pytest.raises(MetricsError) as caught:
        await source.query(promql)
    return caught.value


async def test_a_vector_becomes_typed_samples(server, source):
    server.answer = lambda _: vector(UP, ({"tier": "silver"}, "0.25"), at=1_790_000_000.5)
    first, second = await source.query("some{query}")
    assert (dict(first.labels), first.value, first.at) == (UP[0], 3.0, 1_790_000_000.5)
    assert second.value == 0.25
    assert server.requests[0].query == "some{query}"


async def test_an_empty_vector_is_an_answer(server, source):
    assert await source.query("up") == []


async def test_m01_m03_nan_and_infinity_are_handed_on_as_they_are(server, source):
    server.answer = lambda _: vector(({}, "NaN"), ({}, "+Inf"), ({}, "-Inf"))
    nan, above, below = (s.value for s in await source.query("up"))
    assert math.isnan(nan)
    assert (above, below) == (math.inf, -math.inf)


async def test_t13_no_time_is_sent(server, source):
    await source.query("up")
    assert set(server.requests[0].params) == {"query"}


async def test_a_compressed_answer_is_read(server, source):
    plain = vector(UP)
    server.answer = lambda _: Reply(body=gzip.compress(plain.body), headers={"Content-Encoding": "gzip"})
    assert len(await source.query("up")) == 1


@pytest.mark.parametrize(
    ("reply", "reason", "text"),
    [
        (Reply(502, b"<html>bad gateway</html>", "text/html"), "ServerError", "HTTP 502"),
        (Reply(503, b""), "ServerError", "HTTP 503"),
        (Reply(429, b""), "ServerError", "HTTP 429"),
        (api_error(422, "execution", "too many samples"), "BadQuery", "HTTP 422"),
        (api_error(400, "bad_data", "parse error at char 3"), "BadQuery", "parse error at char 3"),
        (Reply(401, b"no"), "AuthFailed", "HTTP 401"),
        (Reply(403, b"no"), "AuthFailed", "HTTP 403"),
        (Reply(404, b"nope", "text/plain"), "BadAnswer", "base URL"),
    ],
    ids=["T04-502-html", "503", "429", "T04-422", "T03-400", "T08-401", "T08-403", "404"],
)
async def test_every_code_but_200_is_an_error_with_its_name(server, source, reply, reason, text):
    server.answer = lambda _: reply
    error = await refused(source)
    assert error.reason == reason
    assert text in error.message


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, b"<html>please log in</html>", "text/html"),
        Reply(200, b'{"status": "succ'),
        Reply(200, b"[" * 100_000),
        as_json([1, 2]),
        as_json({"status": "success"}),
        as_json({"status": "error", "errorType": "timeout", "error": "query timed out"}),
        as_data("scalar", [1.0, "1"]),
        as_data("matrix", []),
        as_data("vector", [{"metric": {}}]),
        as_data("vector", [{"metric": {}, "value": [1, "x"]}]),
        as_data("vector", [{"metric": {}, "histogram": [1, {}]}]),
        vector(UP, warnings=5),
    ],
    ids=[
        "html",
        "cut",
        "deep",
        "list",
        "no-data",
        "error-at-200",
        "scalar",
        "matrix",
        "no-value",
        "no-number",
        "native-histogram",
        "no-list-of-warnings",
    ],
)
async def test_t04_what_is_no_vector_is_a_bad_answer(server, source, reply):
    server.answer = lambda _: reply
    assert (await refused(source)).reason == MetricsErrorReason.BAD_ANSWER


async def test_t11_an_answer_with_a_warning_of_missing_data_is_no_answer(server, source):
    server.answer = lambda _: vector(UP, warnings=["store 10.0.0.7:10901 is unavailable"])
    error = await refused(source)
    assert error.reason == MetricsErrorReason.BAD_ANSWER
    assert "partial: store 10.0.0.7:10901 is unavailable" in error.message


async def test_a_note_about_the_style_of_a_query_is_no_warning(server, source):
    server.answer = lambda _: vector(UP, warnings=["PromQL warning: a note"], infos=["PromQL info: another"])
    assert len(await source.query("up")) == 1


async def test_t03_a_long_error_becomes_one_short_line(server, source):
    server.answer = lambda _: api_error(400, "bad_data", "parse error:\n" + "x" * 5000)
    message = (await refused(source)).message
    assert len(message) <= 300
    assert "\n" not in message


async def test_t05_a_late_answer_is_given_up_at_the_limit(server):
    server.answer = lambda _: Reply(body=b"{}", delay=30.0)
    async with PrometheusSource(server.url, timeout_seconds=0.3) as source:
        error = await refused(source)
    assert error.reason == MetricsErrorReason.TIMEOUT
    assert "within 0.3 s" in error.message
    assert len(server.requests) == 1


async def test_t06_a_socket_that_never_answers_is_a_timeout_and_blocks_nobody():
    with closing(socket.create_server(("127.0.0.1", 0))) as silent, serving() as healthy:
        stuck = PrometheusSource(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_seconds=0.4)
        async with stuck, PrometheusSource(healthy.url, timeout_seconds=5.0) as other:
            waiting = [asyncio.create_task(refused(stuck)) for _ in range(PARALLEL_QUERIES)]
            assert await other.query("up") == []
            assert not any(task.done() for task in waiting)
            assert {error.reason for error in await asyncio.gather(*waiting)} == {MetricsErrorReason.TIMEOUT}


async def test_t06_a_body_that_drips_does_not_hold_its_thread(server):
    """A byte every 50 ms beats any socket time-out; the next query finds the thread free again."""
    server.answer = lambda _: Reply(body=b" " * 10_000, drip=0.05)
    async with PrometheusSource(server.url, timeout_seconds=0.4) as source:
        errors = await asyncio.gather(*(refused(source) for _ in range(PARALLEL_QUERIES)))
        assert {e.reason for e in errors} == {MetricsErrorReason.TIMEOUT}
        server.answer = lambda _: vector(UP)
        assert len(await source.query("up")) == 1


async def test_nobody_there_is_unreachable_and_says_where(server):
    server.close()
    async with PrometheusSource(server.url, timeout_seconds=2.0) as source:
        error = await refused(source)
    assert error.reason == MetricsErrorReason.UNREACHABLE
    assert server.url in error.message
    assert "query=" not in error.message
    assert "HTTPConnection" not in error.message
    assert error.message.endswith("; correct the chart's prometheus.url, or let the operator reach it (NetworkPolicy)")


async def test_a_name_that_does_not_resolve_is_unreachable():
    async with PrometheusSource("http://prometheus.invalid:9090", timeout_seconds=5.0) as source:
        assert (await refused(source)).reason in (MetricsErrorReason.UNREACHABLE, MetricsErrorReason.TIMEOUT)


async def test_a_connection_that_breaks_is_tried_once_more(server, source):
    replies = iter([Reply(hang_up=True), vector(UP)])
    server.answer = lambda _: next(replies)
    assert len(await source.query("up")) == 1
    assert len(server.requests) == 2


async def test_a_server_that_always_hangs_up_is_unreachable(server, source):
    server.answer = lambda _: Reply(hang_up=True)
    assert (await refused(source)).reason == MetricsErrorReason.UNREACHABLE
    assert len(server.requests) == 2


async def test_t07_queries_wait_for_a_free_slot_without_timing_out(server):
    """Forty-eight queries of 100 ms, four at a time, take 1.2 s: more than the limit of one, which starts with its
    turn."""
    server.answer = lambda _: Reply(body=vector(UP).body, delay=0.1)
    async with PrometheusSource(server.url, timeout_seconds=1.0) as source:
        answers = await asyncio.gather(*(source.query(f"up{n}") for n in range(48)))
    assert [len(a) for a in answers] == [1] * 48
    assert server.most_at_once <= PARALLEL_QUERIES


async def test_t08_a_rotated_token_is_used_at_the_next_query(server, tmp_path):
    token = tmp_path / "token"
    token.write_text("old\n")
    server.answer = lambda r: vector(UP) if r.headers.get("authorization") == "Bearer new" else Reply(401)
    async with PrometheusSource(server.url, timeout_seconds=2.0, token_file=str(token)) as source:
        assert (await refused(source)).reason == MetricsErrorReason.AUTH_FAILED
        token.write_text("new\n")
        assert len(await source.query("up")) == 1


@pytest.mark.parametrize("content", [None, "", "two\nlines", "tök"])
async def test_t08_a_token_file_without_a_token_is_said(server, tmp_path, content):
    token = tmp_path / "token"
    if content is not None:
        token.write_text(content)
    async with PrometheusSource(server.url, timeout_seconds=2.0, token_file=str(token)) as source:
        error = await refused(source)
    assert error.reason == MetricsErrorReason.AUTH_FAILED
    assert str(token) in error.message
    assert server.requests == []


async def test_o01_no_secret_is_told(server, tmp_path):
    """Neither the token nor the password of a URL enters a message."""
    token = tmp_path / "token"
    token.write_text("s3cret-token")
    server.answer = lambda _: Reply(403)
    url = server.url.replace("http://", "http://me:s3cret-password@")
    for file in (str(token), None):
        async with PrometheusSource(url, timeout_seconds=2.0, token_file=file) as source:
            assert "s3cret" not in str(await refused(source))


def redirect(target: str, status: int = 301) -> Reply:
    return Reply(status, headers={"Location": target})


async def test_t10_a_redirect_on_the_same_host_is_followed_with_its_credentials(server, tmp_path):
    token = tmp_path / "token"
    token.write_text("good")

    def answer(request):
        if request.path == "/api/v1/query":
            return redirect("/prometheus/api/v1/query?query=up")
        return vector(UP) if request.headers.get("authorization") == "Bearer good" else Reply(401)

    server.answer = answer
    async with PrometheusSource(server.url, timeout_seconds=2.0, token_file=str(token)) as source:
        assert len(await source.query("up")) == 1


async def test_t10_a_redirect_to_another_host_is_named_and_never_followed(server, tmp_path):
    token = tmp_path / "token"
    token.write_text("good")
    with serving() as elsewhere:
        server.answer = lambda _: redirect(f"{elsewhere.url}/api/v1/query?query=up")
        async with PrometheusSource(server.url, timeout_seconds=2.0, token_file=str(token)) as source:
            error = await refused(source)
        assert error.reason == MetricsErrorReason.REDIRECTED
        assert elsewhere.url in error.message
        assert elsewhere.requests == []


async def test_t10_a_redirect_to_https_on_the_standard_ports_would_be_followed():
    """It keeps host and credentials; here nobody listens, so that the attempt shows as an unreachable host."""
    response = module.requests.Response()
    response.status_code, response.url = 301, "http://prometheus.example/api/v1/query?query=up"
    response.headers["location"] = "https://prometheus.example/api/v1/query?query=up"
    assert module._inspect(response) is response
    response.headers["location"] = "https://prometheus.example:8443/api/v1/query?query=up"
    with pytest.raises(MetricsError, match=r"Redirected: .*https://prometheus\.example:8443"):
        module._inspect(response)


async def test_t10_a_redirect_that_drops_the_query_is_named_instead_of_a_parse_error(server, source):
    server.answer = lambda _: redirect("/login")
    error = await refused(source)
    assert error.reason == MetricsErrorReason.REDIRECTED
    assert "/login and drops the query" in error.message


async def test_t10_redirects_in_a_circle_end(server, source):
    server.answer = lambda _: redirect("/api/v1/query?query=up")
    assert (await refused(source)).reason == MetricsErrorReason.REDIRECTED
    assert len(server.requests) <= 5


async def test_an_answer_beyond_the_size_limit_is_refused(server, source, monkeypatch):
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 1000)
    server.answer = lambda _: vector(*[UP] * 100)
    error = await refused(source)
    assert (error.reason, "larger than" in error.message) == (MetricsErrorReason.BAD_ANSWER, True)


async def test_a_base_url_may_have_a_path_and_a_slash_at_its_end(server):
    async with PrometheusSource(f"{server.url}/prometheus/", timeout_seconds=2.0) as source:
        await source.query("up")
    assert server.requests[0].path == "/prometheus/api/v1/query"


async def test_connections_are_kept_for_the_next_query(server, source):
    fake: FakePrometheus = server
    for _ in range(5):
        await source.query("up")
    assert len(fake.requests) == 5


ENDS = """
import asyncio, sys
from tierkeeper.adapters.prometheus import PrometheusSource

async def main():
    async with PrometheusSource(sys.argv[1], timeout_seconds=100) as source:
        query = asyncio.create_task(source.query("up"))
        await asyncio.to_thread(sys.stdin.readline)
        query.cancel()

asyncio.run(main())
"""


async def test_the_end_of_the_process_waits_for_no_answer(server):
    """A query over the whole budget period may take 100 s; the kubelet gives an operator 30 s to go."""
    server.answer = lambda _: Reply(delay=20)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ENDS, server.url, stdin=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(30):
            while not server.requests:
                await asyncio.sleep(0.05)
        async with asyncio.timeout(10):
            await process.communicate(b"go\n")
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0
