"""The command line of a vLLM server, by vLLM release, and whether a release can be resized live.

An unknown flag ends the server at once, so a flag is rendered only where the release has it. Each gate below was read
from the release's source; a tier whose release is unknown gets the flags that every release has.
"""

import json
from typing import NamedTuple

from tierkeeper.tier import LiveResize, OverflowPolicy, TierSpec

Version = tuple[int, int, int]

SERVE_ENTRYPOINT: Version = (0, 11, 1)
"""The image starts ``vllm serve MODEL``; before, ``api_server --model MODEL``."""
SHUTDOWN_TIMEOUT: Version = (0, 18, 0)
"""``--shutdown-timeout``: the server finishes its requests on SIGTERM; before, it drops them."""
QUEUE_LIMITS: Version = (0, 29, 0)
"""``--max-num-queued-reqs`` and ``--max-num-queued-tokens``: 503 instead of an endless queue."""
ACTIVE_SEQS: Version = (0, 31, 0)
"""``--max-num-active-seqs``: a cap below max-num-seqs; buffers, CUDA graphs and compile caches stay as they are."""
CUSTOM_BUCKETS: Version = (0, 32, 0)
"""``--custom-histogram-buckets``."""

LIVE_RESIZE_FIRST = (0, 18)
LIVE_RESIZE_LAST = (0, 33)
"""Releases, inclusive, whose scheduler has the attributes that the live-limit plugin sets. The plugin holds the same
two numbers, because vLLM loads it without this package."""

HTTP_PORT = 8000

DEFAULT_BATCHED_TOKENS = 2048
"""Smallest token budget that a vLLM server chooses by itself (8192 and more on large GPUs)."""

TTFT_EDGES = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
"""vLLM's default bucket edges of the time to first token, in seconds."""
TPOT_EDGES = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
"""vLLM's default bucket edges of inter-token latency and time per output token, in seconds: one family."""


class Support(NamedTuple):
    supported: bool
    message: str


def live_resize_support(version: Version | None) -> Support:
    """Whether the plugin can set the limits of this release between two steps, and the reason in a sentence."""
    first, last = _text(LIVE_RESIZE_FIRST), _text(LIVE_RESIZE_LAST)
    if version is None:
        return Support(
            False,
            "The vLLM release is unknown, so limits change by a rolling restart: set spec.engine.version or use an "
            f"image tag that tells it, for example v{last}.0",
        )
    if not LIVE_RESIZE_FIRST <= version[:2] <= LIVE_RESIZE_LAST:
        return Support(
            False,
            f"vLLM {_text(version)} is outside {first} to {last}, the releases that can be resized live, so limits "
            "change by a rolling restart",
        )
    return Support(True, f"vLLM {_text(version)} is resized live")


def live_resize(spec: TierSpec) -> Support:
    """Whether this tier's pods follow their limits live: the engine can, and the tier does not forbid it."""
    if spec.engine.live_resize is LiveResize.DISABLED:
        return Support(False, "spec.engine.liveResize is Disabled, so limits change by a rolling restart")
    return live_resize_support(spec.engine.version)


def drains_on_sigterm(version: Version | None) -> bool:
    """Whether the server finishes its requests on SIGTERM when it is told for how long."""
    return _has(version, SHUTDOWN_TIMEOUT)


def serve_args(spec: TierSpec, *, max_num_seqs: int, max_num_batched_tokens: int | None = None) -> list[str]:
    """Arguments for the image's own entry point, in a fixed order, the tier's extra arguments last.

    ``max_num_seqs`` and ``max_num_batched_tokens`` are the current limits. They reach the command line only where the
    engine cannot be resized live; otherwise it starts with the upper bounds and the plugin holds it at the limits.
    """
    model, engine, version = spec.model, spec.engine, spec.engine.version
    positional = version is None or version >= SERVE_ENTRYPOINT
    args = [model.id] if positional else ["--model", model.id]
    args += ["--served-model-name", model.served_name]
    args += _option("--revision", model.revision)
    args += ["--port", str(HTTP_PORT)]
    args += _option("--max-model-len", engine.max_model_len)
    for flag, size in (
        ("--tensor-parallel-size", engine.tensor_parallel_size),
        ("--pipeline-parallel-size", engine.pipeline_parallel_size),
    ):
        args += _option(flag, size if size > 1 else None)
    args += _batch_args(spec, cap=max_num_seqs, token_budget=max_num_batched_tokens)
    if drains_on_sigterm(version):
        args += ["--shutdown-timeout", str(spec.rollout.drain_seconds)]
    if _has(version, QUEUE_LIMITS):
        args += _queue_args(spec, cap=max_num_seqs)
    if _has(version, CUSTOM_BUCKETS):
        args += _bucket_args(spec)
    return [*args, *engine.extra_args]


def _batch_args(spec: TierSpec, *, cap: int, token_budget: int | None) -> list[str]:
    bounds = spec.scaling.max_num_batched_tokens
    ceiling = spec.scaling.max_num_seqs.max
    cap = min(cap, ceiling)
    active: list[str] = []
    if live_resize(spec).supported:
        seqs, tokens = ceiling, bounds.max if bounds else None
    elif _has(spec.engine.version, ACTIVE_SEQS):
        seqs, tokens = ceiling, token_budget if bounds else None
        active = ["--max-num-active-seqs", str(cap)]
    else:
        seqs, tokens = cap, token_budget if bounds else None
    tokens = tokens or spec.engine.max_num_batched_tokens
    # vLLM refuses to start with a token budget below max-num-seqs, its own default budget included.
    if seqs > (tokens or DEFAULT_BATCHED_TOKENS):
        tokens = seqs
    return ["--max-num-seqs", str(seqs), *active, *_option("--max-num-batched-tokens", tokens)]


def _queue_args(spec: TierSpec, *, cap: int) -> list[str]:
    """vLLM counts running requests as queued ones too; the tier's number is of waiting requests only.

    With max-num-seqs 64 and room for 100 waiting requests the flag is 164. A tier that rejects and names no number
    keeps nobody waiting.
    """
    overflow, ceiling = spec.overflow, spec.scaling.max_num_seqs.max
    waiting = overflow.max_queued_requests
    if waiting is None and overflow.max_queued_tokens is None and overflow.policy is OverflowPolicy.REJECT:
        waiting = 0
    running = ceiling if live_resize(spec).supported else min(cap, ceiling)
    in_flight = None if waiting is None else running + waiting
    return [
        *_option("--max-num-queued-reqs", in_flight),
        *_option("--max-num-queued-tokens", overflow.max_queued_tokens),
    ]


def _bucket_args(spec: TierSpec) -> list[str]:
    """The thresholds as bucket edges, so that error ratios are exact. A family that has the edge stays as it is."""
    if spec.objective is None:
        return []
    families = {
        "inter_token_latency": _with_edge(TPOT_EDGES, spec.objective.tpot_seconds),
        "time_to_first_token": _with_edge(TTFT_EDGES, spec.objective.ttft_seconds),
    }
    changed = {family: edges for family, edges in families.items() if edges}
    return ["--custom-histogram-buckets", json.dumps(changed, separators=(",", ":"))] if changed else []


def _with_edge(edges: tuple[float, ...], edge: float | None) -> list[float] | None:
    if edge is None or edge in edges:
        return None
    return sorted({*edges, edge})


def _has(version: Version | None, gate: Version) -> bool:
    return version is not None and version >= gate


def _option(flag: str, value: object | None) -> list[str]:
    return [] if value is None else [flag, str(value)]


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
