"""The command line of ``vllm serve``: the flags that this engine models, and those it knows and ignores."""

import argparse
import json
import math
import re
from itertools import pairwise
from typing import Any

from e2e.engine.buckets import BUCKET_FAMILIES

Version = tuple[int, int]

_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}

# Flags of vLLM that change nothing here. A flag in neither list is unknown, and ends the process with status 2.
_IGNORED_WITH_VALUE = (
    "--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp", "--data-parallel-size", "-dp",
    "--revision", "--tokenizer", "--tokenizer-mode", "--tokenizer-revision", "--code-revision",
    "--hf-config-path", "--hf-overrides", "--dtype", "--quantization", "-q", "--kv-cache-dtype", "--seed",
    "--gpu-memory-utilization", "--kv-cache-memory-bytes", "--block-size", "--cpu-offload-gb", "--download-dir",
    "--load-format", "--model-loader-extra-config", "--max-num-partial-prefills",
    "--long-prefill-token-threshold", "--scheduling-policy", "--speculative-config", "--compilation-config",
    "--cudagraph-capture-sizes", "--performance-mode", "--generation-config", "--override-generation-config",
    "--chat-template", "--chat-template-content-format", "--response-role", "--tool-call-parser",
    "--reasoning-parser", "--limit-mm-per-prompt", "--guided-decoding-backend", "--distributed-executor-backend",
    "--api-server-count", "--uvicorn-log-level", "--max-log-len", "--attention-backend",
    "--prefill-schedule-interval", "--watermark", "--max-loras", "--max-lora-rank", "--max-cpu-loras",
    "--kv-transfer-config", "--otlp-traces-endpoint", "--show-hidden-metrics-for-version",
)  # fmt: skip
_IGNORED_SWITCHES = (
    "--enforce-eager", "--trust-remote-code", "--enable-prefix-caching", "--no-enable-prefix-caching",
    "--enable-chunked-prefill", "--enable-log-requests", "--no-enable-log-requests", "--enable-auto-tool-choice",
    "--enable-lora", "--async-scheduling", "--no-async-scheduling", "--disable-log-stats",
    "--disable-custom-all-reduce", "--enable-expert-parallel", "--enable-sleep-mode",
    "--enable-server-load-tracking", "--disable-uvicorn-access-log", "--enable-force-include-usage",
)  # fmt: skip


class VllmArgumentParser(argparse.ArgumentParser):
    """Takes ``--max_num_seqs`` for ``--max-num-seqs``, as vLLM does."""

    def parse_known_args(  # type: ignore[override]
        self, args: list[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        def dashed(argument: str) -> str:
            name, equals, value = argument.partition("=")
            return name.replace("_", "-") + equals + value if name.startswith("--") else argument

        return super().parse_known_args(None if args is None else [dashed(a) for a in args], namespace)


def human_readable_int(text: str) -> int:
    """``8192``, ``8k`` (8,000) or ``8K`` (8,192). Raises ArgumentTypeError otherwise."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgKMG]?)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"invalid integer {text!r}")
    return int(float(match[1]) * _UNITS.get(match[2], 1))


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to a JSON object: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"Value {text} is not a JSON object")
    return value


def add_serve_flags(parser: argparse.ArgumentParser, version: Version) -> None:
    """All flags that vLLM of ``version`` (major, minor) has."""
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--model", default="Qwen/Qwen3-0.6B")
    parser.add_argument("--served-model-name", nargs="+")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--api-key", nargs="+")
    parser.add_argument("--max-num-seqs", type=human_readable_int, default=256)
    parser.add_argument("--max-num-batched-tokens", type=human_readable_int, default=2048)
    parser.add_argument("--max-model-len", type=human_readable_int, default=16384)
    parser.add_argument("--num-gpu-blocks-override", type=int)
    if version >= (0, 18):
        parser.add_argument("--shutdown-timeout", type=int, default=0)
    if version >= (0, 29):
        parser.add_argument("--max-num-queued-reqs", type=int)
        parser.add_argument("--max-num-queued-tokens", type=human_readable_int)
    if version >= (0, 31):
        parser.add_argument("--max-num-active-seqs", type=human_readable_int)
    if version >= (0, 32):
        parser.add_argument("--custom-histogram-buckets", type=_json_object, default={})
    for flag in _IGNORED_WITH_VALUE:
        parser.add_argument(flag, help=argparse.SUPPRESS)
    for flag in _IGNORED_SWITCHES:
        parser.add_argument(flag, action="store_true", help=argparse.SUPPRESS)


def validate_buckets(buckets: dict[str, Any]) -> dict[str, tuple[float, ...]]:
    """The bounds by family. Raises ValueError on what vLLM refuses: unknown families, bounds that do not increase."""
    for family, bounds in buckets.items():
        where = f"custom_histogram_buckets[{family!r}]"
        if family not in BUCKET_FAMILIES:
            raise ValueError(f"{where}: unknown bucket family; known families: {sorted(BUCKET_FAMILIES)}")
        if not isinstance(bounds, list) or not bounds:
            raise ValueError(f"{where}: the bucket list must not be empty")
        for bound in bounds:
            if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound) or bound <= 0:
                raise ValueError(f"{where}: bound {bound!r} must be a finite number greater than 0")
        if any(low >= high for low, high in pairwise(bounds)):
            raise ValueError(f"{where}: bounds {bounds} must be strictly increasing")
    return {family: tuple(map(float, bounds)) for family, bounds in buckets.items()}
