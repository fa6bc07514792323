"""The same samples in the simulator's store and in a real Prometheus: every query of the loop gives the same answer.

Samples go to Prometheus by remote write, with their own times and with staleness markers, and the queries are those
that ``render.promql`` writes. Pods come and go, scrapes get lost, counters reset and pages hold NaN meanwhile.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import numpy as np
import pytest

from e2e import tools
from e2e.tools.server import serving
from tests.sim.pages import COLUMNS, page
from tierkeeper.render.promql import Query, queries
from tierkeeper.sim.scrape import EPOCH_SECONDS, Faults, Scraping, milliseconds
from tierkeeper.sim.source import LABELS, Source, answer
from tierkeeper.slo.burn import CONTROL_WINDOWS
from tierkeeper.slo.signals import Signal
from tierkeeper.tier import TierKey

pytestmark = [pytest.mark.built, pytest.mark.timeout(900)]

KEY = TierKey("llm", "gold")
HOURS = 8.5
LIVES = {"a": (0.0, HOURS), "b": (0.0, 2.1), "c": (1.3, HOURS), "d": (4.0, 4.6), "e": (6.49, HOURS)}
"""Hours from and to which each pod is there. Pod b is forgotten before the last look, pod d's life lies within its
longest window."""
RATE = {"a": 2.0, "b": 1.0, "c": 0.3, "d": 5.0, "e": 0.02}
LOOKS = (0.01, 0.05, 1.305, 2.0, 2.102, 2.106, 3.3, 4.61, 6.5, 8.2, 8.49)
"""Hours at which all queries are asked."""
RECEIVER = "--web.enable-remote-write-receiver"
STALE = np.full(COLUMNS.counters + COLUMNS.gauges, 0x7FF0000000000002, dtype="<u8")
"""Prometheus' staleness marker, one special NaN, for each series of a page."""
SAMPLE = np.dtype([("head", "V3"), ("value", "<u8"), ("time", "V7")])
"""Protobuf: field 2 of 16 bytes, in which field 1 is a double and field 2 a varint of six bytes, which times have."""

QUERIES = queries(LABELS, CONTROL_WINDOWS, budget_days={30})
Labels = tuple[tuple[str, str], ...]
Rows = Mapping[str, list[tuple[int, Any]]]
"""By pod, in the order of their times: milliseconds, and the bits of a page's values by column."""
Answers = dict[tuple[Signal, float], dict[Labels, float]]


def story(seed: int = 7) -> tuple[Answers, Rows]:
    """Scrape the pods for some hours; gives the answers at each look, and all that was stored."""
    faults = Faults(lost_scrapes=0.05, nan_scrapes=0.01, resets_per_hour=1.5)
    scraping = Scraping(jitter_seconds=0.4)
    source = Source({KEY: COLUMNS}, scraping, budget_days={30}, faults=faults, seed=seed)
    scraper = source.scrapers[KEY]
    stored = recorded(scraper.store)
    rng = np.random.default_rng(seed)
    looks, answers = list(LOOKS), Answers()
    for number in range(int(HOURS * 3600 / scraping.interval_seconds)):
        start = number * scraping.interval_seconds
        scraper.next_round(start)
        for offset in range(scraping.offsets):
            at = start + (offset + 0.5) * 5 + rng.uniform(-0.4, 0.4)
            if looks and looks[0] * 3600 < at:
                answers |= look(source, looks.pop(0))
            pages = [
                page(name, requests=RATE[name] * (at - born * 3600), running=int(rng.integers(9)), waiting=int(at) % 3)
                for name, (born, gone) in LIVES.items()
                if born * 3600 <= at < gone * 3600
            ]
            scraper.scrape(pages, at=at, offset=offset)
    return answers, stored


def look(source: Source, hours: float) -> Answers:
    """What the store answers to each query, by the labels of the samples."""
    view = source.scrapers[KEY].at(hours * 3600)
    found = Answers()
    for query in QUERIES:
        samples = answer(query.signal, KEY, view, stepped=query.optional)
        found[query.signal, hours] = {tuple(sorted(sample.labels.items())): sample.value for sample in samples}
    return found


def recorded(store: Any) -> Rows:
    """Note whatever the store is given from now on."""
    stored: dict[str, list[tuple[int, Any]]] = defaultdict(list)
    append, mark = store.append, store.mark_stale

    def noted_append(pod: str, at_ms: int, row: Any) -> None:
        stored[pod].append((at_ms, row.copy().view("<u8")))
        append(pod, at_ms, row)

    def noted_mark(pod: str, at_ms: int) -> None:
        if pod in stored:
            stored[pod].append((at_ms, STALE))
        mark(pod, at_ms)

    store.append, store.mark_stale = noted_append, noted_mark
    return stored


def labels(pod: str, name: str, le: str) -> Labels:
    found = {
        "__name__": name,
        "engine": "0",
        "model_name": "m",
        "namespace": KEY.namespace,
        "pod": pod,
        "tier": KEY.name,
    }
    return tuple(sorted((found | ({"le": le} if le else {})).items()))


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def block(field: int, body: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return varint(field << 3 | 2) + varint(len(body)) + body


def write_request(stored: Rows, low: int, high: int) -> bytes:
    """A remote-write request with the samples of [low, high) milliseconds."""
    places = [(name, le, int(column)) for name, le, column in COLUMNS.text(np.arange(float(len(STALE))))]
    body = b""
    for pod, rows in stored.items():
        first, end = (bisect_left(rows, at, key=lambda row: row[0]) for at in (low, high))
        if first == end:
            continue
        points = np.empty((len(STALE), end - first), dtype=SAMPLE)
        points["head"] = np.void(b"\x12\x10\x09")
        points["value"] = np.stack([values for _, values in rows[first:end]], axis=1)
        points["time"] = [np.void(b"\x10" + varint(at)) for at, _ in rows[first:end]]
        for name, le, column in places:
            pairs = labels(pod, name, le)
            named = b"".join(block(1, block(1, key.encode()) + block(2, value.encode())) for key, value in pairs)
            body += block(1, named + points[column].tobytes())
    return body


def snappy(body: bytes) -> bytes:
    """The block format with literals only: nothing is compressed."""
    out = bytearray(varint(len(body)))
    for start in range(0, len(body), 65536):
        chunk = body[start : start + 65536]
        out += bytes([61 << 2]) + struct.pack("<H", len(chunk) - 1) + chunk
    return bytes(out)


def write(prometheus: httpx.Client, stored: Rows) -> None:
    """All samples, a quarter of an hour at a time."""
    first, last = EPOCH_SECONDS * 1000, int((EPOCH_SECONDS + HOURS * 3600) * 1000) + 60_000
    for low in range(first, last, 900_000):
        headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "snappy",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }
        body = snappy(write_request(stored, low, low + 900_000))
        assert prometheus.post("/api/v1/write", content=body, headers=headers).status_code == 204


def ask(prometheus: httpx.Client, promql: str, at: float) -> dict[Labels, float]:
    found = prometheus.get("/api/v1/query", params={"query": promql, "time": f"{at:.3f}"}).json()
    return {tuple(sorted(s["metric"].items())): float(s["value"][1]) for s in found["data"]["result"]}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Answers, httpx.Client]]:
    answers, stored = story()
    folder, options = tmp_path_factory.mktemp("prometheus"), ("--storage.tsdb.retention.time=100y", RECEIVER)
    with (
        serving(tools.prometheus(), folder, "global: {}\n", *options) as url,
        httpx.Client(base_url=url, timeout=60.0) as prometheus,
    ):
        write(prometheus, stored)
        yield answers, prometheus


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: str(query.signal))
def test_every_query_has_the_answer_of_prometheus(both: tuple[Answers, httpx.Client], query: Query) -> None:
    answers, prometheus = both
    numbers = 0
    for hours in LOOKS:
        truth = ask(prometheus, query.promql, milliseconds(hours * 3600) / 1000)
        assert answers[query.signal, hours] == pytest.approx(truth, rel=1e-9, abs=1e-9, nan_ok=True), f"at {hours} h"
        numbers += any(math.isfinite(value) for value in truth.values())
    assert numbers >= 6
