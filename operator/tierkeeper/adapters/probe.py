"""``ports.EngineProbe``: what a vLLM pod says of itself on /metrics."""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Self

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tierkeeper.ports import AppliedLimits

PLUGIN_GAUGES = (
    "tierkeeper_max_num_seqs_seen",
    "tierkeeper_max_num_batched_tokens_seen",
    "tierkeeper_max_num_seqs_applied",
    "tierkeeper_max_num_batched_tokens_applied",
)
"""Gauges that the live-limit plugin adds to vLLM's own page."""
SUPPORTED_GAUGE = "tierkeeper_live_limit_supported"
"""Its word on the engine: at 0 it reads the limits, and nothing follows them."""
MAX_PAGE_BYTES = 16 * 1024 * 1024
"""A page of vLLM has some 100 kB an engine; what is longer is none, and must not cost the operator its memory."""

LOAD_GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting")


class HttpProbe:
    """See ``ports.EngineProbe``. Proxies of the environment are not used: pods are reached directly."""

    def __init__(self, *, timeout_seconds: float = 2.0, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._timeout = timeout_seconds
        self._http = httpx.AsyncClient(timeout=timeout_seconds, trust_env=False, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def limits(self, *, pod_ip: str, port: int) -> AppliedLimits | None:
        host = f"[{pod_ip}]" if ":" in pod_ip else pod_ip
        try:
            async with asyncio.timeout(self._timeout):  # httpx bounds each read, not the whole of a page that drips
                page = await self._page(f"http://{host}:{port}/metrics")
            return parse_limits(page)
        except (TimeoutError, httpx.HTTPError, ValueError):
            return None

    async def _page(self, url: str) -> str:
        """The text at ``url``. Raises httpx.HTTPError, and ValueError where it is too long or compressed unasked."""
        async with self._http.stream("GET", url, headers={"Accept-Encoding": "identity"}) as answer:
            answer.raise_for_status()
            if answer.headers.get("Content-Encoding", "identity") != "identity":
                raise ValueError("a compressed page, of which no length is known")
            page = bytearray()
            async for part in answer.aiter_bytes():
                page += part
                if len(page) > MAX_PAGE_BYTES:
                    raise ValueError(f"a page of more than {MAX_PAGE_BYTES // 2**20} MiB")
        return page.decode(errors="replace")


def parse_limits(page: str) -> AppliedLimits:
    """Read one /metrics page. Raises ValueError where it is not in the Prometheus text format.

    A pod may hold several engines (data parallel): running and waiting requests add up; of a limit the values must
    agree, or the pod is still between two limits and counts as not saying. So does one whose engine the plugin cannot
    govern: the limits that it has seen would never hold.
    """
    wanted = frozenset((*PLUGIN_GAUGES, *LOAD_GAUGES, SUPPORTED_GAUGE))
    values: dict[str, list[float]] = {name: [] for name in wanted}
    lines = "\n".join(line for line in page.splitlines() if line.split("{", 1)[0].split(" ", 1)[0] in wanted)
    for family in text_string_to_metric_families(lines + "\n"):
        for sample in family.samples:
            if sample.name in values:  # the parser takes more for a name than the line filter does
                values[sample.name].append(sample.value)
    if 0.0 in values[SUPPORTED_GAUGE]:
        return AppliedLimits()
    load = [value for name in LOAD_GAUGES for value in values[name]]
    seqs_seen, tokens_seen, seqs_applied, tokens_applied = (_agreed(values[name]) for name in PLUGIN_GAUGES)
    return AppliedLimits(
        seen_max_num_seqs=seqs_seen,
        seen_token_budget=tokens_seen,
        applied_max_num_seqs=seqs_applied,
        applied_token_budget=tokens_applied,
        idle=bool(load) and sum(load) == 0,
    )


def _agreed(values: list[float]) -> int | None:
    distinct = set(values)
    value = distinct.pop() if len(distinct) == 1 else math.nan
    return int(value) if math.isfinite(value) else None
