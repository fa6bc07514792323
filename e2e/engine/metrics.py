"""The families of vLLM 0.32's ``/metrics``: names, types, labels and bucket edges, and when each is touched."""

from collections.abc import Iterable

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from e2e.engine.buckets import edges_of
from e2e.engine.config import EngineConfig
from e2e.engine.core import EngineCore, StepResult
from e2e.engine.scheduler import Request

LABELS = ("model_name", "engine")
PROMPT_SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
CACHE_SOURCES = ("device", "host", "p2p", "disk", "external_unspecified")
FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")
REJECTION_REASONS = ("max_num_queued_reqs", "max_num_queued_tokens")

# Name, help and bucket family of each histogram.
_HISTOGRAMS = (
    ("request_prompt_tokens", "Prompt tokens of finished requests", "request_tokens"),
    ("request_generation_tokens", "Output tokens of finished requests", "request_tokens"),
    ("iteration_tokens_total", "Prompt and output tokens of a step", "iteration_tokens"),
    ("request_max_num_generation_tokens", "Longest output of a request", "request_tokens"),
    ("request_params_n", "Parameter n of requests", "request_params_n"),
    ("request_params_max_tokens", "Parameter max_tokens of requests", "request_tokens"),
    ("time_to_first_token_seconds", "Arrival to first token", "time_to_first_token"),
    ("inter_token_latency_seconds", "Token to next token", "inter_token_latency"),
    ("request_time_per_output_token_seconds", "Mean of a finished request", "inter_token_latency"),
    ("e2e_request_latency_seconds", "Arrival to last token", "request_latency"),
    ("request_queue_time_seconds", "Queued to first scheduled", "request_latency"),
    ("request_inference_time_seconds", "First scheduled to last token", "request_latency"),
    ("request_prefill_time_seconds", "First scheduled to first token", "request_latency"),
    ("request_decode_time_seconds", "First token to last token", "request_latency"),
    ("request_num_preemptions", "Preemptions of finished requests", "request_num_preemptions"),
    ("request_prefill_kv_computed_tokens", "Prompt tokens not taken from a cache", "request_tokens"),
)
# Counters that move, then those that this engine has no cause to move.
_COUNTERS = ("prefix_cache_queries", "num_preemptions", "prompt_tokens", "generation_tokens")
_STILL_COUNTERS = (
    "estimated_flops_per_gpu", "estimated_read_bytes_per_gpu", "estimated_write_bytes_per_gpu",
    "prefix_cache_hits", "external_prefix_cache_queries", "external_prefix_cache_hits", "mm_cache_queries",
    "mm_cache_hits", "prompt_tokens_cached",
)  # fmt: skip


class EngineMetrics:
    """Records steps into a Prometheus registry. ``model_name`` is the first served name, ``engine`` is always 0."""

    def __init__(self, config: EngineConfig, registry: CollectorRegistry = REGISTRY) -> None:
        self.registry = registry
        self._values = (config.served_names[0], "0")
        counters = {name: self._counter(name) for name in (*_COUNTERS, *_STILL_COUNTERS)}
        self._prefix_queries = counters["prefix_cache_queries"]
        self._preemptions = counters["num_preemptions"]
        self._prompt_tokens = counters["prompt_tokens"]
        self._generation_tokens = counters["generation_tokens"]
        self._running = self._gauge("num_requests_running", "Requests in the batch")
        self._waiting = self._gauge("num_requests_waiting", "Requests in the queue")
        by_reason = self._labelled_gauges("num_requests_waiting_by_reason", "reason", ("capacity", "deferred"))
        self._waiting_capacity = by_reason["capacity"]
        self._kv_usage = self._gauge("kv_cache_usage_perc", "Used share of the KV cache, 0 to 1")
        sleep = self._labelled_gauges(
            "engine_sleep_state", "sleep_state", ("awake", "weights_offloaded", "discard_all")
        )
        sleep["awake"].set(1)
        by_source = self._labelled_counters("prompt_tokens_by_source", "source", PROMPT_SOURCES)
        self._computed_tokens = by_source["local_compute"]
        self._labelled_counters("prompt_tokens_cached_by_source", "source", CACHE_SOURCES)
        self._success = self._labelled_counters("request_success", "finished_reason", FINISH_REASONS)
        rejections = Counter(
            "vllm:admission_rejections", "Requests answered with 503", ("model_name", "reason"), registry=registry
        )
        self._rejections = {reason: rejections.labels(self._values[0], reason) for reason in REJECTION_REASONS}
        self._histograms = {
            name: Histogram(
                f"vllm:{name}",
                text,
                LABELS,
                buckets=edges_of(family, max_model_len=config.max_model_len, custom=config.buckets),
                registry=registry,
            ).labels(*self._values)
            for name, text, family in _HISTOGRAMS
        }
        self._ttft = self._histograms["time_to_first_token_seconds"]
        self._itl = self._histograms["inter_token_latency_seconds"]
        _cache_config_info(config, registry)

    def record_step(self, result: StepResult, core: EngineCore) -> None:
        """One finished step."""
        computed = sum(request.num_prompt_tokens for request in result.first_tokens)
        tokens = len(result.first_tokens) + len(result.decode_gaps)
        self._generation_tokens.inc(tokens)
        self._histograms["iteration_tokens_total"].observe(computed + tokens)
        if computed:
            self._prompt_tokens.inc(computed)
            self._computed_tokens.inc(computed)
        if result.newly_scheduled:
            self._prefix_queries.inc(sum(request.num_prompt_tokens for request in result.newly_scheduled))
        if result.num_preempted:
            self._preemptions.inc(result.num_preempted)
        for request in result.first_tokens:
            self._ttft.observe(result.now - request.arrival_time)
        for gap in result.decode_gaps:
            self._itl.observe(gap)
        for request in result.finished:
            self._record_finished(request)
        self.set_gauges(core)

    def set_gauges(self, core: EngineCore) -> None:
        """Batch, queue and memory as they are now."""
        scheduler = core.scheduler
        waiting = len(scheduler.waiting)
        self._running.set(len(scheduler.running))
        self._waiting.set(waiting)
        self._waiting_capacity.set(waiting)
        self._kv_usage.set(scheduler.kv_cache.usage)

    def record_rejection(self, reason: str) -> None:
        """A request answered with 503; ``reason`` is one of ``REJECTION_REASONS``."""
        self._rejections[reason].inc()

    def _record_finished(self, request: Request) -> None:
        scheduled = request.arrival_time if request.scheduled_time is None else request.scheduled_time
        decode = request.last_token_time - request.first_token_time
        gaps = request.num_output_tokens - 1
        values = {
            "request_prompt_tokens": request.num_prompt_tokens,
            "request_generation_tokens": request.num_output_tokens,
            "request_max_num_generation_tokens": request.num_output_tokens,
            "request_params_n": 1,
            "request_params_max_tokens": request.max_tokens,
            "request_time_per_output_token_seconds": decode / gaps if gaps else 0.0,
            "e2e_request_latency_seconds": request.last_token_time - request.arrival_time,
            "request_queue_time_seconds": scheduled - request.arrival_time,
            "request_inference_time_seconds": request.last_token_time - scheduled,
            "request_prefill_time_seconds": request.first_token_time - scheduled,
            "request_decode_time_seconds": decode,
            "request_num_preemptions": request.num_preemptions,
            "request_prefill_kv_computed_tokens": request.num_prompt_tokens,
        }
        for name, value in values.items():
            self._histograms[name].observe(value)
        self._success[str(request.finish_reason)].inc()

    def _counter(self, name: str) -> Counter:
        return Counter(f"vllm:{name}", name.replace("_", " "), LABELS, registry=self.registry).labels(*self._values)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"vllm:{name}", text, LABELS, registry=self.registry).labels(*self._values)

    def _labelled_counters(self, name: str, label: str, values: Iterable[str]) -> dict[str, Counter]:
        family = Counter(f"vllm:{name}", f"{name} by {label}", (*LABELS, label), registry=self.registry)
        return {value: family.labels(*self._values, value) for value in values}

    def _labelled_gauges(self, name: str, label: str, values: Iterable[str]) -> dict[str, Gauge]:
        family = Gauge(f"vllm:{name}", f"{name} by {label}", (*LABELS, label), registry=self.registry)
        return {value: family.labels(*self._values, value) for value in values}


def _cache_config_info(config: EngineConfig, registry: CollectorRegistry) -> None:
    """The cache settings as labels; those that this engine has no notion of carry vLLM's default."""
    tokens = config.num_blocks * config.profile.block_size
    block_size = str(config.profile.block_size)
    labels = dict.fromkeys(
        (
            "cache_hit_alignment_tokens", "hash_block_size", "kv_cache_layout", "kv_cache_memory_bytes",
            "kv_offloading_size", "mamba_block_size", "mamba_page_size_padded", "num_cpu_blocks",
            "num_gpu_blocks_override", "prefix_match_unit", "skip_page_size_padded", "sliding_window",
        ),
        "None",
    ) | dict.fromkeys(
        (
            "enable_mamba_shared_prefix_checkpoint", "is_attention_free", "kv_sharing_fast_prefill",
            "use_kda_recoverssm", "use_replayssm", "user_specified_block_size",
        ),
        "False",
    )  # fmt: skip
    labels |= {
        "_block_size_resolved": "True", "block_size": block_size, "cache_dtype": "auto", "engine": "0",
        "effective_attention_block_size": block_size, "enable_prefix_caching": "True", "gpu_memory_utilization": "0.92",
        "kv_cache_dtype_skip_layers": "[]", "kv_cache_max_concurrency": str(tokens / config.max_model_len),
        "kv_cache_size_tokens": str(tokens), "kv_offloading_backend": "native", "mamba_cache_dtype": "auto",
        "mamba_cache_mode": "none", "mamba_ssm_cache_dtype": "float32", "num_gpu_blocks": str(config.num_blocks),
        "prefix_cache_retention_interval": "0", "prefix_caching_hash_algo": "sha256", "replayssm_buffer_len": "16",
        "swa_bounded_replay": "True",
    }  # fmt: skip
    info = Gauge("vllm:cache_config_info", "Settings of the KV cache", tuple(labels), registry=registry)
    info.labels(**labels).set(1)
