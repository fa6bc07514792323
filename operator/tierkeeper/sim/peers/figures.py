"""What a peer may look at: the plain figures of one tier at one tick, and how they are read from the scraped series."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tierkeeper.sim.columns import INTER_TOKEN, REQUEST_TPOT, TTFT
from tierkeeper.sim.policy import TierView
from tierkeeper.sim.scrape import View
from tierkeeper.slo.model import Histogram, SignalState

_RUNNING, _WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
_KV_USAGE = "vllm:kv_cache_usage_perc"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PodLoad:
    """The gauges of one Ready pod."""

    running: float
    waiting: float
    kv_usage: float = 0.0
    """Share of the KV cache in use, in [0, 1]."""

    @property
    def concurrency(self) -> float:
        """Requests inside the pod, running or waiting."""
        return self.running + self.waiting


@dataclass(frozen=True, slots=True)
class StepReport:
    """The last engine step of one pod and its queue, as an instrumented engine publishes them."""

    wall_seconds: float = 0.0
    prefill_tokens: int = 0
    sequences: int = 0
    """Sequences that got a token in the step."""
    kv_tokens: int = 0
    """Tokens of context of those sequences."""
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Means:
    """Rates and means of the pool over a window; None where nothing was counted."""

    requests_per_second: float | None = None
    """First tokens a second."""
    finished_per_second: float | None = None
    prompt_tokens: float | None = None
    """Mean of a finished request; so are the output tokens."""
    output_tokens: float | None = None
    ttft_seconds: float | None = None
    itl_seconds: float | None = None
    """Mean time between two tokens."""


class Figures(Protocol):
    """One tier at one tick. What the scrape could not give is None or left out, never zero."""

    @property
    def reachable(self) -> bool:
        """Whether Prometheus answers. What does not ask it works on without."""
        ...

    @property
    def replicas(self) -> int:
        """The scale target's ``spec.replicas``."""
        ...

    @property
    def ready(self) -> int:
        """Ready pods, those that drain left out."""
        ...

    @property
    def max_num_seqs(self) -> int: ...

    @property
    def ttft_target_seconds(self) -> float | None: ...

    @property
    def tpot_target_seconds(self) -> float | None: ...

    def pods(self) -> Mapping[str, PodLoad]:
        """Ready pods as Prometheus has them, by name."""
        ...

    def own_scrape(self) -> Mapping[str, PodLoad]:
        """Ready pods as an autoscaler sees them that scrapes them itself: no later than their newest page."""
        ...

    def ttft(self, q: float, window_seconds: int) -> float | None:
        """``histogram_quantile`` of TTFT over a window, in seconds; None where nothing was counted."""
        ...

    def tpot(self, q: float, window_seconds: int) -> float | None: ...

    def means(self, window_seconds: int) -> Means: ...

    def steps(self) -> Mapping[str, StepReport]:
        """Last step of each Ready pod, by name; an idle new pod has an empty one."""
        ...


@dataclass(frozen=True, slots=True)
class Scraped:
    """The figures of one tier as the simulated cluster shows them at ``now`` (seconds of the run)."""

    view: TierView
    now: float

    @property
    def reachable(self) -> bool:
        return self.view.assessment.state is not SignalState.SOURCE_DOWN

    @property
    def replicas(self) -> int:
        return self.view.pool.current.replicas

    @property
    def ready(self) -> int:
        return self.view.pool.ready

    @property
    def max_num_seqs(self) -> int:
        return self.view.pool.current.max_num_seqs

    @property
    def ttft_target_seconds(self) -> float | None:
        objective = self.view.spec.objective
        return objective.ttft_seconds if objective else None

    @property
    def tpot_target_seconds(self) -> float | None:
        objective = self.view.spec.objective
        return objective.tpot_seconds if objective else None

    def pods(self) -> Mapping[str, PodLoad]:
        return self._loads(self.view.samples)

    def own_scrape(self) -> Mapping[str, PodLoad]:
        return self._loads(self.view.samples.scraper.at(self.now))

    def ttft(self, q: float, window_seconds: int) -> float | None:
        return prometheus_quantile(self.view.samples.histogram(TTFT, window_seconds), q)

    def tpot(self, q: float, window_seconds: int) -> float | None:
        return prometheus_quantile(self.view.samples.histogram(REQUEST_TPOT, window_seconds), q)

    def means(self, window_seconds: int) -> Means:
        samples = self.view.samples
        return Means(
            requests_per_second=_finite(samples.rate(f"{TTFT}_count", window_seconds)),
            finished_per_second=_finite(samples.rate("vllm:request_success_total", window_seconds)),
            prompt_tokens=_finite(samples.mean("vllm:request_prompt_tokens", window_seconds)),
            output_tokens=_finite(samples.mean("vllm:request_generation_tokens", window_seconds)),
            ttft_seconds=_finite(samples.mean(TTFT, window_seconds)),
            itl_seconds=_finite(samples.mean(INTER_TOKEN, window_seconds)),
        )

    def steps(self) -> Mapping[str, StepReport]:
        newest = self.view.samples.scraper.at(self.now)
        wall, prefill = newest.gauge("step:wall_seconds"), newest.gauge("step:prefill_tokens")
        sequences, context = newest.gauge("step:sequences"), newest.gauge("step:kv_tokens")
        return {
            name: StepReport(waiting=int(load.waiting))
            if not math.isfinite(wall[name])
            else StepReport(wall[name], int(prefill[name]), int(sequences[name]), int(context[name]), int(load.waiting))
            for name, load in self._loads(newest).items()
        }

    def _loads(self, samples: View) -> dict[str, PodLoad]:
        """Pods that report. Those that drain report too, but belong to no scale target any more: they get no new
        request and left as the least loaded, so the emptiest go first."""
        running, waiting, usage = samples.gauge(_RUNNING), samples.gauge(_WAITING), samples.gauge(_KV_USAGE)
        found = {
            name: PodLoad(running[name], waiting[name], usage[name])
            for name in running
            if math.isfinite(running[name]) and math.isfinite(waiting[name])
        }
        busiest = sorted(found, key=lambda name: found[name].concurrency, reverse=True)
        return {name: found[name] for name in sorted(busiest[: self.ready])}


def prometheus_quantile(histogram: Histogram | None, q: float) -> float | None:
    """``histogram_quantile(q, ...)`` as Prometheus computes it, in seconds; None where it is NaN or has no series.

    A straight line inside a bucket, the first one from 0; the highest finite edge for what lies above it.
    """
    if histogram is None or not histogram.total > 0 or len(histogram.edges) < 2:
        return None
    edges, counts = histogram.edges, histogram.counts
    rank, lower_edge, lower_count = q * histogram.total, 0.0, 0.0
    for edge, count in zip(edges[:-1], counts[:-1], strict=True):
        if count >= rank:
            inside = count - lower_count
            return lower_edge + (edge - lower_edge) * ((rank - lower_count) / inside if inside > 0 else 1.0)
        lower_edge, lower_count = edge, count
    return lower_edge


def mean(pods: Mapping[str, PodLoad], figure: Callable[[PodLoad], float]) -> float | None:
    """The plain mean over pods; None where none reports."""
    return sum(figure(pod) for pod in pods.values()) / len(pods) if pods else None


def since(seen: Sequence[tuple[float, T]], after: float) -> list[tuple[float, T]]:
    """What was seen later than ``after``, as (seconds, value): a window, open at its older end."""
    return [(at, value) for at, value in seen if at > after]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
