"""Clients of vLLM get vLLM's answers."""

import asyncio
import json

import aiohttp
import pytest


async def post(url: str, path: str, body: object, **options: object) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.post(f"{url}{path}", json=body, **options) as response:
        return response.status, await response.text()


def events(text: str) -> list[str]:
    return [line.removeprefix("data: ") for line in text.split("\n\n") if line]


async def test_a_streamed_completion_ends_with_reason_usage_and_mark(serving):
    async with serving() as (_, url):
        body = {"prompt": [1] * 20, "max_tokens": 4, "stream": True, "stream_options": {"include_usage": True}}
        _, text = await post(url, "/v1/completions", body)
    *chunks, usage, mark = events(text)
    assert [json.loads(chunk)["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "length"]
    assert json.loads(usage)["usage"] == {"prompt_tokens": 20, "total_tokens": 24, "completion_tokens": 4}
    assert mark == "[DONE]"


async def test_a_streamed_chat_opens_with_the_role(serving):
    async with serving() as (_, url):
        body = {"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 2, "stream": True}
        _, text = await post(url, "/v1/chat/completions", body)
    deltas = [json.loads(chunk)["choices"][0]["delta"] for chunk in events(text)[:-1]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert len(deltas) == 3


@pytest.mark.parametrize(
    ("prompt", "tokens"), [([5] * 7, 7), ("x" * 40, 10), ("x", 1), ([[1, 2, 3]], 3), (["twelve chars"], 3)]
)
async def test_the_length_of_a_prompt(serving, prompt, tokens):
    async with serving() as (_, url):
        _, text = await post(url, "/v1/completions", {"prompt": prompt, "max_tokens": 1})
    assert json.loads(text)["usage"]["prompt_tokens"] == tokens


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"prompt": [1], "model": "other"}, 404),
        ({"prompt": []}, 400),
        ({"prompt": [1], "max_tokens": -1}, 400),
        ({"prompt": [1] * 1000, "max_tokens": 100}, 400),
        ([1, 2], 400),
    ],
)
async def test_what_vllm_refuses_is_refused(serving, body, status):
    async with serving() as (_, url):
        answer, text = await post(url, "/v1/completions", body)
    assert (answer, json.loads(text)["error"]["code"]) == (status, status)


async def test_an_api_key_guards_v1_and_nothing_else(serving):
    async with serving(api_keys=("secret",)) as (_, url):
        body = {"prompt": [1], "max_tokens": 1}
        assert (await post(url, "/v1/completions", body))[0] == 401
        assert (await post(url, "/v1/completions", body, headers={"Authorization": "Bearer secret"}))[0] == 200
        async with aiohttp.ClientSession() as session:
            assert (await session.get(f"{url}/metrics")).status == 200


async def test_a_full_queue_answers_503_and_counts_the_rejection(serving):
    async with serving(max_num_queued_reqs=1) as (server, url):
        server.loop.hang(True)
        first = asyncio.create_task(post(url, "/v1/completions", {"prompt": [1], "max_tokens": 1}))
        while not server.in_flight:
            await asyncio.sleep(0.005)
        status, _ = await post(url, "/v1/completions", {"prompt": [1], "max_tokens": 1})
        server.loop.hang(False)
        assert (status, (await first)[0]) == (503, 200)
        rejected = server.registry.get_sample_value(
            "vllm:admission_rejections_total", {"model_name": "tiny", "reason": "max_num_queued_reqs"}
        )
        assert rejected == 1


async def test_a_prefill_backlog_answers_503_until_it_is_computed(serving):
    async with serving(max_num_queued_tokens=100) as (server, url):
        server.loop.hang(True)
        first = asyncio.create_task(post(url, "/v1/completions", {"prompt": [1] * 150, "max_tokens": 1}))
        while not server.in_flight:
            await asyncio.sleep(0.005)
        assert (await post(url, "/v1/completions", {"prompt": [1], "max_tokens": 1}))[0] == 503
        server.loop.hang(False)
        await first
        assert (await post(url, "/v1/completions", {"prompt": [1], "max_tokens": 1}))[0] == 200


async def test_a_client_that_leaves_changes_no_latency_metric(serving):
    async with serving() as (server, url), aiohttp.ClientSession() as session:
        response = await session.post(f"{url}/v1/completions", json={"prompt": [1], "max_tokens": 900, "stream": True})
        await response.content.readany()
        response.close()
        while server.in_flight:
            await asyncio.sleep(0.005)
        labels = {"model_name": "tiny", "engine": "0"}
        assert server.registry.get_sample_value("vllm:num_requests_running", labels) == 0
        assert server.registry.get_sample_value("vllm:e2e_request_latency_seconds_count", labels) == 0
        aborted = {**labels, "finished_reason": "abort"}
        assert server.registry.get_sample_value("vllm:request_success_total", aborted) == 0


async def test_a_hung_engine_stays_healthy_and_answers_nothing(serving):
    async with serving(fault_endpoint=True) as (_, url):
        await post(url, "/engine/fault", {"hang": True})
        answer = asyncio.create_task(post(url, "/v1/completions", {"prompt": [1], "max_tokens": 1}))
        async with aiohttp.ClientSession() as session:
            assert (await session.get(f"{url}/health")).status == 200
        assert not answer.done()
        await post(url, "/engine/fault", {"hang": False})
        assert (await answer)[0] == 200


async def test_faults_cannot_be_ordered_unless_the_server_was_started_for_it(serving):
    async with serving() as (_, url):
        assert (await post(url, "/engine/fault", {"hang": True}))[0] == 404


async def test_the_scheduler_is_not_called_while_there_is_no_work(serving):
    async with serving() as (server, url):
        calls = []
        schedule = server.core.scheduler.schedule
        server.core.scheduler.schedule = lambda: calls.append(1) or schedule()
        await asyncio.sleep(0.05)
        assert calls == []
        await post(url, "/v1/completions", {"prompt": [1], "max_tokens": 3})
        assert len(calls) == 3
