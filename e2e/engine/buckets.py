"""The bucket edges of vLLM's histograms, by family; the keys are those of ``--custom-histogram-buckets`` (vLLM 0.32
and later).

``request_latency``: e2e, queue, inference, prefill and decode time. ``inter_token_latency``: inter-token latency and
the request's mean time per output token; one list serves both.
"""

from collections.abc import Mapping

STATIC_EDGES: Mapping[str, tuple[float, ...]] = {
    "request_latency": (
        0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
    ),
    "time_to_first_token": (
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160,
        640, 2560,
    ),
    "inter_token_latency": (
        0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
    ),
    "iteration_tokens": (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384),
    "request_params_n": (1, 2, 5, 10, 20),
    "request_num_preemptions": (1, 2, 3, 4, 5, 10, 20),
}  # fmt: skip

BUCKET_FAMILIES = frozenset({*STATIC_EDGES, "request_tokens", "kv_cache_residency"})


def request_token_edges(max_model_len: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50, ... up to ``max_model_len``."""
    edges: list[float] = []
    decade = 1
    while True:
        for step in (1, 2, 5):
            if step * decade > max_model_len:
                return tuple(edges)
            edges.append(step * decade)
        decade *= 10


def edges_of(family: str, *, max_model_len: int, custom: Mapping[str, tuple[float, ...]]) -> tuple[float, ...]:
    """The edges of a family: the custom list in full, where there is one, else vLLM's own."""
    if family in custom:
        return custom[family]
    return request_token_edges(max_model_len) if family == "request_tokens" else STATIC_EDGES[family]
