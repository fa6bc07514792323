"""The signals that the loop reads: their identity, their labels and the histogram families behind them.

``render.promql`` writes one query a signal; ``slo.readings`` takes the answers apart again; this is what they share.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

TTFT_FAMILIES = ("vllm:time_to_first_token_seconds",)
"""The histogram behind the TTFT SLI; the name is the same in all vLLM releases."""

REQUEST_TPOT_FAMILY = "vllm:request_time_per_output_token_seconds"
"""One observation a request (vLLM >= 0.11): what a TPOT objective means. A request of one token counts as 0 s."""

TOKEN_TPOT_FAMILIES = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
"""One observation an output; the second name is the older one for the same data (visible up to vLLM 0.11)."""

TPOT_FAMILIES = (REQUEST_TPOT_FAMILY, *TOKEN_TPOT_FAMILIES)

FAMILY_LABEL = "family"
"""Label that our queries add: the histogram family a bucket comes from."""

STAT_LABEL = "stat"
"""Label that our queries add: which figure of one signal a sample is, one of ``Stat``."""

LARGEST, LEAST = 1e15, 1e-9
"""No pool shows more than the one, of whatever it is: a million tokens a second for thirty years. A rate below the
other, one in thirty years, is none. Figures between the two can be multiplied and divided without end or surprise."""

_LABEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED_LABELS = frozenset(
    {"__name__", "engine", "model_name", "finished_reason", "reason", "le", FAMILY_LABEL, STAT_LABEL}
)


class Stat(StrEnum):
    """The figures that one query may return side by side."""

    SUM = "sum"
    COUNT = "count"
    SERIES = "series"
    """How many series contributed to the sum."""


class SignalKind(StrEnum):
    """What is measured. Gauges come per pod, everything else per tier."""

    RUNNING = "running"
    WAITING = "waiting"
    WAITING_FLOOR = "waitingFloor"
    KV_CACHE_USAGE = "kvCacheUsage"
    SAMPLE_AGE = "sampleAge"
    REQUESTS = "requests"
    FINISHED = "finished"
    PROMPT_TOKENS = "promptTokens"
    GENERATION_TOKENS = "generationTokens"
    REJECTED = "rejected"
    PREEMPTIONS = "preemptions"
    QUEUE_TIME = "queueTime"
    PREFILL_TIME = "prefillTime"
    TTFT_TIME = "ttftTime"
    PROMPT_LENGTH = "promptLength"
    OUTPUT_LENGTH = "outputLength"
    TTFT_BUCKETS = "ttftBuckets"
    TPOT_BUCKETS = "tpotBuckets"


class Signal(NamedTuple):
    """One query's worth of data: a kind, over a look-back window where it has one (0: an instant)."""

    kind: SignalKind
    window_seconds: int = 0

    def __str__(self) -> str:
        return f"{self.kind}[{self.window_seconds}s]" if self.window_seconds else str(self.kind)


@dataclass(frozen=True, slots=True)
class MetricLabels:
    """Labels by which Prometheus knows a pod's namespace, tier and name. Raises ValueError on a bad name."""

    namespace: str = "namespace"
    tier: str = "tier"
    pod: str = "pod"

    def __post_init__(self) -> None:
        for setting, name in (("namespace_label", self.namespace), ("tier_label", self.tier), ("pod_label", self.pod)):
            if not _LABEL_NAME.fullmatch(name):
                raise ValueError(
                    f"{setting} ({name!r}) is not a Prometheus label name: use letters, digits and underscores, "
                    "not starting with a digit (a PodMonitor writes tierkeeper.dev/tier as tierkeeper_dev_tier)"
                )
            if name in _RESERVED_LABELS:
                raise ValueError(
                    f"{setting} ({name!r}) is a label that vLLM or the queries use themselves: choose another"
                )
        if len({self.namespace, self.tier, self.pod}) < 3:
            raise ValueError(
                f"namespace_label ({self.namespace!r}), tier_label ({self.tier!r}) and pod_label ({self.pod!r}) "
                "must be three different labels"
            )
