"""Every query of the loop on real Prometheus servers, over pages shaped like vLLM's: the right numbers come back.

Prometheus 3 writes ``le="1.0"`` whatever the page says, Prometheus 2 keeps ``le="1"``; both must give one answer.
Scrapes are a second apart and the windows short, so that one look takes seconds. No cluster is needed.
"""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from e2e import tools
from tierkeeper.adapters.prometheus import PrometheusSource
from tierkeeper.render import promql
from tierkeeper.render.promql import queries
from tierkeeper.slo.assess import assess
from tierkeeper.slo.burn import BurnPair, Windows
from tierkeeper.slo.model import Assessment, Sample, SignalState, Sli
from tierkeeper.slo.readings import Readings, group
from tierkeeper.slo.signals import MetricLabels, Signal, SignalKind
from tierkeeper.tier import Objective, TierKey

pytestmark = [pytest.mark.e2e, pytest.mark.alongside, pytest.mark.timeout(900)]

PAGE = Path(__file__).parents[2] / "tests/e2e_engine/data/vllm-0.32.0-metrics.txt"
"""A page of stock vLLM 0.32: names, labels and bucket edges come from it, the figures from ``Pod``."""

SAMPLE = re.compile(r"(?P<name>[\w:]+)\{(?P<labels>[^}]*)\} ")
LABELS = MetricLabels()
WINDOWS = Windows((BurnPair(6, 12, 6.0),))
SETTLE_SECONDS = 17.0
"""The long window and some scrapes: the restart lies inside the window, the start-up before it."""
RESTART_AT = 10.0
SHORT_PERIOD = Signal(SignalKind.TTFT_BUCKETS, 16)

OBJECTIVE = Objective(ratio=0.99, ttft_seconds=1.0, tpot_seconds=0.1)
GOLD, SILVER, BRONZE, IDLE, ODD = (
    TierKey("llm", "gold"),
    TierKey("llm", "silver"),
    TierKey("llm", "bronze"),
    TierKey("lab", "gold"),
    TierKey("llm", "odd"),
)
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
    restarts: bool = False
    nan_until: float = 0.0
    """Its buckets are NaN for so many seconds."""
    gone: bool = False
    """Answers 404: a scrape error."""

    @property
    def path(self) -> str:
        return f"/{self.tier.namespace}/{self.name}"


PODS = (
    Pod("gold-a", GOLD, copies=2),
    Pod("gold-b", GOLD, whole_edges=True, restarts=True),
    Pod("gold-c", GOLD, gone=True),
    Pod("silver-a", SILVER, running=(60.0, 2.0), kv=(0.5, 0.1)),
    Pod("bronze-old", BRONZE, before_0_10=True),
    Pod("bronze-mid", BRONZE, both_names=True),
    Pod("bronze-new", BRONZE),
    Pod("gold-a", IDLE, rate=0.0, running=(0.0,), waiting=0.0),
    Pod("odd-a", ODD, nan_until=8.0),
)


def page(pod: Pod, seconds: float) -> str:
    """The pod's metrics page so long after the start."""
    if pod.restarts and seconds > RESTART_AT:
        seconds -= RESTART_AT
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


@contextmanager
def exporter() -> Iterator[tuple[int, list[float]]]:
    """Serves the pages on loopback; gives the port, and a list that holds the start time once it is set."""
    started: list[float] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pod = next((p for p in PODS if p.path == self.path and not p.gone), None)
            body = page(pod, time.monotonic() - started[0]).encode() if pod and started else b""
            self.send_response(200 if pod else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port, started
    finally:
        server.shutdown()
        server.server_close()


def configuration(port: int) -> str:
    """Static targets with the labels that a PodMonitor would give them."""
    lines = ["global: {scrape_interval: 1s, scrape_timeout: 900ms}", "scrape_configs:"]
    for replica in range(max(pod.copies for pod in PODS)):
        lines += [f"- job_name: pods-{replica}", "  static_configs:"]
        for pod in PODS:
            if replica < pod.copies:
                labels = (
                    f"{{__metrics_path__: {pod.path}, namespace: {pod.tier.namespace}, tier: {pod.tier.name}, "
                    f"pod: {pod.name}, prometheus_replica: r{replica}}}"
                )
                lines += [f"  - targets: ['127.0.0.1:{port}']", f"    labels: {labels}"]
    return "\n".join(lines) + "\n"


@contextmanager
def prometheus(binary: Path, folder: Path, target_port: int) -> Iterator[str]:
    """A server on loopback for the length of the test; gives its URL once it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    config = folder / "prometheus.yml"
    config.write_text(configuration(target_port))
    log = folder / "prometheus.log"
    command = [
        str(binary),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, cwd=folder) as server:
        try:
            _wait_ready(f"http://127.0.0.1:{port}", server, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            try:
                server.wait(timeout=20)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait_ready(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=1) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise AssertionError(f"Prometheus was not ready within 60 s:\n{log.read_text()[-2000:]}")


@dataclass
class Look:
    """What the loop saw of all tiers at one moment."""

    answers: dict[Signal, Sequence[Sample]] = field(default_factory=dict)
    seconds: dict[Signal, float] = field(default_factory=dict)

    @property
    def readings(self) -> dict[TierKey, Readings]:
        return group(self.answers, LABELS)

    def assessment(self, key: TierKey, objective: Objective | None = OBJECTIVE) -> Assessment:
        return assess(
            now=1000.0,
            key=key,
            objective=objective,
            readings=self.readings.get(key),
            live_pods=[pod.name for pod in PODS if pod.tier == key],
            ready_since=0.0,
            previous=None,
            scrape_interval_seconds=1,
            windows=WINDOWS,
        )


async def take(url: str) -> Look:
    """Ask every query once; any error or warning of missing data fails the test."""
    look = Look()
    async with PrometheusSource(url, timeout_seconds=20.0) as source:

        async def ask(signal: Signal, promql: str) -> None:
            begun = time.monotonic()
            look.answers[signal] = await source.query(promql)
            look.seconds[signal] = time.monotonic() - begun

        asked = queries(LABELS, WINDOWS, budget_days=(1, 30))
        await asyncio.gather(*(ask(query.signal, query.promql) for query in asked))
        # The budget's query over a period that a test can wait for.
        await ask(SHORT_PERIOD, promql._Renderer(LABELS).ttft(f"[{SHORT_PERIOD.window_seconds}s:1s]"))
    return look


@pytest.fixture(scope="module", params=["prometheus-3", "debian-prometheus-2"])
def look(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Look:
    """One look at all pods after they have been scraped for a whole window."""
    binary = tools.prometheus() if request.param == "prometheus-3" else tools.debian_prometheus()
    with exporter() as (port, started), prometheus(binary, tmp_path_factory.mktemp(request.param), port) as url:
        started.append(time.monotonic())
        time.sleep(SETTLE_SECONDS)
        found = asyncio.run(take(url))
    slowest = max(found.seconds, key=lambda s: found.seconds[s])
    print(f"\n{request.param}: {len(found.answers)} queries, slowest {slowest} {found.seconds[slowest] * 1000:.0f} ms")
    return found


def near(value: float) -> Any:
    """Scrape times jitter on a busy machine; figures over a window follow."""
    return pytest.approx(value, rel=0.15)


def test_every_query_is_accepted_and_answers(look: Look) -> None:
    """Only the budget's subquery, which samples once a minute, has nothing to say so soon."""
    silent = {signal for signal, samples in look.answers.items() if not samples}
    assert all(signal.window_seconds >= 86400 for signal in silent)


def test_tiers_of_one_name_in_two_namespaces_are_two(look: Look) -> None:
    assert {GOLD, IDLE} <= set(look.readings)
    assert look.assessment(IDLE).state is SignalState.NO_TRAFFIC
    assert look.assessment(GOLD).state is SignalState.OK


def test_m08_a_pod_scraped_twice_counts_once(look: Look) -> None:
    traffic = look.assessment(GOLD).traffic
    assert (traffic.running, traffic.waiting, traffic.waiting_floor) == (8.0, 4.0, 4.0)
    assert traffic.requests_per_second == near(20.0)


def test_m19_a_restart_inside_the_window_is_no_fall_and_no_jump(look: Look) -> None:
    """gold-b started from zero again; its rates go on as if nothing had been."""
    assessment = look.assessment(GOLD)
    assert assessment.traffic.requests_5m == near(20.0 * WINDOWS.evidence)
    assert assessment.traffic.generation_tokens_per_second == near(2000.0)


def test_m22_the_target_is_found_on_its_edge_in_either_spelling(look: Look) -> None:
    ttft = look.assessment(GOLD).ttft
    assert ttft is not None
    assert ttft.boundary_aligned
    window = ttft.window(WINDOWS.evidence)
    assert window is not None
    assert window.ratio.point == pytest.approx(0.03, abs=0.001)
    assert window.total == near(240.0)
    assert window.burn.point == pytest.approx(3.0, abs=0.1)


def test_tpot_is_read_by_request(look: Look) -> None:
    tpot = look.assessment(GOLD).tpot
    assert tpot is not None
    assert tpot.metric == REQUEST_TPOT
    assert tpot.windows[-1].ratio.point == pytest.approx(0.02, abs=0.001)


def test_m09_m10_old_and_new_pods_are_read_by_the_family_all_have(look: Look) -> None:
    assessment = look.assessment(BRONZE)
    assert assessment.tpot is not None
    assert assessment.tpot.metric == f"{ITL} + {OLD_TPOT}"
    assert assessment.tpot.windows[-1].ratio.point == pytest.approx(0.04, abs=0.001)
    assert assessment.tpot.windows[-1].total == near(3 * 10 * 99 * WINDOWS.evidence)
    assert assessment.traffic.kv_cache_usage == pytest.approx(0.3)


def test_m21_the_engines_of_a_pod_are_summed_and_cache_use_is_averaged(look: Look) -> None:
    assessment = look.assessment(SILVER)
    assert (assessment.traffic.running, assessment.traffic.waiting) == (62.0, 4.0)
    assert assessment.traffic.kv_cache_usage == pytest.approx(0.3)
    assert assessment.traffic.requests_per_second == near(20.0)
    assert assessment.slos[Sli.TTFT].windows[-1].total == near(240.0)


def test_c08_a_pod_that_cannot_be_scraped_is_listed(look: Look) -> None:
    traffic = look.assessment(GOLD).traffic
    assert (traffic.observed_pods, traffic.live_pods, traffic.unobserved) == (2, 3, ("gold-c",))


def test_m01_a_nan_in_the_buckets_is_said(look: Look) -> None:
    assessment = look.assessment(ODD)
    assert (assessment.state, assessment.reason) == (SignalState.AMBIGUOUS, "NotANumber")


def test_m24_a_nan_leaves_the_period_as_soon_as_it_is_over(look: Look) -> None:
    """The period holds seconds of NaN and seconds of good counts: only the good ones are read."""
    found = look.readings[ODD].histograms(Sli.TTFT, control=WINDOWS.seconds)[SHORT_PERIOD.window_seconds]
    assert found.problem is None
    assert found.histogram is not None
    counts = dict(zip(found.histogram.edges, found.histogram.counts, strict=True))
    assert 1 - counts[1.0] / counts[float("inf")] == pytest.approx(0.03, abs=0.001)


def test_t13_ages_are_small_and_measured_by_prometheus(look: Look) -> None:
    ages = look.readings[GOLD].pods[SignalKind.SAMPLE_AGE]
    assert set(ages) == {"gold-a", "gold-b"}
    assert all(0.0 <= age < 3.0 for age in ages.values())


def test_rates_and_means_are_the_pods_own(look: Look) -> None:
    traffic = look.assessment(SILVER).traffic
    assert traffic.finished_per_second == near(22.0)
    assert traffic.prompt_tokens_per_second == near(10000.0)
    assert traffic.preemptions_per_second == near(2.0)
    assert traffic.rejected_per_second == near(4.0)
    assert traffic.mean_queue_seconds == pytest.approx(0.1, rel=1e-3)
    assert traffic.mean_prefill_seconds == pytest.approx(0.2, rel=1e-3)
    assert traffic.mean_ttft_seconds == pytest.approx(0.97 * 0.3 + 0.03 * 1.7, rel=1e-3)
    assert traffic.mean_prompt_tokens == pytest.approx(500.0, rel=1e-3)
    assert traffic.mean_output_tokens == pytest.approx(100.0, rel=1e-3)
