"""How one metrics page lies in a row of numbers: the bucket families first, then the counters, then the gauges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tierkeeper.sim.model import PodPage
from tierkeeper.slo.signals import REQUEST_TPOT_FAMILY, TOKEN_TPOT_FAMILIES, TTFT_FAMILIES

Floats: TypeAlias = NDArray[np.float64]

TTFT = TTFT_FAMILIES[0]
REQUEST_TPOT = REQUEST_TPOT_FAMILY
INTER_TOKEN = TOKEN_TPOT_FAMILIES[0]

_COUNTERS: Mapping[str, str] = {
    f"{TTFT}_sum": "ttft_sum",
    f"{REQUEST_TPOT}_sum": "tpot_sum",
    f"{INTER_TOKEN}_sum": "itl_sum",
    "vllm:request_queue_time_seconds_sum": "queue_time_sum",
    "vllm:request_queue_time_seconds_count": "queue_time_count",
    "vllm:request_prefill_time_seconds_sum": "prefill_time_sum",
    "vllm:request_prefill_time_seconds_count": "prefill_time_count",
    "vllm:request_prompt_tokens_sum": "prompt_length_sum",
    "vllm:request_prompt_tokens_count": "prompt_length_count",
    "vllm:request_generation_tokens_sum": "generation_length_sum",
    "vllm:request_generation_tokens_count": "generation_length_count",
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:generation_tokens_total": "generation_tokens",
    "vllm:request_success_total": "finished",
    "vllm:num_preemptions_total": "preemptions",
    "vllm:admission_rejections_total": "rejections",
}
_GAUGES: Mapping[str, str] = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "kv_usage",
    "tierkeeper_max_num_seqs_applied": "max_num_seqs",
    "tierkeeper_max_num_batched_tokens_applied": "max_num_batched_tokens",
}
_STEP: Mapping[str, str] = {
    "step:wall_seconds": "wall_seconds",
    "step:prefill_tokens": "prefill_tokens",
    "step:sequences": "sequences",
    "step:kv_tokens": "kv_tokens",
}
"""The last engine step, as engines report it that publish each forward pass; NaN before the first."""


@dataclass(frozen=True)
class Columns:
    """The columns of all pages of a pool. Edges in seconds, without +Inf."""

    ttft_edges: tuple[float, ...]
    tpot_edges: tuple[float, ...]

    @cached_property
    def families(self) -> Mapping[str, slice]:
        """The columns of each histogram family's buckets, the last of them +Inf."""
        first, more = len(self.ttft_edges) + 1, len(self.tpot_edges) + 1
        return {
            TTFT: slice(0, first),
            REQUEST_TPOT: slice(first, first + more),
            INTER_TOKEN: slice(first + more, first + 2 * more),
        }

    @cached_property
    def buckets(self) -> int:
        """How many columns are buckets."""
        return int(self.families[INTER_TOKEN].stop)

    @cached_property
    def series(self) -> Mapping[str, int]:
        """The column of each series without ``le``; a family's ``_count`` is its +Inf bucket."""
        totals = {f"{family}_count": columns.stop - 1 for family, columns in self.families.items()}
        names = (*_COUNTERS, *_GAUGES, *_STEP)
        return totals | {name: place for place, name in enumerate(names, start=self.buckets)}

    @property
    def counters(self) -> int:
        return self.buckets + len(_COUNTERS)

    @property
    def gauges(self) -> int:
        return len(_GAUGES) + len(_STEP)

    def edges(self, family: str) -> tuple[float, ...]:
        return self.ttft_edges if family == TTFT else self.tpot_edges

    def column(self, name: str) -> slice:
        """The column of one series. Raises KeyError with the names there are."""
        if name not in self.series:
            raise KeyError(f"no series {name!r} on a page: there are {', '.join(sorted(self.series))}")
        place = self.series[name]
        return slice(place, place + 1)

    def row(self, page: PodPage) -> Floats:
        """The page as a row."""
        row = np.empty(self.counters + self.gauges)
        row[self.families[TTFT]] = page.ttft_buckets
        row[self.families[REQUEST_TPOT]] = page.tpot_buckets
        row[self.families[INTER_TOKEN]] = page.itl_buckets
        figures = [getattr(page, name) for name in (*_COUNTERS.values(), *_GAUGES.values())]
        step = page.step
        figures += [np.nan] * len(_STEP) if step is None else [getattr(step, name) for name in _STEP.values()]
        row[self.buckets :] = figures
        return row

    def text(self, row: Floats) -> list[tuple[str, str, float]]:
        """The row as a page would write it: metric name, ``le`` (empty where there is none), value."""
        lines = [
            (f"{family}_bucket", le_text(edge), float(row[column]))
            for family, columns in self.families.items()
            for column, edge in zip(range(columns.start, columns.stop), (*self.edges(family), np.inf), strict=True)
        ]
        return lines + [(name, "", float(row[column])) for name, column in self.series.items()]


def le_text(edge: float) -> str:
    """An edge as Prometheus 3 writes it: ``1.0``, ``0.025``, ``+Inf``."""
    return "+Inf" if np.isinf(edge) else repr(float(edge))
