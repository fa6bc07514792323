"""A replica that is taken away finishes what it streams."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import pytest

from e2e.load import Status
from e2e.load.client import Outcome, body, complete
from e2e.scenarios.kit import PORT, Kit, changed, tier

pytestmark = [pytest.mark.e2e, pytest.mark.alongside, pytest.mark.timeout(300)]

PRE_STOP_SECONDS = 15
"""For so long a pod that goes serves on as if nothing were; then its engine drains."""

LONG_STREAM = 800
"""Tokens; 20 s on the vLLM-shaped engine."""


def test_r09_a_stream_that_outlasts_the_endpoint_of_its_pod_ends_normally_when_the_pool_shrinks(kit: Kit) -> None:
    two = changed(tier("gold", rollout={"drainSeconds": 30}), "spec.scaling.mode", "Fixed")
    two = changed(two, "spec.scaling.replicas", {"min": 2, "max": 2})
    kit.apply(two)
    kit.until_ready("gold")
    streams, left_at = asyncio.run(shrunk_under_streams(kit, changed(two, "spec.scaling.replicas.min", 1)))
    print({pod: (stream.status.value, round(stream.last_token - left_at, 1)) for pod, stream in streams.items()})
    assert [(stream.status, stream.tokens, stream.error) for stream in streams.values()] == [
        (Status.OK, LONG_STREAM, "")
    ] * 2
    (stays,) = (pod["metadata"]["name"] for pod in kit.pods("gold"))
    (gone,) = (stream for pod, stream in streams.items() if pod != stays)
    assert gone.last_token - left_at > PRE_STOP_SECONDS


async def shrunk_under_streams(kit: Kit, fewer: dict[str, Any]) -> tuple[dict[str, Outcome], float]:
    """One stream at each pod, and when the pool had one pod less."""
    pods = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in kit.pods("gold")}
    streams = {name: Outcome() for name in pods}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
        asked = [
            complete(
                session,
                f"http://{address}:{PORT}",
                body(model="gold", prompt_tokens=8, output_tokens=LONG_STREAM, number=number),
                outcome=streams[name],
                on_first_token=lambda _: None,
            )
            for number, (name, address) in enumerate(pods.items())
        ]
        answers = asyncio.gather(*asked)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(kit.apply, fewer)
        await asyncio.to_thread(kit.until, "a pod to be on its way out", lambda: len(kit.pods("gold")) == 1)
        left_at = time.monotonic()
        await answers
    return streams, left_at
