"""Pages shaped like vLLM's with figures that are known, served on loopback for a Prometheus to scrape."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

from tierkeeper.tier import TierKey

PAGE = Path(__file__).parents[2] / "tests/e2e_engine/data/vllm-0.32.0-metrics.txt"
"""A page of stock vLLM 0.32: names, labels and bucket edges come from it, the figures from ``Pod``."""

SAMPLE = re.compile(r"(?P<name>[\w:]+)\{(?P<labels>[^}]*)\} ")
REQUEST_TPOT = "vllm:request_time_per_output_token_seconds"
ITL = "vllm:inter_token_latency_seconds"
OLD_TPOT = "vllm:time_per_output_token_seconds"

LATENCIES: Mapping[str, Mapping[float, float]] = {
    "vllm:time_to_first_token_seconds": {0.3: 0.97, 1.7: 0.03},
    REQUEST_TPOT: {0.04: 0.98, 0.3: 0.02},
    ITL: {0.04: 0.96, 0.3: 0.04},
    "vllm:request_queue_time_seconds": {0.1: 1.0},
    "vllm:request_prefill_time_seconds": {0.2: 1.0},
    "vllm:request_prompt_tokens": {500.0: 1.0},
    "vllm:request_generation_tokens": {100.0: 1.0},
}
"""Share of the observations at each value; the truth that the loop has to find."""

PER_REQUEST = {ITL: 99.0, "vllm:prompt_tokens_total": 500.0, "vllm:generation_tokens_total": 100.0}
"""How much of these one request brings; everything else counts once."""


@dataclass(frozen=True)
class Pod:
    """One scraped pod: steady counters, ``rate`` requests a second and engine."""

    name: str
    tier: TierKey
    rate: float = 10.0
    running: Sequence[float] = (4.0,)
    """By engine."""
    kv: Sequence[float] = (0.3,)
    waiting: float = 2.0
    copies: int = 1
    """How many scrape jobs, as by a pair of Prometheus servers, have it."""
    whole_edges: bool = False
    """Writes le="1" where vLLM writes le="1.0"."""
    before_0_10: bool = False
    """Has the names of old vLLM: per-token latency and cache use."""
    both_names: bool = False
    """Has per-token latency under its new and its old name, as vLLM 0.11 does."""
    restarts_at: float = math.inf
    """Seconds after the start at which its counters begin anew."""
    nan_until: float = 0.0
    """Its buckets are NaN for so many seconds."""
    gone: bool = False
    """Answers 404: a scrape error."""

    @property
    def path(self) -> str:
        return f"/{self.tier.namespace}/{self.name}"


def page(pod: Pod, seconds: float) -> str:
    """The pod's metrics page so long after the start."""
    if seconds > pod.restarts_at:
        seconds -= pod.restarts_at
    lines = []
    for engine, running in enumerate(pod.running):
        for line in PAGE.read_text().splitlines():
            found = SAMPLE.match(line)
            if found is None or "_created" in line:
                continue
            labels = found["labels"].replace('engine="0"', f'engine="{engine}"')
            name = found["name"]
            if engine and "engine=" not in labels:
                continue
            value = _value(pod, name, labels, seconds, running, pod.kv[engine])
            if pod.before_0_10:
                if name.startswith(REQUEST_TPOT):
                    continue
                name = name.replace(ITL, OLD_TPOT).replace("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
            if pod.whole_edges:
                labels = re.sub(r'le="(\d+)\.0"', r'le="\1"', labels)
            lines.append(f"{name}{{{labels}}} {value!r}\n")
            if pod.both_names and name.startswith(ITL):
                lines.append(f"{name.replace(ITL, OLD_TPOT)}{{{labels}}} {value!r}\n")
    return "".join(lines)


def _value(pod: Pod, name: str, labels: str, seconds: float, running: float, kv: float) -> float:
    gauges = {
        "vllm:num_requests_running": running,
        "vllm:num_requests_waiting": pod.waiting,
        "vllm:kv_cache_usage_perc": kv,
    }
    if name in gauges:
        return gauges[name]
    requests = pod.rate * seconds
    family = re.sub(r"_(bucket|sum|count)$", "", name)
    if family in LATENCIES:
        observations = requests * PER_REQUEST.get(family, 1.0)
        if name.endswith("_count"):
            return observations
        if name.endswith("_sum"):
            return observations * sum(value * share for value, share in LATENCIES[family].items())
        if seconds < pod.nan_until:
            return float("nan")
        edge = float(re.search(r'le="([^"]+)"', labels)[1])  # type: ignore[index]
        return observations * sum(share for value, share in LATENCIES[family].items() if value <= edge)
    if name == "vllm:request_success_total":
        return requests if 'finished_reason="stop"' in labels else requests / 10 if '"length"' in labels else 0.0
    if name == "vllm:admission_rejections_total":
        return requests / 5
    if name in ("vllm:num_preemptions_total", *PER_REQUEST):
        return requests * PER_REQUEST.get(name, 0.1)
    return 0.0


@dataclass
class Scrapes:
    """When the pages began to count, and when each scrape was answered (monotonic seconds)."""

    started: float | None = None
    answered: dict[str, list[float]] = field(default_factory=dict)

    def longest_gap(self, *, seconds: float) -> float:
        """Seconds between two scrapes of one pod, in the last so many seconds."""
        now = time.monotonic()
        since = now - seconds
        every = [[since, *(at for at in times if at > since), now] for times in self.answered.values()]
        return max(later - earlier for times in every for earlier, later in pairwise(times))


@contextmanager
def exporter(pods: Sequence[Pod]) -> Iterator[tuple[int, Scrapes]]:
    """Serves the pages on loopback; gives the port. The pages are empty until a start time is set."""
    scrapes = Scrapes()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pod = next((p for p in pods if p.path == self.path and not p.gone), None)
            begun = scrapes.started
            body = page(pod, time.monotonic() - begun).encode() if pod and begun else b""
            with suppress(ConnectionError):  # a scrape that gave up: it does not count
                self.send_response(200 if pod else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                if begun:
                    scrapes.answered.setdefault(self.path, []).append(time.monotonic())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port, scrapes
    finally:
        server.shutdown()
        server.server_close()


def configuration(pods: Sequence[Pod], port: int) -> str:
    """Static targets with the labels that a PodMonitor would give them."""
    lines = ["global: {scrape_interval: 1s, scrape_timeout: 900ms}", "scrape_configs:"]
    for replica in range(max(pod.copies for pod in pods)):
        lines += [f"- job_name: pods-{replica}", "  static_configs:"]
        for pod in pods:
            if replica < pod.copies:
                labels = (
                    f"{{__metrics_path__: {pod.path}, namespace: {pod.tier.namespace}, tier: {pod.tier.name}, "
                    f"pod: {pod.name}, prometheus_replica: r{replica}}}"
                )
                lines += [f"  - targets: ['127.0.0.1:{port}']", f"    labels: {labels}"]
    return "\n".join(lines) + "\n"
