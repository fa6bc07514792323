"""What a simulated pool is given and what it gives back: plain values, times in seconds, lengths in tokens.

Bucket edges are those of vLLM 0.32 (``vllm:time_to_first_token_seconds``, ``vllm:inter_token_latency_seconds`` and
``vllm:request_time_per_output_token_seconds``), to which a pool adds its tier's thresholds, as the operator does with
``--custom-histogram-buckets``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tierkeeper.engine.flags import TPOT_EDGES, TTFT_EDGES
from tierkeeper.engine.latency import Profile

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int32]
Routing: TypeAlias = Literal["least-loaded", "round-robin", "random"]


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """What arrives: arrays of one length N, sorted by arrival.

    Raises ValueError where lengths differ, arrivals are not finite, not sorted or negative, or a request has less than
    one token of prompt or output.
    """

    arrival: Floats
    """[N] seconds since the start of the run."""
    prompt: Ints
    """[N] tokens, at least 1."""
    output: Ints
    """[N] tokens, at least 1; known to the simulator only, never to a policy."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrival", np.ascontiguousarray(self.arrival, dtype=np.float64))
        object.__setattr__(self, "prompt", np.ascontiguousarray(self.prompt, dtype=np.int32))
        object.__setattr__(self, "output", np.ascontiguousarray(self.output, dtype=np.int32))
        lengths = {name: len(getattr(self, name)) for name in ("arrival", "prompt", "output")}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"requests: the arrays differ in length ({lengths}); give one value a request in each")
        if not len(self):
            return
        gaps = np.diff(self.arrival)
        if not np.isfinite(self.arrival).all() or self.arrival[0] < 0 or (gaps < 0).any():
            raise ValueError("requests: arrival must be finite, not negative and sorted; sort the trace by arrival")
        for name in ("prompt", "output"):
            lowest = int(getattr(self, name).min())
            if lowest < 1:
                raise ValueError(f"requests: {name} has {lowest} tokens; every request needs at least 1")

    def __len__(self) -> int:
        return len(self.arrival)


@dataclass(frozen=True, slots=True)
class Startup:
    """Seconds from a pod scheduled to Ready: lognormal around the median, held within [median / 2, 3 * median]."""

    median_seconds: float
    sigma: float = 0.15
    """Spread of the logarithm; 0: always the median."""

    def __post_init__(self) -> None:
        for name in ("median_seconds", "sigma"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"startup.{name}: {getattr(self, name)} must be 0 or more and finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """The replicas of one pool, all alike, and how requests find them."""

    profile: Profile
    """The constants of a step: ``a + B * (b0 + b1 * context) + d * (prefill tokens)``."""
    kv_tokens: int
    """KV cache of a replica in tokens. A request that could never fit is rejected on arrival."""
    startup: Startup
    drain_seconds: float
    """A leaving replica finishes what it has for this long; then its requests are cut."""
    gpus_per_replica: int = 1
    routing: Routing = "least-loaded"
    """``least-loaded``: fewest running + waiting, ties in turn."""
    max_queued_requests: int | None = None
    """A replica with this many waiting rejects the next one. None: no limit."""
    mocker_rules: bool = False
    """As NVIDIA Dynamo's mocker: a prefill-only step that ends no prompt has no ``a``; decoding costs at least 1 ms."""
    ttft_thresholds: tuple[float, ...] = ()
    """Seconds; added to the TTFT edges."""
    tpot_thresholds: tuple[float, ...] = ()
    """Seconds; added to the TPOT and inter-token edges."""

    def __post_init__(self) -> None:
        for name, lowest in (("kv_tokens", 2), ("drain_seconds", 0), ("gpus_per_replica", 0)):
            if not getattr(self, name) >= lowest:
                raise ValueError(f"pool.{name}: {getattr(self, name)} must be {lowest} or more")
        if self.max_queued_requests is not None and self.max_queued_requests < 1:
            raise ValueError(f"pool.max_queued_requests: {self.max_queued_requests} must be 1 or more, or None")
        if self.routing not in ("least-loaded", "round-robin", "random"):
            raise ValueError(f"pool.routing: {self.routing!r} is not one of least-loaded, round-robin, random")

    @property
    def ttft_edges(self) -> tuple[float, ...]:
        """Edges of the TTFT histogram in seconds, without +Inf."""
        return tuple(sorted({*TTFT_EDGES, *self.ttft_thresholds}))

    @property
    def tpot_edges(self) -> tuple[float, ...]:
        """Edges of the request TPOT and the inter-token histogram in seconds, without +Inf."""
        return tuple(sorted({*TPOT_EDGES, *self.tpot_thresholds}))


@dataclass(frozen=True, slots=True)
class PodCounts:
    """The pods of a pool by state."""

    desired: int
    ready: int
    """Take requests."""
    starting: int
    """Scheduled and loading: they hold their GPUs."""
    unschedulable: int
    """Wait for a GPU."""
    draining: int
    """Leave: they finish what they have and hold their GPUs until gone."""


@dataclass(frozen=True, slots=True)
class Step:
    """The last engine step that a replica finished."""

    wall_seconds: float
    prefill_tokens: int
    sequences: int
    """That got a token in it."""
    kv_tokens: int
    """Context of those sequences, summed."""


@dataclass(frozen=True, slots=True, eq=False)
class PodPage:
    """What a Ready or draining pod shows at ``/metrics``. Counters count since the pod was Ready.

    Buckets are as Prometheus has them: entry i counts the observations up to edge i, the last one (+Inf) all. As in
    vLLM, TTFT and prompt tokens are counted at the first token, generated tokens and inter-token latency at each step,
    and what belongs to a whole request (TPOT, queue and prefill time, lengths) when it finishes; a request of one token
    counts there with a TPOT of 0.
    """

    name: str
    started_at: float
    """When the pod became Ready, seconds."""
    draining: bool
    ttft_edges: tuple[float, ...]
    ttft_buckets: Floats
    """[edges + 1]"""
    ttft_sum: float
    tpot_edges: tuple[float, ...]
    """Of ``tpot_buckets`` and ``itl_buckets``."""
    tpot_buckets: Floats
    """[edges + 1], mean seconds a token by request."""
    tpot_sum: float
    itl_buckets: Floats
    """[edges + 1], seconds between two tokens of a request, by token."""
    itl_sum: float
    queue_time_sum: float
    queue_time_count: int
    prefill_time_sum: float
    prefill_time_count: int
    prompt_length_sum: int
    prompt_length_count: int
    generation_length_sum: int
    generation_length_count: int
    prompt_tokens: int
    generation_tokens: int
    finished: int
    """Requests that ended well (``vllm:request_success_total``)."""
    preemptions: int
    rejections: int
    running: int
    waiting: int
    kv_usage: float
    """Share of the KV cache in use, 0 to 1."""
    max_num_seqs: int
    max_num_batched_tokens: int
    step: Step | None
    """None before the first one."""


class Status(enum.IntEnum):
    """How a request ended."""

    FINISHED = 0
    REJECTED = 1
    CUT = 2
    """Its replica went away before it was done."""
    UNSERVED = 3
    """Not done yet: waiting, running or still to arrive when the run ended."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What became of each request, arrays of length N in the order of arrival; NaN where it did not happen."""

    replica: Ints
    """[N] number of the pod that had it last, -1: none."""
    queue_seconds: Floats
    """[N] from arrival to its first admission into the running batch."""
    ttft: Floats
    """[N] seconds from arrival to the end of the step that made the first token."""
    tpot: Floats
    """[N] (last token - first token) / (output - 1); NaN if output is 1 or it did not finish."""
    finish: Floats
    """[N] time of the last token."""
    status: NDArray[np.int8]
    """[N] values of ``Status``."""
    preemptions: Ints
    """[N] how often it lost its KV and was computed anew."""
