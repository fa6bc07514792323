"""The sentences of an assessment: plain, with the numbers. Durations in seconds; shares as percent."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tierkeeper.slo.model import Quantile, Ratio, Sli, Traffic, WindowSli

MOST_NAMES = 5
"""Pods that a sentence names: a pool has up to a thousand."""


def count(number: float, thing: str) -> str:
    """``3 pods``, ``1 pod``."""
    return f"{number:.0f} {thing}" if round(number) == 1 else f"{number:.0f} {thing}s"


def names(all_of_them: Sequence[str]) -> str:
    """``a, b, c``; of many the first five: ``a, b, c, d, e and 995 more``."""
    shown = ", ".join(all_of_them[:MOST_NAMES])
    more = len(all_of_them) - MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


@lru_cache(maxsize=64)
def span(seconds: int) -> str:
    """A window in the largest whole unit: ``5 min``, ``6 h``, ``90 s``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def latency(seconds: float) -> str:
    """``1.62 s`` for what people feel, ``42 ms`` below half a second."""
    return f"{seconds:.2f} s" if seconds >= 0.5 else f"{seconds * 1000:.3g} ms"


def percent(share: float) -> str:
    """``3.1%``, ``37%``; small shares keep two digits, so that 0.04% does not read as none."""
    value = share * 100
    if value >= 10:
        return f"{value:.0f}%"
    return f"{value:.1f}%" if value >= 0.1 or value == 0 else f"{value:.2g}%"


def slo(sli: Sli, window: WindowSli, p99: Quantile | None, threshold: float, neighbours: tuple[float, ...]) -> str:
    """What the evidence window shows of one SLO."""
    reading = ""
    if p99 is not None:
        at = f"at or above {latency(p99.seconds)}" if p99.at_or_above else latency(p99.seconds)
        reading = f"P99 is {at} against {latency(threshold)}; "
    text = (
        f"{sli} {reading}{percent(window.ratio.point)} of {count(window.total, 'request')} in {span(window.seconds)} "
        f"missed {'it' if reading else latency(threshold)}; burn {window.burn.point:.1f}x"
    )
    return f"{text}{bracket(window.ratio, neighbours)}."


def bracket(ratio: Ratio, neighbours: tuple[float, ...]) -> str:
    """How wide the reading is where the target lies between two bucket edges; empty where it is exact."""
    if not neighbours:
        return ""
    edges = " and ".join(latency(edge) for edge in neighbours)
    return (
        f" (estimated: between {percent(ratio.lower)} and {percent(ratio.upper)}, because the engine's nearest "
        f"bucket edges are {edges}; a target on an edge is measured exactly)"
    )


def no_requests(sli: Sli, seconds: int) -> str:
    """An SLO nobody tested in the evidence window."""
    done = "got a first token" if sli is Sli.TTFT else "finished"
    return f"No request {done} within {span(seconds)}, so {sli} cannot be judged."


def unmeasurable(*, sli: Sli, threshold: float, top: float, metric: str) -> str:
    """A target above every bucket edge."""
    return (
        f"{sli} target {latency(threshold)} cannot be measured with this engine: the highest bucket of {metric} ends "
        f"at {latency(top)}. Set a target of at most {latency(top)}, or add the edge with --custom-histogram-buckets."
    )


def idle(traffic: Traffic, seconds: int) -> str:
    """Series are there, requests are not."""
    return f"No request in {span(seconds)} and none running or waiting; {_reporting(traffic)}."


def traffic(traffic: Traffic, seconds: int) -> str:
    """What the pool is carrying."""
    return (
        f"{count(traffic.requests_5m, 'request')} in {span(seconds)}; {traffic.running:.0f} running, "
        f"{traffic.waiting:.0f} waiting; {_reporting(traffic)}."
    )


def _reporting(traffic: Traffic) -> str:
    text = f"{traffic.observed_pods} of {count(traffic.live_pods, 'pod')} report"
    return f"{text} (no fresh samples of {names(traffic.unobserved)})" if traffic.unobserved else text
