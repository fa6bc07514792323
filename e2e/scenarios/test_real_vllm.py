"""Real vLLM (CPU build, a small random model) as a tier: Ready, streaming, and both limits changed live under load.

Loading takes it most of a minute, so the tier is applied early and judged later (conftest.py orders it so).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import operator
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import pytest

from e2e.cluster import Cluster
from e2e.platform import VLLM_CPU_TAG, load
from e2e.scenarios.kit import PORT, Kit, Object, changed, tier

pytestmark = [pytest.mark.e2e, pytest.mark.exchanged, pytest.mark.timeout(900)]

#: A time-out, not a promise: what was needed is printed. On two cores the engine, its clients, Prometheus and the
#: operator share the CPU, and 0.6 s becomes 4 s when the engine gets most of it.
APPLY_SECONDS = 30
STREAMS = 16
WINDOW_SECONDS = 14
"""At the large budget a long prompt stops all streams for two seconds: some seven stops a window."""
LONGEST_WINDOW_SECONDS = 75
"""One stall of the machine is a gap in all eight streams at once: more than a hundredth of a short window's, not of a
longer one's (seen: 772 ms at the small budget, 211 to 256 ms in the runs without a stall)."""
WATCHED = 8
"""Streams whose gaps are kept: 8 x 7 long ones among a few hundred."""
LONG_SHARE = 0.02
"""A window counts once so many of its gaps had a long prompt in them: P99 shows a hundredth. (Seen: a first window of
15 s whose P99 was 28 ms, as hardly any was served in it; 242 ms with them.)"""


@pytest.fixture
def real(platform: Cluster) -> Kit:
    """A namespace with the tier of real vLLM. It stays: other scenarios run while it loads."""
    load(platform, ["vllm-cpu"])
    kit = Kit(platform, "e2e-real-vllm")
    namespace = kit.kubectl("create", "namespace", kit.namespace, "--dry-run=client", "-o", "yaml")
    kit.kubectl("apply", "-f", "-", input=namespace)
    kit.apply(real_tier())
    return kit


@pytest.fixture
def served(real: Kit) -> Iterator[Kit]:
    """The same, once it serves; gone at the end, also where it never does: nothing else may have it beside it."""
    try:
        real.until_ready("real", seconds=300)
        yield real
    finally:
        real.delete_namespace(wait=False)


def real_tier() -> Object:
    """One replica of real vLLM; the loop is off so that only the test moves the limits."""
    obj = tier("real")
    obj["spec"] |= {
        "model": {"id": "/models/tiny", "servedName": "real"},
        "engine": {
            "image": VLLM_CPU_TAG,
            "imagePullPolicy": "Never",
            "maxNumSeqs": 16,
            "maxNumBatchedTokens": 2048,
            "maxModelLen": 4096,
            "extraArgs": ["--enforce-eager", "--kv-cache-memory-bytes", "268435456", "--no-enable-prefix-caching"],
            "env": [{"name": "HF_HUB_OFFLINE", "value": "1"}, {"name": "VLLM_NO_USAGE_STATS", "value": "1"}],
        },
        # Without a request the engine gets two shares of the CPU, with a large one it starves the operator.
        "resources": {"gpusPerReplica": 1, "cpu": "400m", "memory": "3Gi", "sharedMemory": "256Mi"},
        "scaling": {
            "mode": "Fixed",
            "replicas": {"min": 1, "max": 1},
            "maxNumSeqs": {"min": 2, "max": 16},
            "maxNumBatchedTokens": {"min": 64, "max": 2048},
        },
    }
    return obj


@dataclass
class Streams:
    """Concurrent streams that start anew when they end; keeps the gap before every token."""

    url: str
    max_tokens: int
    gaps: list[tuple[float, float]] = field(default_factory=list)
    done: int = 0
    failed: list[str] = field(default_factory=list)

    async def one(self, client: httpx.AsyncClient, prompt: str) -> None:
        body = {"model": "real", "prompt": prompt, "max_tokens": self.max_tokens, "stream": True, "ignore_eos": True}
        finished, last = False, None
        async with client.stream("POST", f"{self.url}/v1/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if not line.startswith("data: "):
                    continue
                if line == "data: [DONE]":
                    break
                now = time.monotonic()
                if last is not None:
                    self.gaps.append((now, now - last))
                last = now
                finished |= json.loads(line[6:])["choices"][0]["finish_reason"] == "length"
        if finished:
            self.done += 1
        else:
            self.failed.append(prompt[:20])

    def p99(self, since: float, until: float) -> float:
        values = sorted(gap for at, gap in self.gaps if since <= at < until)
        assert len(values) >= 60, f"only {len(values)} gaps"
        return values[int(0.99 * (len(values) - 1))]


@asynccontextmanager
async def running(count: int, work: Callable[[], Any]) -> AsyncIterator[None]:
    """Keep ``count`` copies of a piece of work going until the block ends, then let the last ones finish."""
    stop = asyncio.Event()

    async def repeat() -> None:
        while not stop.is_set():
            await work()

    tasks = [asyncio.create_task(repeat()) for _ in range(count)]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def gauge(client: httpx.AsyncClient, url: str, name: str) -> float:
    page = (await client.get(f"{url}/metrics")).text
    return next(
        float(line.split()[-1])
        for line in page.splitlines()
        if line.startswith(name + ("{" if "vllm:" in name else " "))
    )


async def wait_for(probe: Callable[[], Any], wanted: Callable[[float], bool], *, seconds: float) -> float:
    """Seconds until the probe's value is as wanted. Raises AssertionError with the last value."""
    began, value = time.monotonic(), float("nan")
    while time.monotonic() - began < seconds:
        value = await probe()
        if wanted(value):
            return time.monotonic() - began
        await asyncio.sleep(0.1)
    raise AssertionError(f"still {value} after {seconds} s")


def test_real_vllm_begins_to_load(real: Kit) -> None:
    real.until("its pod", lambda: real.pods("real"))


def test_real_vllm_serves_as_a_tier_and_both_limits_change_live_under_load(served: Kit) -> None:
    pod = served.pods("real")[0]
    url = f"http://{pod['status']['podIP']}:{PORT}"
    cap_streams, budget_streams = asyncio.run(both_limits(served, url))
    after = served.pods("real")[0]
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert [c["restartCount"] for c in after["status"]["containerStatuses"]] == [0]
    assert cap_streams.failed + budget_streams.failed == []
    print(f"streams finished: {cap_streams.done + budget_streams.done}, failed: 0, restarts: 0")


async def both_limits(kit: Kit, url: str) -> tuple[Streams, Streams]:
    async with httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=64)) as client:
        return await resize_the_cap(kit, url, client), await resize_the_budget(kit, url, client)


async def apply_limits(kit: Kit, *, cap: int = 16, budget: int = 2048) -> None:
    wanted = changed(real_tier(), "spec.engine.maxNumSeqs", cap)
    await asyncio.to_thread(kit.apply, changed(wanted, "spec.engine.maxNumBatchedTokens", budget))


async def resize_the_cap(kit: Kit, url: str, client: httpx.AsyncClient) -> Streams:
    """16 → 4 → 16 under sixteen streams: the running batch follows, within seconds of the user's apply."""
    streams = Streams(url, max_tokens=24)  # short, so that a lowered cap drains in a second or two

    async def batch() -> float:
        return await gauge(client, url, "vllm:num_requests_running")

    async with running(STREAMS, lambda: streams.one(client, "Once upon a time")):
        await wait_for(batch, lambda v: v > 12, seconds=20)
        for cap in (4, 16):
            await apply_limits(kit, cap=cap)
            applied = await wait_for(
                lambda: gauge(client, url, "tierkeeper_max_num_seqs_applied"),
                partial(operator.eq, cap),
                seconds=APPLY_SECONDS,
            )
            followed = await wait_for(
                batch, (lambda v: v <= 4) if cap == 4 else (lambda v: v > 12), seconds=APPLY_SECONDS
            )
            print(f"cap {cap}: applied after {applied:.1f} s, running batch followed after {followed:.1f} s more")
    return streams


async def resize_the_budget(kit: Kit, url: str, client: httpx.AsyncClient) -> Streams:
    """2048 → 128 → 2048 beside a train of long prompts: the streams' P99 inter-token latency follows by 3x or more."""
    streams, prompts = Streams(url, max_tokens=120), Streams(url, max_tokens=2)
    number = itertools.count()

    async def long_prompt() -> None:
        await prompts.one(client, f"{next(number):06d}" + "x" * 1800)  # one token a byte, no prefix shared

    p99: dict[int, float] = {}

    def shows(since: float, stops: int) -> bool:
        """Whether long prompts were served, and the step seen last differs from the one before as it should."""
        if WATCHED * stops < LONG_SHARE * sum(at >= since for at, _ in streams.gaps):
            return False
        return len(p99) < 2 or (p99[0] >= 3 * p99[1] and p99.get(2, p99[0]) >= 3 * p99[1])

    async with running(WATCHED, lambda: streams.one(client, "Once upon a time")), running(1, long_prompt):
        for step, budget in enumerate((2048, 128, 2048)):
            await apply_limits(kit, budget=budget)
            applied = await wait_for(
                lambda: gauge(client, url, "tierkeeper_max_num_batched_tokens_applied"),
                partial(operator.eq, budget),
                seconds=APPLY_SECONDS,
            )
            await asyncio.sleep(1)  # what was scheduled under the old budget is out
            began, before, window = time.monotonic(), prompts.done, 0.0
            while window < WINDOW_SECONDS or (
                not shows(began, prompts.done - before) and window < LONGEST_WINDOW_SECONDS
            ):
                await asyncio.sleep(1)
                window = time.monotonic() - began
                if window >= WINDOW_SECONDS:
                    p99[step] = streams.p99(began, began + window)
            print(
                f"token budget {budget}: applied after {applied:.1f} s, "
                f"ITL P99 {p99[step] * 1000:.1f} ms in {window:.0f} s with {prompts.done - before} long prompts"
            )
    assert p99[0] >= 3 * p99[1]
    assert p99[2] >= 3 * p99[1]
    streams.failed += prompts.failed
    return streams
