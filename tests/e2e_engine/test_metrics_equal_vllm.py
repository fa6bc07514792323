"""The page that Prometheus scrapes is the one of real vLLM 0.32.0, recorded in ``data/``."""

import math
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from e2e.engine.config import EngineConfig
from e2e.engine.core import EngineCore, StepResult
from e2e.engine.metrics import EngineMetrics
from e2e.engine.profiles import PROFILES
from e2e.engine.scheduler import KVCache, Request, Scheduler, SchedulerConfig

REAL_PAGE = (Path(__file__).parent / "data" / "vllm-0.32.0-metrics.txt").read_text()
# Labels whose values are a closed set, the same on every server.
CLOSED = ("finished_reason", "reason", "source", "sleep_state", "le")


def families(page: str) -> dict[str, dict[str, Any]]:
    """By family: type, sample names, label names, bucket edges and the values of closed labels."""
    found = {}
    for family in text_string_to_metric_families(page):
        if family.name.startswith(("vllm:", "http_")):
            found[family.name] = {
                "type": family.type,
                "samples": {sample.name for sample in family.samples},
                "labels": {tuple(sorted(sample.labels)) for sample in family.samples},
                "values": {
                    (label, value)
                    for sample in family.samples
                    for label, value in sample.labels.items()
                    if label in CLOSED
                },
            }
    return found


def value(page: str, name: str, **labels: str) -> float:
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return math.nan


async def page_after_one_completion(serving) -> str:
    # The recorded server ran with --max-model-len 1024, which sets the edges of the token histograms.
    async with serving() as (_, url), aiohttp.ClientSession() as session:
        await (await session.post(f"{url}/v1/completions", json={"prompt": [1] * 9, "max_tokens": 3})).read()
        return await (await session.get(f"{url}/metrics")).text()


async def test_families_types_labels_and_edges_are_those_of_the_real_page(serving):
    ours, real = families(await page_after_one_completion(serving)), families(REAL_PAGE)
    assert {name: ours.get(name) for name in real} == real


async def test_no_vllm_family_is_made_up(serving):
    ours = families(await page_after_one_completion(serving))
    assert set(ours) == set(families(REAL_PAGE))


async def test_one_completion_is_counted_once_everywhere(serving):
    page = await page_after_one_completion(serving)
    for family in (
        "time_to_first_token_seconds",
        "request_time_per_output_token_seconds",
        "e2e_request_latency_seconds",
    ):
        assert value(page, f"vllm:{family}_count") == 1
    assert value(page, "vllm:inter_token_latency_seconds_count") == 2
    assert value(page, "vllm:prompt_tokens_total") == 9
    assert value(page, "vllm:generation_tokens_total") == 3
    assert value(page, "vllm:request_success_total", finished_reason="length") == 1


def recorded(buckets: dict[str, tuple[float, ...]] | None = None, *requests: Request) -> str:
    """The page after these finished requests."""
    registry = CollectorRegistry()
    config = EngineConfig(
        "tiny", ("tiny",), "", 0, SchedulerConfig(4, 64), PROFILES["fast"], 1024, num_blocks=64, buckets=buckets or {}
    )
    core = EngineCore(
        Scheduler(config.scheduler, KVCache(num_blocks=64, block_size=16)), config.profile, max_model_len=1024
    )
    EngineMetrics(config, registry).record_step(StepResult(9.0, finished=list(requests)), core)
    return generate_latest(registry).decode()


def finished(tokens: int, *, arrival: float, scheduled: float, first: float, last: float) -> Request:
    return Request(
        "r", 10, tokens, arrival,
        num_output_tokens=tokens, scheduled_time=scheduled, first_token_time=first, last_token_time=last,
        finish_reason="length",
    )  # fmt: skip


def test_the_phases_of_a_request_add_up():
    page = recorded({}, finished(5, arrival=1.0, scheduled=2.0, first=4.0, last=8.0))
    seconds = {
        name: value(page, f"vllm:{name}_sum")
        for name in (
            "request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
            "request_inference_time_seconds", "e2e_request_latency_seconds", "request_time_per_output_token_seconds",
        )
    }  # fmt: skip
    assert list(seconds.values()) == [1.0, 2.0, 4.0, 6.0, 7.0, 1.0]


def test_a_one_token_answer_records_a_tpot_of_zero():
    page = recorded({}, finished(1, arrival=1.0, scheduled=2.0, first=4.0, last=4.0))
    assert value(page, "vllm:request_time_per_output_token_seconds_bucket", le="0.01") == 1


def edges(page: str, name: str) -> list[str]:
    return [
        sample.labels["le"]
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == f"{name}_bucket"
    ]


def test_custom_edges_replace_a_family_and_leave_the_others():
    page = recorded({"inter_token_latency": (0.05, 0.1), "time_to_first_token": (0.5, 1.5)})
    assert edges(page, "vllm:inter_token_latency_seconds") == ["0.05", "0.1", "+Inf"]
    assert edges(page, "vllm:request_time_per_output_token_seconds") == ["0.05", "0.1", "+Inf"]
    assert edges(page, "vllm:time_to_first_token_seconds") == ["0.5", "1.5", "+Inf"]
    assert len(edges(page, "vllm:e2e_request_latency_seconds")) == 22
