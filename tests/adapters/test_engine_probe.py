"""What a pod's own /metrics page says of its limits."""

import asyncio
import contextlib

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tierkeeper.adapters.probe import HttpProbe, parse_limits
from tierkeeper.control.resize import obeys
from tierkeeper.engine.limits import Limits
from tierkeeper.ports import AppliedLimits

PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} %s
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} %s
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{le="1.0"} 3.0
# TYPE tierkeeper_max_num_seqs_seen gauge
tierkeeper_max_num_seqs_seen 24.0
# TYPE tierkeeper_max_num_seqs_applied gauge
tierkeeper_max_num_seqs_applied %s
# TYPE tierkeeper_max_num_batched_tokens_seen gauge
tierkeeper_max_num_batched_tokens_seen 2048.0
# TYPE tierkeeper_max_num_batched_tokens_applied gauge
tierkeeper_max_num_batched_tokens_applied 2048.0
"""


def test_the_plugin_s_gauges_are_read():
    assert parse_limits(PAGE % (3, 0, 16)) == AppliedLimits(24, 2048, 16, 2048, idle=False)


@pytest.mark.parametrize(("running", "waiting", "idle"), [(0, 0, True), (1, 0, False), (0, 1, False)])
def test_a_pod_is_idle_when_nothing_runs_and_nothing_waits(running, waiting, idle):
    assert parse_limits(PAGE % (running, waiting, 24)).idle is idle


def test_a_limit_that_was_never_applied_is_not_known():
    assert parse_limits(PAGE % (0, 0, "NaN")).applied_max_num_seqs is None


def test_a_page_without_the_plugin_says_nothing():
    assert parse_limits("# TYPE up gauge\nup 1.0\n") == AppliedLimits()


def test_engines_of_one_pod_that_differ_have_not_agreed_on_a_limit_yet():
    page = 'tierkeeper_max_num_seqs_applied{engine="0"} 24.0\ntierkeeper_max_num_seqs_applied{engine="1"} 16.0\n'
    assert parse_limits(page).applied_max_num_seqs is None


@pytest.mark.parametrize("supported", ["1.0", "0.0"])
def test_limits_that_the_engine_cannot_follow_are_not_taken_for_seen(supported):
    """Else an idle pod would count as obeying: it reads every limit, and holds none."""
    page = PAGE % (0, 0, "NaN") + f"tierkeeper_live_limit_supported {supported}\n"
    assert obeys(parse_limits(page), Limits(24, 2048)) is (supported == "1.0")


def transport(handler):
    return httpx.MockTransport(handler)


async def test_a_pod_is_asked_on_its_own_address_and_port():
    seen = []

    def answer(request):
        seen.append(str(request.url))
        return httpx.Response(200, text=PAGE % (0, 0, 24))

    async with HttpProbe(transport=transport(answer)) as probe:
        assert (await probe.limits(pod_ip="10.0.0.7", port=8000)).seen_max_num_seqs == 24
        await probe.limits(pod_ip="fd00::7", port=8000)
    assert seen == ["http://10.0.0.7:8000/metrics", "http://[fd00::7]:8000/metrics"]


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: httpx.Response(503),
        lambda _: httpx.Response(200, text="<html>not metrics"),
        lambda _: (_ for _ in ()).throw(httpx.ConnectTimeout("too slow")),
    ],
    ids=["503", "html", "timeout"],
)
async def test_a_pod_that_does_not_answer_properly_is_no_error(answer):
    async with HttpProbe(transport=transport(answer)) as probe:
        says = await probe.limits(pod_ip="10.0.0.7", port=8000)
    assert says in (None, AppliedLimits())


async def test_a_page_that_drips_ends_with_the_time_out():
    async def drip():
        for _ in range(100):
            yield b"# still here\n"
            await asyncio.sleep(0.05)

    async with HttpProbe(timeout_seconds=0.2, transport=transport(lambda _: httpx.Response(200, content=drip()))) as p:
        async with asyncio.timeout(2):
            assert await p.limits(pod_ip="10.0.0.7", port=8000) is None


@pytest.mark.parametrize("headers", [{}, {"Content-Encoding": "gzip"}], ids=["plain", "compressed"])
async def test_a_page_without_end_is_given_up_before_it_fills_the_memory(headers):
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 2**20
            yield b"#" * 2**20

    answer = transport(lambda _: httpx.Response(200, headers=headers, content=endless()))
    async with HttpProbe(timeout_seconds=30, transport=answer) as probe:
        assert await probe.limits(pod_ip="10.0.0.7", port=8000) is None
    assert sent <= 17 * 2**20


@given(
    st.sampled_from(["tierkeeper_max_num_seqs_seen", "vllm:num_requests_running"]),
    st.lists(
        st.sampled_from([*'{}"=,\\# \n\t', "le", 'engine="0"', "NaN", "1e400", "-1", "1 2inf#", "\u2028"]), max_size=9
    ),
)
@example("tierkeeper_max_num_batched_tokens_seen", [" 1 2inf# {} 1"])
def test_a_page_of_any_kind_is_read_or_refused(name, rest):
    with contextlib.suppress(ValueError):
        parse_limits(name + "".join(rest))
